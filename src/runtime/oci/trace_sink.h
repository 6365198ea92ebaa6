// Receives what gVisor's kernel reports about the system calls of one sandbox: a socket that runsc connects to before
// it starts the sandbox (SOCK_SEQPACKET, one connection). A thread reads it, because gVisor drops packets that no
// process takes; a dropped packet is reported as a violation, never ignored.
//
// Any thread may call; the judge is called under a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/violation.h"
#include "runtime/oci/trace_judge.h"

namespace caisson::runtime::oci {

class TraceSink {
 public:
  // Listens at `path`, which must be in a directory that only root can write.
  static Result<std::unique_ptr<TraceSink>> Listen(const std::string& path, TraceJudge judge);
  ~TraceSink();
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;

  // The file for runsc --pod-init-config: the calls to report, and this socket.
  std::string Configuration() const;

  // Readable when Take has something to return.
  int attention() const { return attention_.get(); }
  // What was seen since the last call, at most a few thousand at a time; empty when nothing is left. Everything that
  // happened before this call is taken into account. An error when the packets cannot be read any further.
  Result<std::vector<Violation>> Take();
  // Since the sandbox started.
  Result<int64_t> CountRefusedForks();
  // The sandbox has connected and the connection stands.
  bool is_connected();

 private:
  TraceSink(std::string path, TraceJudge judge) : path_(std::move(path)), judge_(std::move(judge)) {}
  void Run();
  bool Accept();
  // Reads what has arrived, with the lock held. False when nothing more can come.
  bool Drain();
  void OnPacket(std::string_view packet);

  const std::string path_;
  const TraceJudge judge_;
  UniqueFd listener_, wake_, attention_;
  std::thread thread_;

  std::mutex mutex_;  // for everything below
  UniqueFd connection_;
  bool ended_ = false, stopping_ = false;
  std::string failure_;  // the first; nothing is read after it
  uint32_t dropped_ = 0;
  int64_t refused_forks_ = 0;
  std::vector<Violation> seen_;
};

}  // namespace caisson::runtime::oci
