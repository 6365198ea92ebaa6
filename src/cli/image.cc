// caisson image: root file systems by name, which sandboxes show instead of the host's programs.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/images.h"
#include "image/export.h"
#include "image/import.h"
#include "image/store.h"
#include "image/venv.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

constexpr char kHelp[] = R"(caisson image: root file systems that sandboxes show instead of the host's programs.

  caisson image import NAME SOURCE   bring one in; SOURCE is a directory, a tar file (.gz, .xz, .zst), an OCI or Docker
                                     archive or layout, or with skopeo docker://… or docker-daemon:…
  caisson image list                 names, digests and sizes
  caisson image show NAME            everything that is known of it
  caisson image rm NAME…             remove names
  caisson image gc                   remove images that have no name and that no run uses
  caisson image export NAME FILE     write it as an archive for OCI tools, Docker and caisson image import

Use one with --image NAME of run and verify, or `image` of a request. Images are kept in $CAISSON_IMAGES, for root in
/var/lib/caisson/images, else below ~/.local/share. Each command explains itself: caisson image COMMAND --help.

Exit codes: 0 done, 1 there is no such image, 2 usage or a source that cannot be imported, 4 infrastructure error.
)";

int Fail(const Error& error) {
  Complain(error.message);
  if (error.kind == ErrorKind::kNotFound) return kExitFailed;
  return error.kind == ErrorKind::kInvalid ? kExitUsage : kExitInfrastructure;
}

json Describe(const std::string& name, const image::Record& record) {
  json env = json::object();
  for (const auto& [key, value] : record.config.env) env[key] = value;
  json entries = json::array();
  for (const policy::RootEntry& entry : record.entries) entries.push_back(ReplaceInvalidUtf8("/" + entry.name));
  return {{"name", name.empty() ? json(nullptr) : json(name)},
          {"digest", record.digest},
          {"files", record.files},
          {"bytes", record.bytes},
          {"source", record.source},
          {"imported", record.imported},
          {"shown", std::move(entries)},
          {"env", std::move(env)},
          {"working_directory", record.config.working_directory},
          {"entrypoint", record.config.entrypoint},
          {"command", record.config.command},
          {"user", record.config.user},
          {"left_out", record.left_out},
          {"left_out_count", record.left_out_count}};
}

void Print(const json& document) {
  std::puts(document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
}

// What the image asks for and does not get.
void PrintRemarks(const image::Record& record) {
  if (!record.config.user.empty() && record.config.user != "1000" && record.config.user != "user")
    std::fprintf(stderr, "caisson: USER %s is not honoured: programs run as user 1000, whatever image they come from\n",
                 EscapeForTerminal(record.config.user).c_str());
  if (record.left_out_count > 0) {
    std::fprintf(stderr, "caisson: left out %llu entries:\n", static_cast<unsigned long long>(record.left_out_count));
    for (const std::string& line : record.left_out) std::fprintf(stderr, "  %s\n", EscapeForTerminal(line).c_str());
    if (record.left_out_count > record.left_out.size()) std::fputs("  …\n", stderr);
  }
}

Result<image::Store> OpenStore() {
  CAISSON_TRY(std::string directory, image::Store::DefaultDirectory());
  return image::Store(std::move(directory));
}

struct Call {
  std::string name, operand, max_size, max_files;
  std::vector<std::string> names;
  bool json = false;
};

int Import(const image::Store& store, const Call& call) {
  intake::Limits limits = image::kDefaultLimits;
  for (const auto& [flag, text, parse, values] :
       {std::tuple{"--max-size", &call.max_size, &ParseSize, std::vector{&limits.bytes, &limits.file_bytes}},
        std::tuple{"--max-files", &call.max_files, &ParseCount, std::vector{&limits.entries}}}) {
    if (text->empty()) continue;
    Result<int64_t> value = parse(*text);
    if (value && *value < 1) value = Error::Invalid("must be at least 1");
    if (!value) return Fail(std::move(value).error().In(flag));
    for (uint64_t* limit : values) *limit = static_cast<uint64_t>(*value);
  }
  const Result<image::Record> record = image::Import(store, call.name, call.operand, limits);
  if (!record) return Fail(record.error());
  PrintRemarks(*record);
  if (call.json) {
    Print(Describe(call.name, *record));
  } else {
    std::printf("%s %s: %s, %llu entries\n", call.name.c_str(), record->digest.c_str(),
                FormatSize(static_cast<int64_t>(record->bytes)).c_str(),
                static_cast<unsigned long long>(record->files));
  }
  return kExitDone;
}

int List(const image::Store& store, const Call& call) {
  const Result<std::vector<image::NamedImage>> images = store.List();
  if (!images) return Fail(images.error());
  if (call.json) {
    json list = json::array();
    for (const image::NamedImage& one : *images) list.push_back(Describe(one.name, one.record));
    Print(list);
    return kExitDone;
  }
  for (const image::NamedImage& one : *images) {
    std::printf("%-24s  %s  %10s  %8llu entries  %s\n", one.name.empty() ? "(no name)" : one.name.c_str(),
                one.record.digest.substr(0, 19).c_str(), FormatSize(static_cast<int64_t>(one.record.bytes)).c_str(),
                static_cast<unsigned long long>(one.record.files), one.record.imported.c_str());
  }
  return kExitDone;
}

int Show(const image::Store& store, const Call& call) {
  const Result<image::Record> record = store.Find(call.name);
  if (!record) return Fail(record.error());
  Print(Describe(call.name.find("sha256:") == 0 ? "" : call.name, *record));
  return kExitDone;
}

int Remove(const image::Store& store, const Call& call) {
  for (const std::string& name : call.names) {
    if (const Status removed = store.Remove(name); !removed) return Fail(removed.error());
  }
  return kExitDone;
}

int CollectGarbage(const image::Store& store, const Call& call) {
  const Result<image::Store::Collected> collected = store.CollectGarbage();
  if (!collected) return Fail(collected.error());
  if (call.json) {
    Print({{"removed", collected->trees}, {"bytes", collected->bytes}, {"in_use", collected->in_use}});
  } else {
    std::printf("removed %llu images, %s", static_cast<unsigned long long>(collected->trees),
                FormatSize(static_cast<int64_t>(collected->bytes)).c_str());
    if (collected->in_use > 0)
      std::printf("; %llu without a name are in use", static_cast<unsigned long long>(collected->in_use));
    std::puts("");
  }
  return kExitDone;
}

int Export(const image::Store& store, const Call& call) {
  const Status written = image::Export(store, call.name, call.operand);
  return written ? kExitDone : Fail(written.error());
}

}  // namespace

int ImageCommand(std::vector<std::string> arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command.empty() || command == "--help" || command == "-h" || command == "help") {
    std::fputs(kHelp, stdout);
    return command.empty() ? kExitUsage : kExitDone;
  }
  arguments.erase(arguments.begin());
  Call call;
  CLI::App app("caisson image " + command, "image " + command);
  app.set_help_flag("--help,-h", "Show this help");
  int (*run)(const image::Store&, const Call&) = nullptr;
  if (command == "import") {
    run = Import;
    app.add_option("NAME", call.name, "What to call it, such as python or python:3.12")->required();
    app.add_option("SOURCE", call.operand, "A directory, a tar file, an archive or layout of an image, docker://…")
        ->required();
    app.add_option("--max-size", call.max_size, "Most bytes it may unpack to; default 16G");
    app.add_option("--max-files", call.max_files, "Most entries it may have; default 250000");
    app.add_flag("--json", call.json, "Print what was imported as JSON");
  } else if (command == "list") {
    run = List;
    app.add_flag("--json", call.json, "Print a JSON array");
  } else if (command == "show") {
    run = Show;
    app.add_option("NAME", call.name, "A name, or sha256:…")->required();
    app.add_flag("--json", call.json, "Accepted for habit: the output is always JSON");
  } else if (command == "rm") {
    run = Remove;
    app.add_option("NAME", call.names, "Names to remove; caisson image gc then frees what no name refers to")
        ->required();
  } else if (command == "gc") {
    run = CollectGarbage;
    app.add_flag("--json", call.json, "Print what was removed as JSON");
  } else if (command == "export") {
    run = Export;
    app.add_option("NAME", call.name, "A name, or sha256:…")->required();
    app.add_option("FILE", call.operand, "The archive to write; must not exist")->required();
  } else {
    Complain("there is no command \"image " + command + "\" (see: caisson image --help)");
    return kExitUsage;
  }
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  const Result<image::Store> store = OpenStore();
  return store ? run(*store, call) : Fail(store.error());
}

Result<policy::PlannedImage> OpenImage(const std::string& reference) {
  constexpr std::string_view kVenv = "venv:";
  if (reference.compare(0, kVenv.size(), kVenv) == 0)
    return image::OpenVirtualEnvironment(reference.substr(kVenv.size()));
  CAISSON_TRY(const image::Store own, OpenStore());
  Result<policy::PlannedImage> found = own.Open(reference);
  if (found || found.error().kind != ErrorKind::kNotFound || own.directory() == image::Store::kSystemDirectory)
    return found;
  // The machine's images are for all its users.
  Result<policy::PlannedImage> shared = image::Store(image::Store::kSystemDirectory).Open(reference);
  return shared ? std::move(shared) : std::move(found);
}

}  // namespace caisson::cli
