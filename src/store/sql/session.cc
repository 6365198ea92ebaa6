#include "store/sql/session.h"

#include "base/utf8.h"

namespace caisson::store::sql {
namespace {

Status CheckText(const Values& values) {
  for (const Value& value : values) {
    const auto* text = std::get_if<std::string_view>(&value);
    if (text == nullptr) continue;
    if (text->find('\0') != std::string_view::npos || !IsValidUtf8(*text)) {
      return Error::Invalid("a text for the database is not UTF-8 without NUL bytes; escape it first");
    }
  }
  return {};
}

}  // namespace

Result<int64_t> Session::Run(const char* statement, const Values& values, const EachRow& each) {
  CAISSON_TRY_VOID(CheckText(values));
  return DoRun(statement, true, values, each);
}

Status Session::Post(const char* statement, const Values& values) {
  CAISSON_TRY_VOID(CheckText(values));
  return DoPost(statement, values);
}

Result<int64_t> Session::RunOnce(const std::string& statement, const Values& values, const EachRow& each) {
  CAISSON_TRY_VOID(CheckText(values));
  return DoRun(statement.c_str(), false, values, each);
}

}  // namespace caisson::store::sql
