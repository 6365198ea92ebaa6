#include "service/sessions.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "service/documents.h"
#include "service/engine.h"
#include "service/log.h"
#include "service/session_bodies.h"
#include "session/session_events.h"
#include "session/start.h"
#include "verify/digest.h"
#include "verify/json_fields.h"

namespace caisson::service {

using nlohmann::json;
using session::SessionDirectory;

namespace {

constexpr char kOwnerFile[] = "service.json";
constexpr size_t kMaxOwnerBytes = 8192;
constexpr char kTenantPrefix[] = "tenant-";

Error NoSuchSession(const std::string& id) { return Error::NotFound("there is no session " + Quoted(id)); }

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(path.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

// Below a directory in which no other process writes.
Status WriteFiles(int directory, const std::vector<verify::SourceFile>& files) {
  for (const verify::SourceFile& file : files) {
    for (size_t slash = file.name.find('/'); slash != std::string::npos; slash = file.name.find('/', slash + 1)) {
      if (::mkdirat(directory, file.name.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST)
        return Error::System(errno, "make a directory of the workspace");
    }
    const UniqueFd to(
        ::openat(directory, file.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!to) return Error::System(errno, "write a file of the workspace");
    // The mask of the service's process is not the session's concern.
    if (::fchmod(to.get(), 0644) != 0) return Error::System(errno, "chmod");
    CAISSON_TRY_VOID(linux_sys::WriteAll(to.get(), file.bytes));
  }
  return {};
}

bool IsLive(const session::Record& record) { return session::IsLive(record.state); }

}  // namespace

Result<std::unique_ptr<Sessions>> Sessions::Start(ServiceContext& context, std::string program) {
  const std::string root = context.config.state_dir + "/sessions";
  if (::mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) return Error::System(errno, "make " + root);
  std::unique_ptr<Sessions> sessions(new Sessions(context, std::move(program), root));
  CAISSON_TRY(sessions->monitor_, SessionMonitor::Start(context.changes));
  CAISSON_TRY_VOID(sessions->FindEarlier());
  return sessions;
}

Status Sessions::FindEarlier() {
  const Lock lock(mutex_);
  for (const std::string& name : NamesIn(root_)) {
    if (name.rfind(kTenantPrefix, 0) != 0) continue;
    for (const std::string& id : NamesIn(root_ + "/" + name)) {
      const std::string path = root_ + "/" + name + "/" + id;
      const Result<SessionDirectory> directory = SessionDirectory::Open(path);
      if (!directory) continue;
      const Result<std::string> text = directory->ReadText(kOwnerFile, kMaxOwnerBytes);
      const Result<json> owner = text ? verify::ReadJson(*text, {}) : Result<json>(text.error());
      if (!owner || !owner->is_object() || !directory->ReadRecord()) {
        // An earlier service ended before the session was open, so no client knows of it.
        if (!directory->HasSupervisor()) {
          if (const Status removed = directory->Remove(); !removed)
            LogLine("warning", "a session that was never open cannot be removed", {{"cause", removed.error().message}});
        }
        continue;
      }
      Entry entry;
      entry.tenant = name.substr(std::char_traits<char>::length(kTenantPrefix));
      entry.path = path;
      entry.key = owner->value("idempotency_key", "");
      entry.body_digest = owner->value("body_digest", "");
      entry.opened_ms = owner->value("opened_ms", int64_t{0});
      entries_[id] = std::move(entry);
      if (directory->HasSupervisor()) monitor_->Watch(id, path);
    }
  }
  return {};
}

Result<SessionDirectory> Sessions::Own(const Caller& caller, Right right, const std::string& id) {
  CAISSON_TRY_VOID(Require(caller, right));
  std::string path;
  {
    const Lock lock(mutex_);
    const auto found = entries_.find(id);
    // SECURITY: the answer does not reveal whether another tenant has such a session.
    if (found == entries_.end() || (found->second.tenant != caller.tenant && !caller.Has(Right::kAdmin)))
      return NoSuchSession(id);
    if (found->second.is_new) return Error::Conflict("the session " + id + " is being opened");
    path = found->second.path;
  }
  Result<SessionDirectory> directory = SessionDirectory::Open(path);
  if (!directory && directory.error().kind == ErrorKind::kNotFound) return NoSuchSession(id);
  return directory;
}

Result<session::Record> Sessions::RecordOf(const SessionDirectory& directory) {
  Result<session::Record> record = session::ReadSettledRecord(directory);
  if (record && !IsLive(*record)) {
    const Lock lock(mutex_);
    const auto found = entries_.find(directory.id());
    if (found != entries_.end()) found->second.ended = true;
  }
  return record;
}

json Sessions::Documented(const session::Record& record, const std::string& tenant) const {
  json document = session::PublicJson(record);
  // Numbers of this machine that say nothing to a client.
  document.erase("pid");
  document.erase("uid");
  document["tenant"] = tenant;
  return document;
}

Result<session::Client> Sessions::ConnectTo(const Caller& caller, Right right, const std::string& id) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, right, id));
  Result<session::Client> client = session::Client::Connect(directory);
  if (client || client.error().kind != ErrorKind::kConflict) return client;
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  return Error::Conflict("the session " + id + " is " + session::NameOf(record.state) +
                         (record.reason.empty() ? "" : " (" + EscapeForTerminal(record.reason) + ")"));
}

Status Sessions::RecordInAudit(const Caller& caller, audit::SessionStep::Step step, const session::Record& record) {
  audit::Entry entry;
  entry.actor = {caller.subject, verify::Role::kSubmitter};
  entry.tenant = caller.tenant;
  entry.request_id = entry.run_id = record.id;
  audit::SessionStep details;
  details.step = step;
  if (!record.reason.empty()) details.reason = audit::OneLine(record.reason);
  details.policy_digest = record.policy_digest;
  if (step == audit::SessionStep::kApplied || step == audit::SessionStep::kDiscarded)
    details.diff_digest = record.diff_digest;
  entry.details = std::move(details);
  return context_.audit_writer->Record(std::move(entry));
}

// --- Opening

Result<std::optional<OpenedSession>> Sessions::Repeated(const Caller& caller, const std::string& key,
                                                        const std::string& digest, Lock& lock) {
  if (key.empty()) return std::optional<OpenedSession>();
  const auto find = [&] {
    return std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry.second.key == key && entry.second.tenant == caller.tenant;
    });
  };
  auto found = find();
  if (found == entries_.end()) return std::optional<OpenedSession>();
  if (found->second.body_digest != digest)
    return Error::Conflict("Idempotency-Key: was used before for a session with another body");
  // The one that is opening it may fail; then this request is the first.
  opened_.wait(lock, [&] {
    found = find();
    return found == entries_.end() || !found->second.is_new;
  });
  if (found == entries_.end()) return std::optional<OpenedSession>();
  const std::string id = found->first, path = found->second.path;
  lock.unlock();
  CAISSON_TRY(const SessionDirectory directory, SessionDirectory::Open(path));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  return std::optional(OpenedSession{Documented(record, caller.tenant), true});
}

Status Sessions::CheckRoom(const Caller& caller, Lock& lock) {
  (void)lock;
  int64_t kept = 0, own = 0, all = 0;
  for (auto& [id, entry] : entries_) {
    if (entry.tenant == caller.tenant) ++kept;
    if (entry.ended) continue;
    if (!entry.is_new) {
      const Result<SessionDirectory> directory = SessionDirectory::Open(entry.path);
      const Result<session::Record> record =
          directory ? session::ReadSettledRecord(*directory) : Result<session::Record>(directory.error());
      entry.ended = record && !IsLive(*record);
      if (entry.ended) continue;
    }
    ++all;
    if (entry.tenant == caller.tenant) ++own;
  }
  const Config& config = context_.config;
  if (own >= config.sessions_per_tenant)
    return Error::Exhausted("this tenant has " + std::to_string(own) +
                            " living sessions, as many as it may have (sessions_per_tenant); stop one");
  if (all >= config.sessions)
    return Error::Exhausted("the service has as many living sessions as it may have (sessions); try again later");
  if (kept >= config.sessions_kept_per_tenant)
    return Error::Exhausted("this tenant has " + std::to_string(kept) +
                            " sessions, ended ones included, as many as it may have (sessions_kept_per_tenant); "
                            "delete some");
  return {};
}

Status Sessions::JudgeProject(const Caller& caller, std::string& project) const {
  if (project.empty()) return {};
  const std::vector<std::string>& allowed = context_.config.session_projects;
  const auto within = [&](const std::string& directory) { return policy::IsAtOrBelow(project, directory); };
  // SECURITY: by spelling only; whether links lead elsewhere is judged below, on the real path.
  if (!caller.Has(Right::kAdmin) && std::none_of(allowed.begin(), allowed.end(), within)) {
    return Error::Denied(
        "project: this service opens sessions on no such directory; its operator lists them in session_projects. Leave "
        "it out for an empty workspace, or send files");
  }
  char* const real = ::realpath(project.c_str(), nullptr);
  const std::string canonical = real == nullptr ? "" : real;
  ::free(real);
  if (canonical.empty()) return Error::Invalid("project: there is no such directory");
  const auto holds = [&](const std::string& directory) { return policy::IsAtOrBelow(canonical, directory); };
  if (!caller.Has(Right::kAdmin) && std::none_of(allowed.begin(), allowed.end(), holds))
    return Error::Denied("project: leads out of the directories that session_projects lists");
  project = canonical;
  return {};
}

Result<session::Record> Sessions::Begin(const Caller& caller, std::string_view body, const std::string& key,
                                        const SessionDirectory& directory) {
  CAISSON_TRY(const json document, verify::ReadJson(body, {.max_bytes = verify::kMaxRequestBytes}));
  CAISSON_TRY(OpenBody open, ReadOpenBody(document));
  CAISSON_TRY_VOID(JudgeProject(caller, open.request.project));
  open.request.profiles = context_.config.profiles;
  open.request.policy = context_.config.policy;
  const json owner = {{"schema_version", 1},
                      {"tenant", caller.tenant},
                      {"subject", caller.subject},
                      {"idempotency_key", key},
                      {"body_digest", verify::Sha256Hex(body)},
                      {"opened_ms", UnixMillis()}};
  CAISSON_TRY_VOID(directory.WriteText(kOwnerFile, Dump(owner) + "\n"));
  if (!open.files.empty()) {
    if (::mkdirat(directory.fd(), "base", 0755) != 0) return Error::System(errno, "make the workspace");
    CAISSON_TRY(const UniqueFd base, linux_sys::OpenAt(directory.fd(), "base", O_RDONLY | O_DIRECTORY));
    CAISSON_TRY_VOID(WriteFiles(base.get(), open.files));
  }
  return session::StartSupervisor(directory, open.request, program_);
}

Result<OpenedSession> Sessions::Open(const Caller& caller, std::string_view body, const std::string& idempotency_key) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  if (!taking_) return Error::Exhausted("the service is shutting down; try again soon");
  if (context_.config.sessions == 0)
    return Error::Denied("this service opens no sessions; its operator may set the key sessions");
  if (!context_.audit_writer->Usable())
    return Error::Exhausted("the service cannot record a session now; its operator must free space");
  const ByteBudget::Share memory = context_.large_documents.Take(4 * static_cast<int64_t>(body.size()));
  // Faults of the body are found before anything is made.
  CAISSON_TRY(const json document, verify::ReadJson(body, {.max_bytes = verify::kMaxRequestBytes}));
  CAISSON_TRY_VOID(ReadOpenBody(document));
  const std::string digest = verify::Sha256Hex(body);
  Lock lock(mutex_);
  CAISSON_TRY(std::optional<OpenedSession> repeated, Repeated(caller, idempotency_key, digest, lock));
  if (repeated) return *std::move(repeated);
  CAISSON_TRY_VOID(CheckRoom(caller, lock));
  CAISSON_TRY(const SessionDirectory directory, SessionDirectory::Create(RootOf(caller.tenant)));
  Entry& entry = entries_[directory.id()];
  entry.tenant = caller.tenant;
  entry.path = directory.path();
  entry.key = idempotency_key;
  entry.body_digest = digest;
  entry.opened_ms = UnixMillis();
  entry.is_new = true;
  lock.unlock();

  Result<session::Record> record = Begin(caller, body, idempotency_key, directory);
  if (record) {
    if (Status noted = RecordInAudit(caller, audit::SessionStep::kOpened, *record); !noted) {
      (void)StopSupervisor(directory, "it could not be recorded");
      record = std::move(noted).error();
    }
  }
  context_.metrics.Add("caisson_sessions_opened_total", record ? "outcome=\"open\"" : "outcome=\"failed\"");
  if (!record) {
    if (const Status removed = directory.Remove(); !removed)
      LogLine("warning", "a session that could not be opened is not removed", {{"cause", removed.error().message}});
  }
  lock.lock();
  if (record)
    entries_[directory.id()].is_new = false;
  else
    entries_.erase(directory.id());
  lock.unlock();
  opened_.notify_all();
  if (!record) return std::move(record).error();
  monitor_->Watch(directory.id(), directory.path());
  return OpenedSession{Documented(*record, caller.tenant), false};
}

// --- Looking

Result<json> Sessions::Show(const Caller& caller, const std::string& id) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kRead, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  std::string tenant;
  {
    const Lock lock(mutex_);
    tenant = entries_[id].tenant;
  }
  json document = Documented(record, tenant);
  if (!IsLive(record)) return document;
  // Only the supervisor knows what is used now. One that is busy or about to end is no reason to say nothing.
  Result<session::Client> client = session::Client::Connect(directory);
  if (!client) return document;
  if (const Result<json> status = client->Call("status")) document["usage"] = status->value("usage", json::object());
  return document;
}

Result<std::vector<json>> Sessions::List(const Caller& caller, const SessionFilter& filter) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  const std::string tenant = caller.Has(Right::kAdmin) ? filter.tenant : caller.tenant;
  struct Found {
    int64_t opened_ms;
    std::string id, path, tenant;
  };
  std::vector<Found> found;
  std::optional<std::pair<int64_t, std::string>> before;
  {
    const Lock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (!tenant.empty() && entry.tenant != tenant) continue;
      if (id == filter.before_id) before = {entry.opened_ms, id};
      if (!entry.is_new) found.push_back({entry.opened_ms, id, entry.path, entry.tenant});
    }
  }
  if (!filter.before_id.empty() && !before) return Error::Invalid("cursor: there is no such session any more");
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return std::pair(a.opened_ms, a.id) > std::pair(b.opened_ms, b.id); });
  std::vector<json> documents;
  for (const Found& one : found) {
    if (static_cast<int64_t>(documents.size()) >= filter.limit) break;
    if (before && std::pair(one.opened_ms, one.id) >= *before) continue;
    const Result<SessionDirectory> directory = SessionDirectory::Open(one.path);
    if (!directory) continue;
    const Result<session::Record> record = RecordOf(*directory);
    if (!record) continue;
    if (!filter.states.empty() &&
        std::find(filter.states.begin(), filter.states.end(), session::NameOf(record->state)) == filter.states.end())
      continue;
    if (!filter.label_key.empty()) {
      const auto label = record->labels.find(filter.label_key);
      if (label == record->labels.end() || label->second != filter.label_value) continue;
    }
    documents.push_back(Documented(*record, one.tenant));
  }
  return documents;
}

// --- Ending

Status Sessions::StopSupervisor(const SessionDirectory& directory, const std::string& reason) {
  Result<session::Client> client = session::Client::Connect(directory);
  if (!client && client.error().kind == ErrorKind::kConflict) return {};
  if (!client) return std::move(client).error();
  return client->Stop(reason);
}

Status Sessions::EndOf(const SessionDirectory& directory, session::Record& record) {
  CAISSON_TRY_VOID(StopSupervisor(directory, "stop"));
  // A supervisor that was about to end by itself has taken its socket away before it wrote its record.
  const int64_t deadline = MonotonicNanos() + int64_t{30} * 1'000'000'000;
  while (directory.HasSupervisor()) {
    if (MonotonicNanos() > deadline) return Error::System(ETIMEDOUT, "end the session " + directory.id());
    ::usleep(2000);
  }
  CAISSON_TRY(record, RecordOf(directory));
  return {};
}

Result<json> Sessions::Stop(const Caller& caller, const std::string& id) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(session::Record record, RecordOf(directory));
  const bool lived = IsLive(record);
  CAISSON_TRY_VOID(EndOf(directory, record));
  if (lived) CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kStopped, record));
  return Documented(record, caller.tenant);
}

Result<json> Sessions::Extend(const Caller& caller, const std::string& id, const json& body) {
  CAISSON_TRY_VOID(verify::ExpectObject(body, "", {"idle_ms", "ttl_ms"}));
  if (body.empty()) return Error::Invalid("idle_ms: give idle_ms, ttl_ms or both");
  json members = json::object();
  for (const char* name : {"idle_ms", "ttl_ms"}) {
    const json* value = verify::FindMember(body, name);
    if (value == nullptr) continue;
    CAISSON_TRY(members[name], verify::ReadInteger(*value, name, 1000, policy::kMaxTimeoutMs));
  }
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  // SECURITY: not beyond what the profile would have allowed when it was opened.
  CAISSON_TRY(const policy::Profile profile, context_.authority.profiles.Find(record.profile));
  if (members.value("ttl_ms", int64_t{0}) > profile.limits.budget_ms)
    return Error::Denied("ttl_ms: the profile " + record.profile + " allows " +
                         FormatDuration(profile.limits.budget_ms));
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  CAISSON_TRY_VOID(client.Call("extend", members));
  Caller reader = caller;
  reader.rights.insert(Right::kRead);
  return Show(reader, id);
}

Status Sessions::Remove(const Caller& caller, const std::string& id) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  Result<session::Record> record = RecordOf(directory);
  if (record && IsLive(*record)) {
    CAISSON_TRY_VOID(EndOf(directory, *record));
    CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kStopped, *record));
  }
  if (record) CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kRemoved, *record));
  monitor_->Forget(id);
  CAISSON_TRY_VOID(directory.Remove());
  const Lock lock(mutex_);
  entries_.erase(id);
  return {};
}

void Sessions::Count() {
  std::array<int64_t, session::kStateNames.size()> counts{};
  std::vector<std::string> paths;
  {
    const Lock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.is_new)
        ++counts[static_cast<size_t>(session::State::kNew)];
      else
        paths.push_back(entry.path);
    }
  }
  for (const std::string& path : paths) {
    const Result<SessionDirectory> directory = SessionDirectory::Open(path);
    if (!directory) continue;
    if (const Result<session::Record> record = RecordOf(*directory)) ++counts[static_cast<size_t>(record->state)];
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    context_.metrics.Set("caisson_sessions", std::string("state=\"") + session::kStateNames[i] + "\"",
                         static_cast<double>(counts[i]));
  }
}

void Sessions::Drain() {
  taking_ = false;
  if (context_.config.sessions_on_stop != "end") return;
  std::vector<std::string> paths;
  {
    const Lock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (!entry.ended && !entry.is_new) paths.push_back(entry.path);
    }
  }
  for (const std::string& path : paths) {
    const Result<SessionDirectory> directory = SessionDirectory::Open(path);
    if (!directory) continue;
    if (const Status ended = StopSupervisor(*directory, "the service ended"); !ended)
      LogLine("warning", "a session did not end with the service", {{"cause", ended.error().message}});
  }
}

}  // namespace caisson::service
