// The launcher's wire format: encodes plain structs as bytes and descriptors, and decodes them from a hostile sender.
//
// A message is described once, by a function template that names each field, its bounds and its rule:
//
//   template <typename Side, typename Message>
//   void Describe(Side& side, Message& message) {
//     side.Number("timeout_ms", message.timeout_ms, 0, kMaxTimeoutMs);
//     side.Text("target", message.target, kMaxPathBytes, IsCleanAbsolutePath);
//   }
//
// Called with a Writer it encodes, with a Reader it decodes, so the two cannot disagree. Both enforce the bounds: the
// Writer refuses to write what the Reader would refuse to read. Numbers are eight bytes, lengths four, flags and
// choices one; only the description makes a field implied, skipped or optional. Descriptors travel beside the bytes
// (SCM_RIGHTS) in the order in which they are described.
//
// The first fault is kept and names its field ("spec.mounts[3].target: …"); after it every field reads as empty, so a
// description needs no checks of its own. Finish returns the fault. Thread: any; this code makes no system call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/violation.h"

namespace caisson::launcher {

// An encoded message. It borrows its descriptors from the struct that was encoded, which must live until it is sent.
struct Encoded {
  std::string bytes;
  std::vector<int> fds;
};

// Returns true when the text is acceptable.
using Rule = bool (*)(std::string_view text);

// The state that Writer and Reader share: the current position and the first fault.
class Fields {
 public:
  bool ok() const { return !fault_; }
  void Fail(const char* field, const std::string& what);

 protected:
  explicit Fields(const char* message) : message_(message) {}
  Status TakeFault();

  // The list item or optional part that is being described; becomes text only when a fault needs it.
  struct Place {
    const char* field;
    std::optional<size_t> index;
  };
  std::vector<Place> places_;

 private:
  const char* message_;
  std::optional<Error> fault_;
};

class Writer : public Fields {
 public:
  static constexpr bool kReads = false;

  explicit Writer(const char* message) : Fields(message) {}
  Result<Encoded> Finish();

  void Flag(const char*, bool value) { Put(value ? 1U : 0U, 1); }
  template <typename Integer>
  void Number(const char* field, Integer value, int64_t least, int64_t most) {
    PutNumber(field, static_cast<int64_t>(value), least, most);
  }
  template <typename Enumeration>
  void Choice(const char*, Enumeration value, Enumeration) {
    Put(static_cast<uint64_t>(value), 1);
  }
  void Text(const char* field, const std::string& value, size_t most, Rule rule = nullptr);
  void Value(const char* field, const EvidenceValue& value, size_t most);
  void Descriptor(const char* field, const UniqueFd& fd);

  template <typename Item, typename Each>
  void List(const char* field, const std::vector<Item>& items, size_t most, const Each& each) {
    if (items.size() > most) Fail(field, "has more than " + std::to_string(most) + " items");
    Put(items.size(), 4);
    for (size_t i = 0; i < items.size() && ok(); ++i) {
      places_.push_back({field, i});
      each(items[i]);
      places_.pop_back();
    }
  }
  template <typename Item, typename Each>
  void Maybe(const char* field, const std::optional<Item>& item, const Each& each) {
    Put(item ? 1U : 0U, 1);
    if (!item) return;
    places_.push_back({field, std::nullopt});
    each(*item);
    places_.pop_back();
  }

 private:
  void Put(uint64_t value, int width);
  void PutNumber(const char* field, int64_t value, int64_t least, int64_t most);

  Encoded encoded_;
};

class Reader : public Fields {
 public:
  static constexpr bool kReads = true;

  // `bytes` must outlive the reader and must not change while it reads.
  Reader(const char* message, std::string_view bytes, std::vector<UniqueFd> fds)
      : Fields(message), rest_(bytes), fds_(std::move(fds)) {}
  // Also fails when bytes or descriptors are left over.
  Status Finish();

  void Flag(const char* field, bool& value) { value = Take(field, 1, 1) != 0; }
  template <typename Integer>
  void Number(const char* field, Integer& value, int64_t least, int64_t most) {
    value = static_cast<Integer>(TakeNumber(field, least, most));
  }
  template <typename Enumeration>
  void Choice(const char* field, Enumeration& value, Enumeration last) {
    value = static_cast<Enumeration>(Take(field, 1, static_cast<uint64_t>(last)));
  }
  void Text(const char* field, std::string& value, size_t most, Rule rule = nullptr);
  void Value(const char* field, EvidenceValue& value, size_t most);
  void Descriptor(const char* field, UniqueFd& fd);

  template <typename Item, typename Each>
  void List(const char* field, std::vector<Item>& items, size_t most, const Each& each) {
    const uint64_t count = Take(field, 4, most);
    // No reserve ahead: a claimed length costs no memory until its items arrive.
    for (size_t i = 0; i < count && ok(); ++i) {
      places_.push_back({field, i});
      items.emplace_back();
      each(items.back());
      places_.pop_back();
    }
  }
  template <typename Item, typename Each>
  void Maybe(const char* field, std::optional<Item>& item, const Each& each) {
    item.reset();
    if (Take(field, 1, 1) == 0) return;
    places_.push_back({field, std::nullopt});
    each(item.emplace());
    places_.pop_back();
  }

 private:
  // Returns 0 after a fault.
  uint64_t Take(const char* field, int width, uint64_t most);
  int64_t TakeNumber(const char* field, int64_t least, int64_t most);

  std::string_view rest_;
  std::vector<UniqueFd> fds_;
  size_t next_fd_ = 0;
};

}  // namespace caisson::launcher
