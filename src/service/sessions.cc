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
#include "service/engine.h"
#include "service/log.h"
#include "session/held_changes.h"
#include "verify/json_fields.h"

namespace caisson::service {

using nlohmann::json;
using session::SessionDirectory;

namespace {

constexpr size_t kMaxOwnerBytes = 8192;
constexpr int64_t kPatienceMs = 60'000;
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

// An apply that ended with an earlier service leaves a project half changed until it is undone or finished.
void FinishApply(const SessionDirectory& directory, const session::Record& record) {
  if (record.workspace.empty() || ::faccessat(directory.fd(), "journal/apply.journal", F_OK, 0) != 0) return;
  const Result<session::HeldChanges> changes = session::HeldChanges::Hold(directory, record);
  if (!changes)
    LogLine("warning", "an interrupted apply is not finished",
            {{"session", record.id}, {"cause", changes.error().message}});
  else if (changes->recovered().outcome != session::RecoverReport::Outcome::kNothing)
    LogLine("info", "an interrupted apply is undone or finished", {{"session", record.id}});
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
      const bool owned = owner && owner->is_object();
      const bool lives = directory->HasSupervisor();
      const Result<session::Record> record = directory->ReadRecord();
      if (!lives && (!owned || !record || record->state == session::State::kNew)) {
        // An earlier service ended before the session was open, so no client knows of it.
        if (const Status removed = directory->Remove(); !removed)
          LogLine("warning", "a session that was never open cannot be removed", {{"cause", removed.error().message}});
        continue;
      }
      if (!owned) continue;
      Entry entry;
      entry.tenant = name.substr(std::char_traits<char>::length(kTenantPrefix));
      entry.path = path;
      entry.key = owner->value("idempotency_key", "");
      entry.body_digest = owner->value("body_digest", "");
      entry.opened_ms = owner->value("opened_ms", int64_t{0});
      entries_[id] = std::move(entry);
      if (lives) monitor_->Watch(id, path);
      if (record) FinishApply(*directory, *record);
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
  // A supervisor that hangs must not keep the service's threads.
  if (client) client->set_patience_ms(kPatienceMs);
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
  if (step == audit::SessionStep::kApplyBegun || step == audit::SessionStep::kApplied ||
      step == audit::SessionStep::kDiscarded)
    details.diff_digest = record.diff_digest;
  entry.details = std::move(details);
  return context_.audit_writer->Record(std::move(entry));
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
  client->set_patience_ms(kPatienceMs);
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
