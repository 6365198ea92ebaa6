// The caisson-launcher program: its command line.
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/version.h"
#include "launcher/server.h"

namespace {

using caisson::Error;
using caisson::Result;
using caisson::launcher::ServerOptions;

constexpr char kHelp[] = R"(caisson-launcher: creates sandboxes on behalf of unprivileged programs.

  caisson-launcher --socket PATH [--allow-uid N] [FLAGS]
  caisson-launcher --fd N [FLAGS]

A service that reads untrusted input should not be root, but creating sandboxes with their own limits needs root. The
launcher is the small privileged part: it reads one protocol, starts one supervisor process for each run, and every
supervisor builds all walls of its sandbox, whatever the request. A client gains no rights: the files that it shows to a
sandbox are opened with the client's own rights. A launcher started by an ordinary user serves that user, without root.

  --socket PATH   listen there, mode 0600; root and the launcher's own user may connect
  --allow-uid N   and this one user, to whom the socket is given; only for a launcher that is root
  --fd N          serve the client that holds the other end of this connected seqpacket socket, and end with it
  --max-runs N    most runs at a time; further ones are refused; default 256
  --park N        keep up to N supervisors prepared for runs to come, as many as the demand of the last minute suggests;
                  default 0
  --python MODULES       keep an interpreter, /usr/bin/python3, with these modules imported (separated by commas) and fork
                  parked sandboxes for Python from it, too; only with --park
  --park-reserve BYTES   keep none of them while less memory than that is available; default 268435456

It stays in the foreground, writes errors to standard error, and ends its runs when it ends.

Try it:
  caisson-launcher --socket /run/caisson.sock &
  CAISSON_LAUNCHER=/run/caisson.sock caisson run -- id
)";

Result<int64_t> ReadNumber(const std::string& flag, std::string_view text, int64_t most) {
  int64_t number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < 0 || number > most)
    return Error::Invalid(flag + ": expected a number up to " + std::to_string(most));
  return number;
}

Result<ServerOptions> ReadOptions(int argc, char** argv) {
  ServerOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return Error::Invalid(flag + ": a value is needed, or there is no such flag");
    const char* value = argv[i + 1];
    if (flag == "--socket") {
      options.socket_path = value;
    } else if (flag == "--fd") {
      CAISSON_TRY(const int64_t fd, ReadNumber(flag, value, std::numeric_limits<int>::max()));
      if (fd < 3 || ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC) != 0)
        return Error::Invalid("--fd " + std::string(value) + ": not an open descriptor above 2");
      options.control = caisson::UniqueFd(static_cast<int>(fd));
    } else if (flag == "--allow-uid") {
      CAISSON_TRY(const int64_t uid, ReadNumber(flag, value, std::numeric_limits<uint32_t>::max() - 1));
      options.allowed_uid = static_cast<uid_t>(uid);
    } else if (flag == "--max-runs") {
      CAISSON_TRY(const int64_t runs, ReadNumber(flag, value, 4000));
      options.max_runs = static_cast<size_t>(runs);
    } else if (flag == "--park") {
      CAISSON_TRY(const int64_t most, ReadNumber(flag, value, 1000));
      options.pool.most = static_cast<size_t>(most);
    } else if (flag == "--python") {
      options.python_modules = value;
    } else if (flag == "--park-reserve") {
      CAISSON_TRY(options.pool.reserve_bytes, ReadNumber(flag, value, std::numeric_limits<int64_t>::max()));
    } else {
      return Error::Invalid("there is no flag " + flag);
    }
  }
  if (options.control.valid() == !options.socket_path.empty())
    return Error::Invalid("one of --socket and --fd is needed");
  if (options.python_modules && options.pool.most == 0) return Error::Invalid("--python: only with --park");
  // SECURITY: without root, sandboxes run as the launcher's own user, so another client could reach that user's files.
  if (options.allowed_uid && (::geteuid() != 0 || options.control))
    return Error::Invalid("--allow-uid: only with --socket, and only for a launcher that is root");
  return options;
}

// Descriptors 0 to 2 must be open, so that no socket of ours gets such a number; standard input is /dev/null.
void OpenStandardStreams() {
  int fd = ::open("/dev/null", O_RDWR);
  if (fd > 0) ::dup2(fd, 0);
  while (fd >= 0 && fd < 3) fd = ::dup(fd);
  if (fd >= 3) ::close(fd);
}

// The environment is needed only for the place of the slots' lock file, which all runs of the user share.
void ForgetEnvironment() {
  constexpr const char* kKept = "XDG_RUNTIME_DIR";
  const char* found = ::getenv(kKept);
  const std::string value = found != nullptr ? found : "";
  ::clearenv();
  if (found != nullptr) ::setenv(kKept, value.c_str(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  const std::string first = argc > 1 ? argv[1] : "--help";
  if (first == "--help" || first == "-h") {
    std::fputs(kHelp, stdout);
    return argc > 1 ? 0 : 2;
  }
  if (first == "--version") {
    std::printf("caisson-launcher %s\n", caisson::kVersion);
    return 0;
  }
  Result<ServerOptions> options = ReadOptions(argc, argv);
  if (!options) {
    std::fprintf(stderr, "caisson-launcher: %s (see: caisson-launcher --help)\n", options.error().message.c_str());
    return 2;
  }
  ForgetEnvironment();
  const caisson::Status served = caisson::launcher::Serve(*std::move(options));
  if (served) return 0;
  std::fprintf(stderr, "caisson-launcher: %s\n", served.error().message.c_str());
  return 1;
}
