// What sessions changed: shown, brought into the project where the operator allows that, or dropped.
#include "service/engine.h"
#include "service/sessions.h"
#include "session/held_changes.h"
#include "verify/json_fields.h"

namespace caisson::service {

using nlohmann::json;
using session::HeldChanges;
using session::SessionDirectory;
using session::SessionEventType;

namespace {

constexpr size_t kMostPaths = 10'000;

struct ApplyBody {
  session::ApplyOptions options;
  std::string diff_digest;  // of the changes that the caller saw; empty: not said
};

Result<ApplyBody> ReadApplyBody(const json& body) {
  CAISSON_TRY_VOID(verify::ExpectObject(body, "", {"only", "diff_digest", "overwrite_changed"}));
  ApplyBody apply;
  if (const json* only = verify::FindMember(body, "only")) {
    CAISSON_TRY_VOID(verify::ExpectArray(*only, "only", 1, kMostPaths));
    for (size_t i = 0; i < only->size(); ++i) {
      CAISSON_TRY(std::string path, verify::ReadStringWithoutNul((*only)[i], verify::PathOfElement("only", i)));
      apply.options.only.push_back(std::move(path));
    }
  }
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "diff_digest", apply.diff_digest, verify::ReadSha256));
  if (const json* overwrite = verify::FindMember(body, "overwrite_changed")) {
    if (!overwrite->is_boolean()) return verify::WrongTypeError("overwrite_changed", "a boolean", *overwrite);
    apply.options.overwrite_changed = overwrite->get<bool>();
  }
  return apply;
}

json ToJson(const session::ApplyReport& report, const std::string& id, const std::string& digest) {
  json document = {{"schema_version", 1},       {"id", id},
                   {"applied", report.applied}, {"diff_digest", digest},
                   {"paths", json::array()},    {"refused", json::array()},
                   {"conflicts", json::array()}};
  for (const std::string& path : report.paths) document["paths"].push_back(path);
  for (const session::RefusedChange& one : report.refused) {
    document["refused"].push_back(
        {{"path", one.path}, {"reason", session::kRefusalNames[static_cast<size_t>(one.reason)]}});
  }
  for (const session::ApplyConflict& one : report.conflicts)
    document["conflicts"].push_back({{"path", one.path}, {"reason", one.reason}});
  return document;
}

}  // namespace

Result<json> Sessions::Diff(const Caller& caller, const std::string& id, bool patch) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kRead, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  CAISSON_TRY(HeldChanges changes, HeldChanges::Hold(directory, record));
  CAISSON_TRY(const session::Diff diff, changes.Compute());
  CAISSON_TRY_VOID(
      changes.Note(directory, SessionEventType::kDiffComputed,
                   {{"diff_digest", diff.Digest()}, {"changes", diff.changes.size()}, {"actor", caller.subject}}));
  if (!patch) return json::parse(session::DiffToJson(diff));
  CAISSON_TRY(std::string text, changes.Patch(diff));
  return json{{"patch", std::move(text)}};
}

Result<json> Sessions::Apply(const Caller& caller, const std::string& id, const json& body) {
  // Changing the machine's files is a decision about it, not a part of the agent's work.
  CAISSON_TRY_VOID(Require(caller, Right::kApprove));
  CAISSON_TRY(const ApplyBody apply, ReadApplyBody(body));
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kApprove, id));
  CAISSON_TRY(session::Record record, RecordOf(directory));
  if (context_.config.session_apply != "allow")
    return Error::Denied(
        "this service does not change projects; its operator may set session_apply: allow. GET …/diff "
        "with Accept: text/x-diff has the changes as a patch");
  if (record.workspace.empty())
    return Error::Conflict("the session has no project to apply to; GET …/diff with Accept: text/x-diff has a patch");
  CAISSON_TRY(HeldChanges changes, HeldChanges::Hold(directory, record));
  CAISSON_TRY(const session::Diff diff, changes.Compute());
  const std::string digest = diff.Digest();
  if (!apply.diff_digest.empty() && apply.diff_digest != digest)
    return Error::Conflict("diff_digest: the session has changed since; its changes are now " + digest);
  // Recorded on the disk before the project changes.
  record.diff_digest = digest;
  CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kApplyBegun, record));
  CAISSON_TRY_VOID(changes.Note(directory, SessionEventType::kApplyBegun,
                                {{"diff_digest", digest}, {"only", apply.options.only}, {"actor", caller.subject}}));
  Result<session::ApplyReport> report = changes.ApplyTo(diff, record, apply.options);
  if (!report || !report->applied) {
    const std::string why = report ? std::to_string(report->conflicts.size()) + " conflicts" : report.error().message;
    CAISSON_TRY_VOID(changes.Note(directory, SessionEventType::kApplyFailed, {{"reason", why}}));
    if (!report) return std::move(report).error();
  } else {
    CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kApplied, record));
    CAISSON_TRY_VOID(
        changes.Note(directory, SessionEventType::kApplied, {{"diff_digest", digest}, {"actor", caller.subject}}));
  }
  // The whole was applied and nothing runs: the session has done its work.
  if (report->applied && apply.options.only.empty() && !changes.IsBusy())
    CAISSON_TRY_VOID(changes.SetState(directory, session::State::kApplied, digest));
  return ToJson(*report, id, digest);
}

Result<json> Sessions::Discard(const Caller& caller, const std::string& id) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(session::Record record, RecordOf(directory));
  if (record.state != session::State::kDiscarded) {
    CAISSON_TRY(HeldChanges changes, HeldChanges::Hold(directory, record));
    CAISSON_TRY_VOID(RecordInAudit(caller, audit::SessionStep::kDiscarded, record));
    CAISSON_TRY_VOID(changes.Note(directory, SessionEventType::kDiscarded, {{"actor", caller.subject}}));
    CAISSON_TRY_VOID(changes.SetState(directory, session::State::kDiscarded, ""));
    for (const char* name : {"layer", "copy", "manifest"}) CAISSON_TRY_VOID(session::RemoveTree(directory.fd(), name));
    CAISSON_TRY(record, RecordOf(directory));
  }
  return Documented(record, caller.tenant);
}

}  // namespace caisson::service
