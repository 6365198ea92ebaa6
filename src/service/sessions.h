// Agent sessions of the service. Each is a process of its own (session/supervisor.h) with a directory below
// STATE_DIR/sessions/tenant-TENANT; this class opens them, finds them again after a restart, judges who may do what,
// and talks to them. The directories are the truth: service.json says whose a session is, everything else is as for the
// sessions of the command line.
//
// Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "audit/audit_record.h"
#include "service/service_context.h"
#include "service/session_monitor.h"
#include "service/session_service.h"
#include "session/client.h"
#include "session/directory.h"

namespace caisson::service {

// In a session's directory: whose it is.
inline constexpr char kOwnerFile[] = "service.json";

class Sessions : public SessionService {
 public:
  // Finds the sessions of an earlier service. `program` is the caisson program that supervises new ones. `context`
  // outlives it.
  static Result<std::unique_ptr<Sessions>> Start(ServiceContext& context, std::string program);

  Result<OpenedSession> Open(const Caller& caller, std::string_view body, const std::string& idempotency_key) override;
  Result<OpenedSession> Fork(const Caller& caller, const std::string& id, const nlohmann::json& body,
                             const std::string& idempotency_key) override;
  Result<nlohmann::json> Show(const Caller& caller, const std::string& id) override;
  Result<std::vector<nlohmann::json>> List(const Caller& caller, const SessionFilter& filter) override;
  Result<nlohmann::json> Stop(const Caller& caller, const std::string& id) override;
  Result<nlohmann::json> Extend(const Caller& caller, const std::string& id, const nlohmann::json& body) override;
  Result<nlohmann::json> Discard(const Caller& caller, const std::string& id) override;
  Status Remove(const Caller& caller, const std::string& id) override;

  Result<int64_t> Exec(const Caller& caller, const std::string& id, const nlohmann::json& body) override;
  Result<nlohmann::json> Command(const Caller& caller, const std::string& id, int64_t number, bool output) override;
  Result<SessionOutput> Output(const Caller& caller, const std::string& id, int64_t number, bool error, int64_t offset,
                               int64_t max_bytes) override;
  Status WriteInput(const Caller& caller, const std::string& id, int64_t number, std::string bytes, bool end) override;
  Status Signal(const Caller& caller, const std::string& id, int64_t number, const nlohmann::json& body) override;

  Result<SessionFile> OpenFile(const Caller& caller, const std::string& id, const std::string& path) override;
  Status PutFile(const Caller& caller, const std::string& id, const std::string& path, int source,
                 std::string_view memory, int64_t bytes, int64_t mode) override;
  Status RemoveFile(const Caller& caller, const std::string& id, const std::string& path) override;
  Result<nlohmann::json> ListFiles(const Caller& caller, const std::string& id, const std::string& path) override;
  Result<nlohmann::json> StatFile(const Caller& caller, const std::string& id, const std::string& path) override;
  Status MakeDirectory(const Caller& caller, const std::string& id, const std::string& path, int64_t mode) override;
  Result<std::unique_ptr<SessionArchive>> OpenArchive(const Caller& caller, const std::string& id,
                                                      const std::string& path) override;
  Result<nlohmann::json> PutArchive(const Caller& caller, const std::string& id, const std::string& path, int source,
                                    std::string_view memory) override;

  Result<nlohmann::json> Diff(const Caller& caller, const std::string& id, bool patch) override;
  Result<nlohmann::json> Apply(const Caller& caller, const std::string& id, const nlohmann::json& body) override;
  Result<Document> Recorded(const Caller& caller, const std::string& id, const char* name) override;

  std::unique_ptr<Subscription> Watch(const std::string& id, std::function<void()> changed) override {
    return context_.changes->Watch(id, std::move(changed));
  }

  // Into the gauge of sessions by state.
  void Count();
  // From now on no session is opened. Where the configuration says so, ends all that live.
  void Drain();

 private:
  struct Entry {
    std::string tenant, path;
    std::string key, body_digest;
    int64_t opened_ms = 0;
    bool is_new = false;    // being opened
    bool ended = false;     // its state will not be a living one again
    int64_t put_bytes = 0;  // sent in since the supervisor last measured the layer: an upper bound
    int64_t put_commands = -1;
  };
  using Lock = std::unique_lock<std::mutex>;

  Sessions(ServiceContext& context, std::string program, std::string root)
      : context_(context), program_(std::move(program)), root_(std::move(root)) {}
  Status FindEarlier();
  std::string RootOf(const std::string& tenant) const { return root_ + "/tenant-" + tenant; }

  // The directory of a session of this caller.
  Result<session::SessionDirectory> Own(const Caller& caller, Right right, const std::string& id);
  Result<session::Record> RecordOf(const session::SessionDirectory& directory);
  nlohmann::json Documented(const session::Record& record, const std::string& tenant) const;
  // A connection to the supervisor; kConflict when it does not live.
  Result<session::Client> ConnectTo(const Caller& caller, Right right, const std::string& id);

  // The session of an earlier request with this key; waits while it is being opened.
  Result<std::optional<OpenedSession>> Repeated(const Caller& caller, const std::string& key, const std::string& digest,
                                                Lock& lock);
  Status CheckRoom(const Caller& caller, Lock& lock);
  // Replaces the project by its canonical path.
  Status JudgeProject(const Caller& caller, std::string& project) const;
  // Makes the directory of a new session and calls `begin`, which starts its supervisor there.
  using Beginning = std::function<Result<session::Record>(const session::SessionDirectory&)>;
  Result<OpenedSession> Create(const Caller& caller, const std::string& key, const std::string& digest,
                               const Beginning& begin);
  Status StopSupervisor(const session::SessionDirectory& directory, const std::string& reason);
  Status EndOf(const session::SessionDirectory& directory, session::Record& record);
  Status RecordInAudit(const Caller& caller, audit::SessionStep::Step step, const session::Record& record);
  Status CheckDisk(const std::string& id, const session::Record& record, session::Client& client, int64_t bytes);

  ServiceContext& context_;
  const std::string program_, root_;
  std::unique_ptr<SessionMonitor> monitor_;
  std::atomic<bool> taking_{true};
  std::mutex mutex_;  // for all below
  std::condition_variable opened_;
  std::map<std::string, Entry> entries_;  // by id
};

}  // namespace caisson::service
