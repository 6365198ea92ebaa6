// Moves the bytes of one command between the sandbox and the clients that are attached to it. All descriptors are
// non-blocking; a client that does not read slows only the command whose output it was promised, and only until it is
// gone. Thread: the supervisor's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "session/reactor.h"
#include "session/replay_buffer.h"

namespace caisson::session {

// One output stream: its last bytes are kept for clients that attach later.
class OutputPump {
 public:
  struct Callbacks {
    std::function<void(std::string_view)> on_bytes;  // everything, in order, once
    std::function<void()> on_end;                    // no more will come: every process has closed the stream
    std::function<void(uint64_t reader, int64_t missing)> on_gap;  // a slow reader missed bytes
    std::function<void(uint64_t reader)> on_reader_gone;           // it closed its end, or has everything
  };

  OutputPump(Reactor& reactor, UniqueFd source, Callbacks callbacks);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // Passes everything that is still kept, and what follows, to `sink`. `patient`: the command waits for this reader;
  // others that fall behind miss bytes. Returns how many bytes are missing at the beginning.
  int64_t AddReader(uint64_t reader, UniqueFd sink, bool patient);
  void RemoveReader(uint64_t reader);

  // The command has ended. What it wrote is passed on, then the readers' ends are closed. Processes that it left behind
  // may go on writing: that is taken and recorded, but passed on to no client.
  void CommandEnded();

  int64_t total() const { return kept_.end(); }
  const ReplayBuffer& kept() const { return kept_; }
  bool has_source() const { return source_.valid(); }
  bool has_readers() const { return !readers_.empty(); }

 private:
  struct Reader {
    UniqueFd sink;
    uint32_t tag = 0;
    int64_t position = 0;
    bool patient = false;
    bool waits = false;  // for its sink to take more
  };

  void OnReadable();
  bool ReadOnce();  // false: there is nothing to read now
  void Pass(uint64_t id);
  void PassToAll();
  void Regulate();
  void CloseSource();
  int64_t MostLag() const;

  Reactor& reactor_;
  UniqueFd source_;
  uint32_t tag_ = 0;
  bool paused_ = false;
  bool ended_ = false;    // the command, not the stream
  bool drained_ = false;  // all that it wrote has been read
  int64_t read_since_end_ = 0;
  Callbacks callbacks_;
  ReplayBuffer kept_;
  std::map<uint64_t, Reader> readers_;
};

// Standard input: from one client at a time to the command.
class InputPump {
 public:
  // Without a terminal the end of the client's input closes the command's.
  InputPump(Reactor& reactor, UniqueFd target, bool terminal, std::function<void(std::string_view)> on_bytes);
  ~InputPump();
  InputPump(const InputPump&) = delete;
  InputPump& operator=(const InputPump&) = delete;

  // Replaces the client before. An invalid one: there is none for now.
  void SetSource(UniqueFd source);
  // Types the character that ends input on a terminal.
  void TypeEnd();
  void CloseTarget();

 private:
  void OnReadable();
  void Write();
  void Regulate();

  Reactor& reactor_;
  UniqueFd target_, source_;
  uint32_t target_tag_ = 0, source_tag_ = 0;
  const bool terminal_;
  bool source_ended_ = false;
  std::string pending_;
  std::function<void(std::string_view)> on_bytes_;
};

}  // namespace caisson::session
