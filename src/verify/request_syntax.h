// Imports the functions of policy/syntax.h, which check the syntax that requests and policy files share.
#pragma once

#include "policy/syntax.h"

namespace caisson::verify {

using policy::DecodeBase64;
using policy::Fault;
using policy::FaultInAllowEntry;
using policy::FaultInArtifactGlob;
using policy::FaultInCallbackUrl;
using policy::FaultInFileName;
using policy::FaultInHostPath;
using policy::FaultInIdempotencyKey;
using policy::FaultInMountTarget;
using policy::FaultInPath;
using policy::FaultInTimestamp;
using policy::FaultInUtcTimestamp;
using policy::FaultInWorkingDirectory;
using policy::FindFileUsedAsDirectory;
using policy::IsEnvName;
using policy::IsSha256Hex;
using policy::IsWord;
using policy::NameClash;
using policy::ToLowerAscii;

}  // namespace caisson::verify
