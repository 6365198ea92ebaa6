// The supervisor's end of caisson-egress, the process that relays the connections of one sandbox to the destinations
// that its rules allow (docs/design/egress.md). The link starts the process, gives it the sandbox's sockets, binds
// listeners for it and takes its record. The process ends when this object is destroyed, and also however the
// supervisor ends.
//
// SECURITY: the process reads data from the workload and from the internet, so it may be compromised. It can ask only
// for a listener at an address of the pool, or at an address that a rule names; everything it reports is data for the
// record.
//
// Runs: supervisor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "egress/control/messages.h"
#include "sandbox/inside_sockets.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

class EgressLink {
 public:
  using OnEvent = std::function<void(const egress::control::Event& event)>;

  // Starts the process and sends it the rules. It then waits for its sockets while the caller goes on.
  static Result<std::unique_ptr<EgressLink>> Start(Network& network);
  ~EgressLink();
  EgressLink(const EgressLink&) = delete;
  EgressLink& operator=(const EgressLink&) = delete;

  // The certificate, as PEM text, of the authority that the process made for this sandbox's credentials: programs
  // inside must trust it. Only with credentials.
  Result<std::string> ReadAuthority();

  // Gives it the sandbox's sockets and waits until it has confined itself.
  Status Connect(InsideSockets sockets, UniqueFd dns, UniqueFd dns_listener);
  // The same for a process that only leads connections inside: the sandbox gets no addresses and no names from it.
  Status ConnectForForwards(InsideSockets sockets);

  // Leads connections at `listener`, a listening TCP socket outside whose port is `port`, to a port of the sandbox's
  // loopback. May be called at any time between two commands or during one; an earlier forward of that port ends.
  Status Forward(UniqueFd listener, uint16_t port, uint16_t inside_port);
  Status EndForward(uint16_t port);

  // Allows a destination besides those that the process began with, from now on.
  Status Allow(const NetworkRule& rule);

  // Called for each question that a person must answer; without it they are denied at once.
  using OnAsk = std::function<void(const egress::control::Ask& ask)>;
  void set_on_ask(OnAsk on_ask) { on_ask_ = std::move(on_ask); }
  Status Answer(uint32_t id, egress::control::Verdict::Scope scope);

  // Readable when there is something to do.
  int fd() const { return control_.get(); }
  // Handles what is ready, without waiting. After an error the process can no longer be used.
  Status Serve(const OnEvent& on_event);
  // Must be called when all processes of a command are gone: waits, within bounds, until the data they sent is
  // delivered and every attempt they made is reported. Returns the number of attempts that are not reported one by one.
  Result<int64_t> Settle(const OnEvent& on_event);

  // Whether a listener is bound to this address and port.
  bool Serves(uint32_t address, uint16_t port) const { return listeners_.count({address, port}) != 0; }
  // The name that an address of the pool stands for; empty when it is unknown.
  std::string NameAt(uint32_t address) const;

  // DNS questions that the kernel dropped since the sandbox was made; -1 when the kernel does not report it.
  int64_t dropped_questions() const;

 private:
  explicit EgressLink(Network& network) : network_(network) {}
  Status Spawn();
  Status SendRules();
  Status Begin();
  Status SendRule(const NetworkRule& rule);
  Status SendCredentials();
  template <typename Message>
  Status Send(const Message& message, const std::vector<int>& fds = {});
  // Waits for the next frame until `deadline_ns`; returns an empty frame when none arrives.
  Result<egress::control::Frame> Receive(int64_t deadline_ns);
  Status Take(const egress::control::Frame& frame, const OnEvent& on_event);
  Status TakeBind(const egress::control::Bind& bind);
  Status TakeNeed(const egress::control::Need& need);
  int Listen(const egress::control::Bind& bind, UniqueFd& listener);
  // Binds a socket of the sandbox; returns 0 or an errno.
  int ListenAt(uint32_t address, uint16_t port, UniqueFd& listener);
  Status ShowHostPorts();
  bool MayListenAt(uint32_t address) const;

  Network& network_;  // of the Spec, which lives as long as the sandbox
  pid_t pid_ = -1;
  UniqueFd control_;
  UniqueFd dns_;                  // only to ask how many questions the kernel dropped
  std::vector<UniqueFd> silent_;  // ends of sockets that stand for DNS where there is none
  InsideSockets sockets_;
  bool has_forwards_ = false;
  OnAsk on_ask_;
  std::set<std::pair<uint32_t, uint16_t>> listeners_;
  std::map<uint32_t, std::string> names_;
};

}  // namespace caisson::sandbox
