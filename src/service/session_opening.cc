// Sessions of the service: opening them, and forking them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "service/documents.h"
#include "service/engine.h"
#include "service/log.h"
#include "service/session_bodies.h"
#include "service/sessions.h"
#include "session/held_changes.h"
#include "session/session_events.h"
#include "session/start.h"
#include "verify/digest.h"
#include "verify/json_fields.h"

namespace caisson::service {

using nlohmann::json;
using session::SessionDirectory;

namespace {

constexpr size_t kMaxRequestFile = size_t{8} << 20;

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

Result<OpenedSession> Sessions::Create(const Caller& caller, const std::string& key, const std::string& digest,
                                       const Beginning& begin) {
  if (!taking_) return Error::Exhausted("the service is shutting down; try again soon");
  if (context_.config.sessions == 0)
    return Error::Denied("this service opens no sessions; its operator may set the key sessions");
  if (!context_.audit_writer->Usable())
    return Error::Exhausted("the service cannot record a session now; its operator must free space");
  Lock lock(mutex_);
  CAISSON_TRY(std::optional<OpenedSession> repeated, Repeated(caller, key, digest, lock));
  if (repeated) return *std::move(repeated);
  CAISSON_TRY_VOID(CheckRoom(caller, lock));
  CAISSON_TRY(const SessionDirectory directory, SessionDirectory::Create(RootOf(caller.tenant)));
  Entry& entry = entries_[directory.id()];
  entry.tenant = caller.tenant;
  entry.path = directory.path();
  entry.key = key;
  entry.body_digest = digest;
  entry.opened_ms = UnixMillis();
  entry.is_new = true;
  const json owner = {{"schema_version", 1},    {"tenant", caller.tenant}, {"subject", caller.subject},
                      {"idempotency_key", key}, {"body_digest", digest},   {"opened_ms", entry.opened_ms}};
  lock.unlock();

  Result<session::Record> record = [&]() -> Result<session::Record> {
    CAISSON_TRY_VOID(directory.WriteText(kOwnerFile, Dump(owner) + "\n"));
    return begin(directory);
  }();
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

Result<OpenedSession> Sessions::Open(const Caller& caller, std::string_view body, const std::string& idempotency_key) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  const ByteBudget::Share memory = context_.large_documents.Take(4 * static_cast<int64_t>(body.size()));
  // Faults of the body are found before anything is made.
  CAISSON_TRY(const json document, verify::ReadJson(body, {.max_bytes = verify::kMaxRequestBytes}));
  CAISSON_TRY(OpenBody open, ReadOpenBody(document));
  const auto begin = [&](const SessionDirectory& directory) -> Result<session::Record> {
    CAISSON_TRY_VOID(JudgeProject(caller, open.request.project));
    open.request.profiles = context_.config.profiles;
    open.request.policy = context_.config.policy;
    if (!open.files.empty()) {
      if (::mkdirat(directory.fd(), "base", 0755) != 0) return Error::System(errno, "make the workspace");
      CAISSON_TRY(const UniqueFd base, linux_sys::OpenAt(directory.fd(), "base", O_RDONLY | O_DIRECTORY));
      CAISSON_TRY_VOID(WriteFiles(base.get(), open.files));
    }
    return session::StartSupervisor(directory, open.request, program_);
  };
  return Create(caller, idempotency_key, verify::Sha256Hex(body), begin);
}

Result<OpenedSession> Sessions::Fork(const Caller& caller, const std::string& id, const json& body,
                                     const std::string& idempotency_key) {
  CAISSON_TRY(const ForkBody fork, ReadForkBody(body));
  CAISSON_TRY(const SessionDirectory original, Own(caller, Right::kSubmit, id));
  const auto begin = [&](const SessionDirectory& directory) -> Result<session::Record> {
    CAISSON_TRY(const session::Record record, RecordOf(original));
    CAISSON_TRY(const std::string text, original.ReadText("request.json", kMaxRequestFile));
    CAISSON_TRY(session::OpenRequest request, session::ReadOpenRequest(text));
    // Judged by the rules of today, for the caller of today.
    CAISSON_TRY_VOID(JudgeProject(caller, request.project));
    request.profiles = context_.config.profiles;
    request.policy = context_.config.policy;
    request.name = fork.name;
    request.forked_from = id;
    if (record.stamp.is_string()) request.stamp = record.stamp.get<std::string>();
    if (fork.labels) request.labels = *fork.labels;
    request.idle_ms = fork.idle_ms.value_or(request.idle_ms);
    request.ttl_ms = fork.ttl_ms.value_or(request.ttl_ms);
    {
      CAISSON_TRY(session::HeldChanges changes, session::HeldChanges::Hold(original, record));
      CAISSON_TRY_VOID(changes.CopyTo(directory, record));
      CAISSON_TRY_VOID(changes.Note(original, session::SessionEventType::kSessionForked,
                                    {{"fork", directory.id()}, {"actor", caller.subject}}));
    }
    return session::StartSupervisor(directory, request, program_);
  };
  // The key of a fork does not repeat the opening of a session, nor the fork of another one.
  return Create(caller, idempotency_key, verify::Sha256Hex("fork " + id + "\n" + Dump(body)), begin);
}

}  // namespace caisson::service
