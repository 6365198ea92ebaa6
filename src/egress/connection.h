// One connection of the sandbox, from its first byte to its last. Relay owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/client_hello.h"
#include "egress/relay.h"
#include "egress/terminated.h"

namespace caisson::egress {

class Connection : public Waiter {
 public:
  Connection(Relay& relay, uint32_t id, UniqueFd client, std::optional<Destination> destination);

  void Begin();
  // The answer to the question whether the destination may be reached.
  void TakeVerdict(bool allowed);
  // Connects inside with a socket that the owner made there; an invalid one means that there is none.
  void TakeInsideSocket(UniqueFd socket);
  void Close(const char* reason);

  void Ready(unsigned tag, uint32_t events) override;
  void Expired() override;
  void Continue() override;

 private:
  enum class State : uint8_t {
    kProxy,       // the client must name its destination
    kFirstBytes,  // the client must show that it wants the destination's name
    kAsking,      // a person is asked whether the destination may be reached
    kDialling,
    kOpen,
    kRefusing,   // the server finishes its answers, then the client gets the refusal
    kLingering,  // the client may still read the last answer
    kClosed,
  };
  enum Side : unsigned { kClient = 0, kServer = 1 };

  struct End {
    UniqueFd fd;
    Source source;
    bool readable = false, writable = false;
    bool hung_up = false;  // sends nothing beyond what is already buffered
    bool at_end = false;   // the last byte of this side was relayed
  };

  // The bytes that the client has sent and that are still in the kernel. Empty when there are none; sets `ended` when
  // no more will come.
  std::string_view PeekClient(bool& ended);
  void Drop(End& end, size_t bytes);
  void Say(std::string_view bytes);

  static int64_t After(uint32_t ms);

  void StepProxy();
  void StepFirstBytes();
  void JudgeHello(std::string_view bytes);
  void RefuseHello(ClientHello::State state);
  void JudgeRequest(std::string_view bytes);
  void Dial();
  void ConnectNext(int last_error);
  bool Connect(const network::Address& address);
  void Connected();
  std::unique_ptr<HttpGate> MakeGate() const;
  void Pump();
  void PumpTerminated();
  // Returns false when it closed the connection.
  bool PumpOne(Side from, size_t& budget);
  size_t JudgeBytes(std::string_view bytes);
  size_t JudgeSecondHello(std::string_view bytes);
  bool ReadAnswer(std::string_view bytes);
  void FinishRefusing();
  void StepLingering();

  // Denies the client: records the event, sends `last_words` and ends the connection.
  void Refuse(bool allowed, std::string_view reason, std::string_view last_words);
  void Linger(std::string_view last_words);
  // Ends both sides in the same way: a reset on one side becomes a reset on the other.
  void Reset(const char* reason);
  void CutAtByteLimit();
  control::Event MakeEvent(uint8_t what, bool allowed, std::string_view reason) const;

  Relay& relay_;
  const uint32_t id_;
  State state_ = State::kFirstBytes;
  std::optional<Destination> destination_;
  End ends_[2];
  ProxyRequest proxy_;
  bool by_proxy_ = false;
  bool approved_ = false;
  std::unique_ptr<HttpGate> gate_;
  std::unique_ptr<SecondHello> second_hello_;  // until the server has answered a ClientHello
  std::unique_ptr<Terminated> terminated_;     // only where a credential is bound to the destination
  size_t judged_ = 0;                          // number of leading client bytes that may pass
  HttpGate::Verdict refusal_;                  // refusal of a later request, sent when the earlier ones are answered
  std::vector<network::Address> addresses_;
  size_t next_address_ = 0;
  std::string address_;  // the address being dialled
  std::string fault_address_, fault_rule_;
  int64_t began_;
  bool reached_ = false;
  uint64_t bytes_in_ = 0, bytes_out_ = 0;
  size_t lingered_ = 0;
};

}  // namespace caisson::egress
