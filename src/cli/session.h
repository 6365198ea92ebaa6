// What the `caisson session` commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/runtime.h"
#include "session/client.h"
#include "session/directory.h"

namespace caisson::cli {

using Arguments = std::vector<std::string>;

// One file for a few commands each; `session.cc` chooses.
int SessionOpen(Arguments arguments);
int SessionExec(Arguments arguments);
int SessionAttach(Arguments arguments);
int SessionCopy(Arguments arguments);
int SessionDiff(Arguments arguments);
int SessionApply(Arguments arguments);
int SessionDiscard(Arguments arguments);
int SessionFork(Arguments arguments);
int SessionList(Arguments arguments);
int SessionShow(Arguments arguments);
int SessionLog(Arguments arguments);
int SessionReplay(Arguments arguments);
int SessionStop(Arguments arguments);
int SessionRemove(Arguments arguments);
int SessionApprovals(Arguments arguments);
int SessionApprove(Arguments arguments);
int SessionDeny(Arguments arguments);
int SessionForward(Arguments arguments);
int SessionCommits(Arguments arguments);

// A parser with the help flag and, where `json` is given, --json.
void Prepare(CLI::App& app, bool* json = nullptr);
// Takes what follows "--" away from `arguments`.
std::optional<Arguments> TakeCommand(Arguments& arguments);
Result<session::StoredSession> FindSession(const std::string& text);
// Complains; the exit code for the kind of error: 5 for a conflict, 125 otherwise.
int Fail(const Error& error);
void Print(const nlohmann::ordered_json& document);
Result<std::vector<std::pair<std::string, std::string>>> ReadEnvironment(const std::vector<std::string>& variables);

// session_streams.cc: follows a command until it ends or the user detaches.
struct FollowOptions {
  bool terminal = false;    // ours is in raw mode meanwhile, and is asked for its size
  bool filtered = false;    // output is made harmless for a terminal
  std::string detach_keys;  // bytes; empty: none
  std::string session;      // how messages call the session
};
struct Followed {
  bool detached = false;
  std::optional<nlohmann::json> end;  // the event `ended`
};
Result<Followed> Follow(session::Client& client, session::RemoteCommand command, const FollowOptions& options);
// "ctrl-p,ctrl-q" as bytes.
Result<std::string> ParseKeys(const std::string& text);
// Rows and columns of our terminal, if there is one.
std::pair<uint16_t, uint16_t> WindowSize();
// One line on standard error about an end that was not the command's own.
void ExplainEnd(const nlohmann::json& end, const std::string& program);

// session_commits.cc: commits that were made inside, now in refs of the project's repository.
struct FetchedCommits {
  bool is_new = false;
  nlohmann::ordered_json refs;  // [{commit, ref}]
};
Result<FetchedCommits> FetchCommits(const session::StoredSession& session);
// Whether the session lives, changed its repository, and the project has one of the caller's own.
bool MayHaveCommits(const session::StoredSession& session);

// session_changes.cc, also for the questions at the end of `open`.
int ShowChanges(const session::StoredSession& session, bool stat, bool json);
int ApplyChanges(const session::StoredSession& session, const std::vector<std::string>& only, bool json);
int DiscardChanges(const session::StoredSession& session, bool json);

}  // namespace caisson::cli
