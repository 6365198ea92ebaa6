// The questions of one session that wait for an approver: destinations that a connection waits for, and what programs
// inside ask for. Equal questions are one. A question that no approver answers in time is denied, and so is every
// question beyond a few in a minute.
//
// An approval is bound to what was asked: its token is a hash of the policy as it was when the question was asked and
// of the question itself, and its id begins with the token. Granting computes the token again.
//
// This file makes no system call; the caller has the clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/network_asker.h"
#include "session/ask_request.h"

namespace caisson::session {

struct Approval {
  std::string id, token;
  AskRequest request;
  std::string protocol;       // of a connection; empty: a program asked
  uint32_t question = 0;      // of the connection, as the runtime numbers them
  std::string host;           // of the connection
  uint16_t port = 0;          // likewise
  std::set<uint64_t> askers;  // programs that wait for the answer
  int64_t number = 0;         // counts the questions of a session
  int64_t expires_ms = 0;     // of the monotonic clock
  std::string requested_at, expires_at;

  bool of_connection() const { return !protocol.empty(); }
};

// A document of schemas/session_approval.schema.json.
nlohmann::ordered_json ToJson(const Approval& approval, const std::string& session_id);
// One line for people; what the workload chose is quoted.
std::string TextOf(const Approval& approval);
std::string TokenOf(const Approval& approval, const std::string& session_id, const std::string& policy_digest);

class Approvals {
 public:
  static constexpr size_t kMostInAMinute = 10;

  Approvals(std::string session_id, int64_t wait_ms) : session_id_(std::move(session_id)), wait_ms_(wait_ms) {}

  // The question that is equal to this one and waits; nullptr when there is none.
  Approval* FindEqual(const AskRequest& request, const std::string& protocol);
  // Whether another question may be asked now.
  bool MayAsk(int64_t now_ms);
  // Adds a question: fills in its number, token, id and times.
  Approval& Add(Approval approval, const std::string& policy_digest, int64_t now_ms, int64_t unix_ms);
  Approval* Find(const std::string& id);
  Approval Take(const std::string& id);  // must be there
  std::vector<Approval> TakeExpired(int64_t now_ms);
  std::vector<Approval> TakeAll();
  // Of the clock of Add; nothing: no question waits.
  std::optional<int64_t> next_expiry_ms() const;
  const std::map<std::string, Approval>& all() const { return waiting_; }
  int64_t wait_ms() const { return wait_ms_; }

 private:
  std::string session_id_;
  int64_t wait_ms_ = 0;
  int64_t last_number_ = 0;
  std::map<std::string, Approval> waiting_;  // by id
  std::deque<int64_t> asked_at_;             // in the last minute
};

}  // namespace caisson::session
