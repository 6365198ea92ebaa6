// The caissond program: wiring only. src/service/ has the parts, docs/design/service.md how they fit.
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "base/version.h"
#include "image/store.h"
#include "linux/files.h"
#include "network/address.h"
#include "runtime/native/launched.h"
#include "service/callbacks.h"
#include "service/documents.h"
#include "service/engine.h"
#include "service/http/server.h"
#include "service/launcher_guard.h"
#include "service/log.h"
#include "service/reconciler.h"
#include "service/sessions.h"
#include "service/workers.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"

namespace caisson {
namespace {

using service::Config;
using service::LogLine;

constexpr char kDescription[] =
    "The verification service: jobs from an HTTP API through a durable queue into sandboxes.\n"
    "Usage: caissond [--config FILE] [flags]";
constexpr char kFooter[] = R"(
Without a configuration it serves this user alone, over a unix socket in the state directory:
  caissond --state-dir ~/.local/state/caisson
  CAISSON_URL=unix:$HOME/.local/state/caisson/caissond.sock caisson submit --wait hello.py

SIGTERM lets running jobs finish (key `drain`) and then ends. Every key of the configuration: caissond --keys.)";

struct Flags {
  std::string config, state_dir, socket;
  int64_t workers = -1, max_queue = -1;
  bool keys = false, version = false;
};

void PrintKeys() {
  for (const service::ConfigKey& key : service::ConfigKeys()) {
    std::printf("%-22s %-13s %-26s %s\n", std::string(key.name).c_str(), std::string(key.type).c_str(),
                std::string(key.standard).c_str(), std::string(key.meaning).c_str());
  }
}

Result<Config> ReadConfiguration(const Flags& flags) {
  Config config;
  if (!flags.config.empty()) {
    CAISSON_TRY(config, service::LoadConfig(flags.config));
  }
  if (!flags.state_dir.empty()) config.state_dir = flags.state_dir;
  if (!flags.socket.empty()) config.socket = flags.socket;
  if (flags.workers >= 0) config.workers = flags.workers;
  if (flags.max_queue >= 0) config.max_queue = flags.max_queue;
  if (config.socket.empty()) config.socket = config.state_dir + "/caissond.sock";
  if (config.workers == 0) config.workers = std::max(1U, std::thread::hardware_concurrency());
  if (config.node.empty()) {
    char name[65] = {};
    ::gethostname(name, sizeof(name) - 1);
    config.node = name;
  }
  return config;
}

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
};

Result<std::optional<User>> FindUser(const Config& config) {
  if (config.user.empty()) return std::optional<User>();
  if (::geteuid() != 0) return Error::Invalid("user: only root can become another user; leave it out");
  const passwd* entry = ::getpwnam(config.user.c_str());
  if (entry == nullptr)
    return Error::Invalid("user: there is no user " + config.user + "; make one with adduser --system");
  return std::optional<User>(User{entry->pw_uid, entry->pw_gid, config.user});
}

// SECURITY: irrevocable: no ids, groups or capabilities remain that could restore the privileges.
Status Become(const User& user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0) {
    return Error::System(errno, "become the user " + user.name);
  }
  ::prctl(PR_SET_DUMPABLE, 0);
  return {};
}

Status MakeStateDirectory(const std::string& path, const std::optional<User>& user) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Error::System(errno, "make the state directory " + path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Error::Invalid(path + ": the state directory is no directory");
  if (user && ::chown(path.c_str(), user->uid, user->gid) != 0) return Error::System(errno, "chown " + path);
  if ((info.st_mode & 077) != 0) return Error::Invalid(path + ": others may look into it; fix: chmod 700 " + path);
  return {};
}

Result<std::unique_ptr<store::Store>> OpenStore(const Config& config) {
  if (config.database == "sqlite") return store::OpenSqlite(config.state_dir + "/caisson.db");
  return store::OpenPostgres(config.database);
}

Result<std::optional<service::CallbackSender>> MakeSender(const Config& config) {
  if (config.callback_secret.empty()) return std::optional<service::CallbackSender>();
  CAISSON_TRY(std::string secret, linux_sys::ReadSmallFile(AT_FDCWD, config.callback_secret.c_str(), 4096));
  while (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (secret.size() < 16) return Error::Invalid(config.callback_secret + ": a secret has at least 16 bytes");
  CAISSON_TRY(network::AddressRules rules, network::AddressRules::Make(config.callback_allow));
  return std::optional<service::CallbackSender>(service::CallbackSender(std::move(rules), std::move(secret)));
}

Status FillContext(service::ServiceContext& context) {
  const Config& config = context.config;
  context.worker = config.node + "." + service::RandomHex().substr(0, 8);
  CAISSON_TRY(context.authority.rules, policy::LoadRules(config.policy));
  if (!config.profiles.empty()) context.authority.profiles = policy::ProfileStore(config.profiles);
  context.authority.role = "submitter";
  const image::Store images(config.images.empty() ? config.state_dir + "/images" : config.images);
  context.authority.open_image = [images](const std::string& reference) { return images.Open(reference); };
  CAISSON_TRY(context.store, OpenStore(config));
  CAISSON_TRY(context.blobs,
              service::BlobStore::Open(config.state_dir + "/blobs", config.blob_quota, config.blob_quota_per_tenant));
  if (!config.signing_key.empty()) {
    CAISSON_TRY(context.key, attest::LoadPrivateKey(config.signing_key));
  }
  CAISSON_TRY(context.audit_writer, service::AuditWriter::Open(config.state_dir + "/audit.jsonl", config.node));
  return {};
}

service::http::ServerConfig HttpConfig(service::ServiceContext& context) {
  const Config& config = context.config;
  service::http::ServerConfig http;
  http.socket = config.socket;
  http.listen = config.listen;
  http.tokens = config.tokens;
  http.tls_certificate = config.tls_certificate;
  http.tls_key = config.tls_key;
  http.allowed_hosts = config.allowed_hosts;
  http.bounds.session_file_bytes = config.session_file_bytes;
  http.spool = context.blobs->directory();
  http.on_finished = [&context](const service::http::Finished& request) {
    context.metrics.Add("caisson_http_requests_total", "route=\"" + service::LabelValue(request.route) +
                                                           "\",status=\"" + std::to_string(request.status) + "\"");
    context.metrics.Observe("caisson_http_seconds", static_cast<double>(request.duration_ms) / 1e3);
  };
  return http;
}

std::string BesideThisProgram(const char* name) {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return self.substr(0, self.rfind('/') + 1) + name;
}

// Waits for a terminating signal, or for the end of the guard. False: the guard ended.
bool AwaitEnd(int signals, const service::LauncherGuard& guard, service::Metrics& metrics) {
  for (;;) {
    pollfd polls[] = {{signals, POLLIN, 0}, {guard.died_fd(), POLLIN, 0}, {guard.restarts_fd(), POLLIN, 0}};
    if (::poll(polls, 3, -1) < 0) continue;
    if (polls[0].revents != 0) return true;
    if (polls[1].revents != 0) return false;
    char bytes[64];
    const ssize_t count = ::read(guard.restarts_fd(), bytes, sizeof(bytes));
    if (count <= 0) continue;
    metrics.Add("caisson_launcher_restarts_total", "", static_cast<double>(count));
    LogLine("warning", "the launcher died and was started again");
  }
}

Status Serve(Config config) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, signal);
  ::signal(SIGPIPE, SIG_IGN);

  CAISSON_TRY(const std::optional<User> user, FindUser(config));
  CAISSON_TRY_VOID(MakeStateDirectory(config.state_dir, user));
  const std::string launcher_socket = config.state_dir + "/launcher.sock";
  std::vector<std::string> launcher_arguments = {"--socket", launcher_socket, "--max-runs",
                                                 std::to_string(2 * config.workers + 8)};
  if (config.parked > 0) launcher_arguments.insert(launcher_arguments.end(), {"--park", std::to_string(config.parked)});
  if (config.parked > 0 && !config.python_modules.empty()) {
    std::string modules;
    for (const std::string& name : config.python_modules) modules += (modules.empty() ? "" : ",") + name;
    launcher_arguments.insert(launcher_arguments.end(), {"--python", modules});
  }
  if (user) launcher_arguments.insert(launcher_arguments.end(), {"--allow-uid", std::to_string(user->uid)});
  CAISSON_TRY(const service::LauncherGuard guard, service::LauncherGuard::Start(launcher_socket, launcher_arguments));
  if (user) CAISSON_TRY_VOID(Become(*user));
  // After the guard was forked, which handles signals itself, and before any thread exists, because threads inherit the
  // mask.
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));

  service::ServiceContext context;
  context.config = std::move(config);
  context.network = std::make_unique<service::NetworkQuota>(context.config.network_connections_per_tenant,
                                                            context.config.network_bytes_per_tenant);
  CAISSON_TRY_VOID(FillContext(context));
  context.runtimes.push_back(runtime::native::MakeLaunchedRuntime(launcher_socket));
  context.authority.runtimes = runtime::Describe(context.runtimes);
  context.runtime_ready = [&guard] { return guard.Listens(); };
  CAISSON_TRY(const std::optional<service::CallbackSender> sender, MakeSender(context.config));
  CAISSON_TRY(const policy::Profile profile, context.authority.profiles.Find("balanced"));

  service::Reconciler reconciler(context);
  CAISSON_TRY_VOID(reconciler.TakeBackOwn());
  service::Workers workers(context, context.config.workers, profile.limits.memory_bytes);
  service::Engine engine(context, workers);
  CAISSON_TRY(const std::unique_ptr<service::Sessions> sessions,
              service::Sessions::Start(context, BesideThisProgram("caisson")));
  engine.SetSessions(sessions.get(), [&sessions] { sessions->Count(); });
  std::optional<service::Callbacks> callbacks;
  if (sender) {
    const service::Caller self{"caissond", "", {service::Right::kAdmin}};
    callbacks.emplace(context, *sender, [&engine, self](const std::string& id) { return engine.ResultOf(self, id); });
  }
  CAISSON_TRY(const std::unique_ptr<service::http::Server> server,
              service::http::StartServer(HttpConfig(context), engine));
  LogLine("info", "ready",
          {{"version", kVersion},
           {"socket", context.config.socket},
           {"port", std::to_string(server->port())},
           {"store", context.store->Description()},
           {"workers", std::to_string(context.config.workers)},
           {"node", context.worker}});

  const bool asked = AwaitEnd(signals.get(), guard, context.metrics);
  LogLine(asked ? "info" : "error", asked ? "draining" : "the launcher's guard is gone; ending");
  engine.StopTaking();
  sessions->Drain();
  workers.Drain(asked ? context.config.drain_ms : 0);
  server->Drain(2'000);
  LogLine("info", "ended");
  return asked ? Status() : Error::System(ECHILD, "the launcher's guard was lost");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(kDescription, "caissond");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  app.add_option("--config", flags.config, "Configuration (YAML)");
  app.add_option("--state-dir", flags.state_dir, "Database, blobs and audit log; instead of the key");
  app.add_option("--socket", flags.socket, "Unix socket of the API; instead of the key");
  app.add_option("--workers", flags.workers, "Jobs at once; instead of the key")->check(CLI::Range(1, 4096));
  app.add_option("--max-queue", flags.max_queue, "Jobs waiting before a submit is refused; instead of the key");
  app.add_flag("--keys", flags.keys, "List every key of the configuration");
  app.add_flag("--version", flags.version, "Show the version");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (flags.version) return std::printf("caissond %s\n", kVersion) < 0;
  if (flags.keys) {
    PrintKeys();
    return 0;
  }
  Result<Config> config = ReadConfiguration(flags);
  if (!config) {
    std::fprintf(stderr, "caissond: %s\n", config.error().message.c_str());
    return 2;
  }
  const Status served = Serve(*std::move(config));
  if (served) return 0;
  std::fprintf(stderr, "caissond: %s\n", served.error().message.c_str());
  return served.error().kind == ErrorKind::kInvalid ? 2 : 1;
}

}  // namespace
}  // namespace caisson

int main(int argc, char** argv) {
  // Returns large blocks to the kernel when they are freed. Otherwise the first few large requests raise the mmap
  // threshold, and every thread keeps an arena of the size of its largest request.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  ::mallopt(M_ARENA_MAX, 2);
  try {
    return caisson::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caissond: %s\n", error.what());
    return 1;
  }
}
