#include "launcher/wire.h"

namespace caisson::launcher {

namespace {

constexpr uint64_t kNumber = 0, kString = 1;  // the kind of evidence that follows

}  // namespace

void Fields::Fail(const char* field, const std::string& what) {
  if (fault_) return;
  std::string path = message_;
  for (const Place& place : places_) {
    path += "." + std::string(place.field);
    if (place.index) path += "[" + std::to_string(*place.index) + "]";
  }
  fault_ = Error::Invalid(path + "." + field + ": " + what);
}

Status Fields::TakeFault() {
  if (fault_) return *std::move(fault_);
  return {};
}

void Writer::Put(uint64_t value, int width) {
  for (int i = 0; i < width; ++i) encoded_.bytes.push_back(static_cast<char>(value >> (8 * i)));
}

void Writer::PutNumber(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    Fail(field,
         "is " + std::to_string(value) + ", not within " + std::to_string(least) + " and " + std::to_string(most));
  Put(static_cast<uint64_t>(value), 8);
}

void Writer::Text(const char* field, const std::string& value, size_t most, Rule rule) {
  if (value.size() > most) return Fail(field, "is longer than " + std::to_string(most) + " bytes");
  if (rule != nullptr && !rule(value)) return Fail(field, "is not of the form that is needed here");
  Put(value.size(), 4);
  encoded_.bytes += value;
}

void Writer::Value(const char* field, const EvidenceValue& value, size_t most) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    Put(kNumber, 1);
    return Put(static_cast<uint64_t>(*number), 8);
  }
  Put(kString, 1);
  Text(field, *std::get_if<std::string>(&value), most);
}

void Writer::Descriptor(const char* field, const UniqueFd& fd) {
  if (!fd) return Fail(field, "is not open");
  encoded_.fds.push_back(fd.get());
}

Result<Encoded> Writer::Finish() {
  CAISSON_TRY_VOID(TakeFault());
  return std::move(encoded_);
}

uint64_t Reader::Take(const char* field, int width, uint64_t most) {
  if (!ok()) return 0;
  if (rest_.size() < static_cast<size_t>(width)) {
    Fail(field, "is cut off");
    return 0;
  }
  uint64_t value = 0;
  for (int i = 0; i < width; ++i)
    value |= uint64_t{static_cast<unsigned char>(rest_[static_cast<size_t>(i)])} << (8 * i);
  rest_.remove_prefix(static_cast<size_t>(width));
  if (value <= most) return value;
  Fail(field, "is " + std::to_string(value) + ", more than " + std::to_string(most));
  return 0;
}

int64_t Reader::TakeNumber(const char* field, int64_t least, int64_t most) {
  const auto value = static_cast<int64_t>(Take(field, 8, ~uint64_t{0}));
  if (!ok()) return 0;
  if (value >= least && value <= most) return value;
  Fail(field, "is " + std::to_string(value) + ", not within " + std::to_string(least) + " and " + std::to_string(most));
  return 0;
}

void Reader::Text(const char* field, std::string& value, size_t most, Rule rule) {
  const uint64_t size = Take(field, 4, most);
  if (size > rest_.size()) return Fail(field, "is cut off");
  const std::string_view text = rest_.substr(0, size);
  rest_.remove_prefix(size);
  if (ok() && rule != nullptr && !rule(text)) Fail(field, "is not of the form that is needed here");
  if (ok()) value = text;
}

void Reader::Value(const char* field, EvidenceValue& value, size_t most) {
  if (Take(field, 1, kString) == kNumber) {
    value = static_cast<int64_t>(Take(field, 8, ~uint64_t{0}));
    return;
  }
  Text(field, value.emplace<std::string>(), most);
}

void Reader::Descriptor(const char* field, UniqueFd& fd) {
  if (next_fd_ == fds_.size()) return Fail(field, "has no descriptor");
  fd = std::move(fds_[next_fd_++]);
}

Status Reader::Finish() {
  if (!rest_.empty()) Fail("end", std::to_string(rest_.size()) + " bytes are left over");
  if (next_fd_ != fds_.size()) Fail("end", std::to_string(fds_.size() - next_fd_) + " descriptors are left over");
  return TakeFault();
}

}  // namespace caisson::launcher
