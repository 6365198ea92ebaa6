#include "runtime/oci/trace_event.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <cstring>
#include <optional>

namespace caisson::runtime::oci {

namespace {

// Types of messages, from pkg/sentry/seccheck/points/common.proto of gVisor.
enum MessageType : uint16_t { kRawCall = 6, kOpen = 7, kConnect = 10, kBind = 24 };

constexpr size_t kHeaderBytes = 8;  // header size, type, dropped packets

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a number
  std::string_view bytes;  // of a message or a text
  bool is_bytes = false;
};

// Walks the fields of one message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and when the rest is malformed; is_valid tells which.
  bool Next(Field& field) {
    if (rest_.empty() || !valid_) return false;
    uint64_t key = 0;
    if (!Varint(key)) return Fail();
    field = {};
    field.number = key >> 3;
    switch (key & 7) {
      case 0:
        return Varint(field.value) || Fail();
      case 1:
        return Skip(8) || Fail();
      case 2: {
        uint64_t size = 0;
        if (!Varint(size) || size > rest_.size()) return Fail();
        field.bytes = rest_.substr(0, static_cast<size_t>(size));
        field.is_bytes = true;
        rest_.remove_prefix(field.bytes.size());
        return true;
      }
      case 5:
        return Skip(4) || Fail();
      default:
        return Fail();
    }
  }
  bool is_valid() const { return valid_; }

 private:
  bool Varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Skip(size_t size) {
    if (size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }
  bool Fail() {
    valid_ = false;
    return false;
  }

  std::string_view rest_;
  bool valid_ = true;
};

bool TakeContext(std::string_view message, TraceEvent& event) {
  Fields fields(message);
  for (Field field; fields.Next(field);) {
    if (field.number == 4 && !field.is_bytes) event.pid = static_cast<pid_t>(field.value);
    if (field.number == 8 && field.is_bytes) event.cwd = std::string(field.bytes);
  }
  return fields.is_valid();
}

bool TakeExit(std::string_view message, TraceEvent& event) {
  Fields fields(message);
  for (Field field; fields.Next(field);) {
    if (field.number == 1) event.result = static_cast<int64_t>(field.value);
    if (field.number == 2) event.error = static_cast<int>(field.value);
  }
  return fields.is_valid();
}

// A call with its registers: 4 is its number, 5 to 10 are its arguments.
void TakeRaw(const Field& field, TraceEvent& event) {
  if (field.is_bytes) return;
  if (field.number == 4) event.number = static_cast<int32_t>(field.value);
  if (field.number >= 5 && field.number <= 10) event.arguments[field.number - 5] = field.value;
}

// A call that gVisor describes: 3 is its number, 4 a descriptor, 5 its path.
void TakeDescribed(uint16_t type, const Field& field, TraceEvent& event) {
  if (field.number == 3 && !field.is_bytes) event.number = static_cast<int32_t>(field.value);
  if (field.number == 4 && !field.is_bytes) event.arguments[0] = field.value;
  if (field.number == 5 && field.is_bytes) event.directory = std::string(field.bytes);
  if (field.number == 6 && field.is_bytes) (type == kOpen ? event.path : event.address) = std::string(field.bytes);
  if (field.number == 7 && !field.is_bytes && type == kOpen) event.arguments[2] = field.value;
  if (field.number == 8 && !field.is_bytes && type == kOpen) event.arguments[3] = field.value;
}

// Puts the arguments of an open where the call has them.
void PlaceOpenArguments(TraceEvent& event) {
  const std::array<uint64_t, 6> as_openat = event.arguments;
  if (event.number == SYS_open) event.arguments = {0, as_openat[2], as_openat[3], 0, 0, 0};
  if (event.number == SYS_creat) event.arguments = {0, as_openat[3], 0, 0, 0, 0};
}

}  // namespace

Result<TraceEvent> DecodeTraceEvent(std::string_view packet) {
  const auto malformed = [](const char* what) {
    return Error::Invalid(std::string("a message of gVisor's trace session: ") + what);
  };
  if (packet.size() < kHeaderBytes || packet.size() > kMaxTracePacket) return malformed("its size");
  uint16_t header = 0, type = 0;
  TraceEvent event;
  std::memcpy(&header, packet.data(), sizeof(header));
  std::memcpy(&type, packet.data() + 2, sizeof(type));
  std::memcpy(&event.dropped, packet.data() + 4, sizeof(event.dropped));
  if (header < kHeaderBytes || header > packet.size()) return malformed("its header");
  if (type != kRawCall && type != kOpen && type != kConnect && type != kBind) return malformed("its type");
  Fields fields(packet.substr(header));
  bool exited = false;
  for (Field field; fields.Next(field);) {
    if (field.number == 1 && field.is_bytes && !TakeContext(field.bytes, event)) return malformed("its context");
    if (field.number == 2 && field.is_bytes) {
      exited = true;
      if (!TakeExit(field.bytes, event)) return malformed("the end of its call");
    }
    if (type == kRawCall)
      TakeRaw(field, event);
    else
      TakeDescribed(type, field, event);
  }
  if (!fields.is_valid()) return malformed("its fields");
  // 0 is not encoded, and no call of that number (read) is subscribed.
  if (!exited || event.number <= 0) return malformed("its call");
  if (event.error < 0 || event.error > 4095) return malformed("its error");
  if (type == kOpen) PlaceOpenArguments(event);
  return event;
}

Result<uint64_t> DecodeTraceHandshake(std::string_view packet) {
  Fields fields(packet);
  uint64_t version = 0;
  for (Field field; fields.Next(field);) {
    if (field.number == 1 && !field.is_bytes) version = field.value;
  }
  if (!fields.is_valid() || version == 0) return Error::Invalid("the handshake of gVisor's trace session");
  return version;
}

}  // namespace caisson::runtime::oci
