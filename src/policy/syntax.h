// The small languages inside policy files, requests and the other documents: names, paths, hosts, URLs, timestamps,
// base64. All rules are lexical; nothing here looks at the machine, so a document that parses may still be refused by
// policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::policy {

// The fault of a text, phrased as the rest of a sentence that begins with its path; nothing when the text is valid.
using Fault = std::optional<std::string>;

// ASCII letters, digits and `others`, from 1 to `max_bytes` bytes.
bool IsWord(std::string_view text, std::string_view others, size_t max_bytes);
bool IsEnvName(std::string_view text);    // [A-Za-z_][A-Za-z0-9_]*
bool IsSha256Hex(std::string_view text);  // 64 hex digits, either case
Fault FaultInIdempotencyKey(std::string_view key);

// True when `path` is `directory` or below it, as far as spelling goes.
bool IsAtOrBelow(std::string_view path, std::string_view directory);

std::string ToLowerAscii(std::string text);

// The faults of any path: empty, with a NUL, or longer than the kernel accepts.
Fault FaultInPath(std::string_view path);
// A relative name of a source file that can mean only one file below /workspace.
Fault FaultInFileName(std::string_view name);
// Two of `names` that cannot both exist, one being a file and the other below it. The names are fault-free.
struct NameClash {
  std::string_view file;
  std::string_view below;
};
std::optional<NameClash> FindFileUsedAsDirectory(std::vector<std::string_view> names);

// The name of an image ("python", "python:3.12"): it becomes a file name in a store.
Fault FaultInImageName(std::string_view name);
// A name, or "sha256:" and 64 hex digits in lower case.
Fault FaultInImageReference(std::string_view reference);

// Absolute, and lexically /workspace, /scratch, /tmp or below.
Fault FaultInWorkingDirectory(std::string_view path);
// Where a request or a profile may mount something inside, judged by spelling alone: not in the trees that make up the
// sandbox, and not in place of the directories that every sandbox has. Set-up judges the links on the way to the path
// when it creates the sandbox.
Fault FaultInMountTarget(std::string_view path);
// An absolute path, as far as spelling goes.
Fault FaultInHostPath(std::string_view path);
Fault FaultInArtifactGlob(std::string_view glob);

// The other keys of a profile's network.
Fault FaultInDenyEntry(std::string_view entry);
Fault FaultInPool(std::string_view range);
Fault FaultInAddressRange(std::string_view range);
Fault FaultInPort(std::string_view port);
Fault FaultInCredentialName(std::string_view name);
Fault FaultInHostEntry(std::string_view name, std::string_view address);
// A destination that may be reached: a rule of network/rule.h, or "class:NAME" (policy/destinations.h).
Fault FaultInAllowEntry(std::string_view entry);
Fault FaultInCallbackUrl(std::string_view url);
Fault FaultInTimestamp(std::string_view text);  // RFC 3339
// RFC 3339 in the one form that the program itself writes: UTC, milliseconds, capital letters.
Fault FaultInUtcTimestamp(std::string_view text);
// Of a fault-free timestamp; fractions of a second are dropped.
int64_t SecondsSinceEpoch(std::string_view timestamp);

// RFC 4648 with padding, without blanks, and with zero bits where the last digit has bits to spare, so that one
// sequence of bytes has one spelling.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace caisson::policy
