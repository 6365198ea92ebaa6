// A result that crosses a trust boundary may be any bytes. None may crash the reader, and an accepted result keeps the
// promises of a result.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "fault.h"
#include "target.h"
#include "verify/json_reader.h"
#include "verify/result_reader.h"

CAISSON_FUZZ_TARGET(result) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto document = caisson::verify::ReadJson(text, {});
  if (!document) {
    CheckFault(document.error());
    return 0;
  }
  const caisson::Status believed = caisson::verify::ExpectResult(*document, "");
  if (!believed) {
    CheckFault(believed.error());
    return 0;
  }
  static const std::set<std::string> kStatuses = {"pass", "fail", "error", "rejected", "cancelled"};
  const std::string status = document->at("status");
  CAISSON_CHECK(kStatuses.count(status) == 1);
  const bool has_class = !document->at("failure_class").is_null();
  CAISSON_CHECK(status == "cancelled" || has_class == (status != "pass"));
  // A member that a later version adds is accepted.
  nlohmann::json later = *document;
  later["a member of a later version"] = 1;
  CAISSON_CHECK(caisson::verify::ExpectResult(later, "").has_value());
  return 0;
}
