// The interface of agent sessions in the service: a part of service.h in a file of its own. The same rules hold: rights
// are judged here, a session of another tenant is kNotFound, and functions may be called from any thread and block.
//
// The documents are those that schemas/openapi.yaml describes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "service/service.h"

namespace caisson::service {

struct OpenedSession {
  nlohmann::json document;
  bool existed = false;  // the idempotency key was used before, with the same body
};

struct SessionFilter {
  std::string tenant;  // empty: the caller's own, or for an admin all
  std::string before_id;
  std::vector<std::string> states;  // none: all
  std::string label_key, label_value;
  int64_t limit = 100;
};

// A file inside, opened with the rights of the inside user.
struct SessionFile {
  UniqueFd file;
  int64_t bytes = 0;
  int64_t mode = 0;
};

// A piece of a command's output: the bytes of one stream from `offset` on.
struct SessionOutput {
  std::string bytes;
  int64_t offset = 0;  // of the first byte; behind the one asked for where bytes are no longer kept
  bool more = false;   // there is more already
  bool ended = false;  // the command ended, and nothing follows
};

class SessionArchive {
 public:
  virtual ~SessionArchive() = default;
  // The next bytes; none at the end.
  virtual Result<std::string> Read() = 0;
};

class SessionService {
 public:
  virtual ~SessionService() = default;

  virtual Result<OpenedSession> Open(const Caller& caller, std::string_view body,
                                     const std::string& idempotency_key) = 0;
  virtual Result<nlohmann::json> Show(const Caller& caller, const std::string& id) = 0;
  // Opens another session that begins with the changes of this one.
  virtual Result<OpenedSession> Fork(const Caller& caller, const std::string& id, const nlohmann::json& body,
                                     const std::string& idempotency_key) = 0;
  // The latest first.
  virtual Result<std::vector<nlohmann::json>> List(const Caller& caller, const SessionFilter& filter) = 0;
  // Ends it; the changes, the transcript and the events stay until Remove.
  virtual Result<nlohmann::json> Stop(const Caller& caller, const std::string& id) = 0;
  virtual Result<nlohmann::json> Extend(const Caller& caller, const std::string& id, const nlohmann::json& body) = 0;
  // Ends it where it lives, and removes what it changed.
  virtual Result<nlohmann::json> Discard(const Caller& caller, const std::string& id) = 0;
  virtual Status Remove(const Caller& caller, const std::string& id) = 0;

  // Starts a command; returns its number.
  virtual Result<int64_t> Exec(const Caller& caller, const std::string& id, const nlohmann::json& body) = 0;
  // How it is or ended. `output`: with its output, once it has ended.
  virtual Result<nlohmann::json> Command(const Caller& caller, const std::string& id, int64_t number, bool output) = 0;
  // `error`: the standard error.
  virtual Result<SessionOutput> Output(const Caller& caller, const std::string& id, int64_t number, bool error,
                                       int64_t offset, int64_t max_bytes) = 0;
  // kExhausted while the command does not read what it was sent before.
  virtual Status WriteInput(const Caller& caller, const std::string& id, int64_t number, std::string bytes,
                            bool end) = 0;
  virtual Status Signal(const Caller& caller, const std::string& id, int64_t number, const nlohmann::json& body) = 0;

  // Files by their absolute path inside.
  virtual Result<SessionFile> OpenFile(const Caller& caller, const std::string& id, const std::string& path) = 0;
  // `source` is read from its beginning; `mode` -1: as it is, or 0644 for a new one. Makes the directories above.
  virtual Status PutFile(const Caller& caller, const std::string& id, const std::string& path, int source,
                         std::string_view memory, int64_t bytes, int64_t mode) = 0;
  virtual Status RemoveFile(const Caller& caller, const std::string& id, const std::string& path) = 0;
  virtual Result<nlohmann::json> ListFiles(const Caller& caller, const std::string& id, const std::string& path) = 0;
  // Does not follow a link in the last place.
  virtual Result<nlohmann::json> StatFile(const Caller& caller, const std::string& id, const std::string& path) = 0;
  // With those above it; one that exists is no error.
  virtual Status MakeDirectory(const Caller& caller, const std::string& id, const std::string& path, int64_t mode) = 0;
  // A tar file of what is at `path`, made while it is read.
  virtual Result<std::unique_ptr<SessionArchive>> OpenArchive(const Caller& caller, const std::string& id,
                                                              const std::string& path) = 0;
  // Unpacks a tar file, bare or compressed, below the directory `path`. It is in `memory`, or in the file `source`.
  virtual Result<nlohmann::json> PutArchive(const Caller& caller, const std::string& id, const std::string& path,
                                            int source, std::string_view memory) = 0;

  virtual Result<nlohmann::json> Diff(const Caller& caller, const std::string& id, bool patch) = 0;
  virtual Result<nlohmann::json> Apply(const Caller& caller, const std::string& id, const nlohmann::json& body) = 0;
  // "transcript.cast" or "events.jsonl", as far as it was written.
  virtual Result<Document> Recorded(const Caller& caller, const std::string& id, const char* name) = 0;

  // As Service::Watch: something of the session changed.
  virtual std::unique_ptr<Subscription> Watch(const std::string& id, std::function<void()> changed) = 0;
};

}  // namespace caisson::service
