// Checks that apply to every refusal.
#pragma once

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"

inline void CheckFault(const caisson::Error& error) {
  CAISSON_CHECK(error.kind == caisson::ErrorKind::kInvalid && !error.message.empty());
  // Messages quote the sender; they must be fit for a terminal and for a JSON answer.
  CAISSON_CHECK(caisson::EscapeForTerminal(error.message) == error.message && caisson::IsValidUtf8(error.message));
  CAISSON_CHECK(error.message.size() < 16'384);  // 32 levels of keys, each shortened and then escaped
}
