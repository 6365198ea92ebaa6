#include "sandbox/command_order.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "sandbox/control.h"

namespace caisson::sandbox {

namespace {

// Each string takes at least a byte and a pointer.
constexpr size_t kMaxPointers = kMaxCommandBytes / sizeof(char*);
constexpr size_t kMemoryBytes = kMaxPointers * sizeof(char*) + kMaxCommandBytes;
// Well below the most that a socket accepts at once.
constexpr size_t kPacketBytes = size_t{64} << 10;

// The first packet begins with this header, followed by text; text that does not fit follows in packets of text alone.
// The text is the working directory, the arguments and the variables, each with its terminating zero.
struct Header {
  uint32_t last, terminal;
  uint32_t live;
  uint32_t has_input;  // if 0, two descriptors come beside it, not three; with a terminal, one
  uint32_t arguments, variables;
  uint32_t text_bytes;
};

// An order of a live run is a packet of this size alone, and so smaller than the first packet of any command.
static_assert(sizeof(LiveOrder) < sizeof(Header));

size_t CountText(const Command& command) {
  size_t bytes = command.cwd.size() + 1;
  for (const auto* strings : {&command.argv, &command.env}) {
    for (const std::string& string : *strings) bytes += string.size() + 1;
  }
  return bytes;
}

std::string JoinText(const Command& command) {
  std::string text;
  text.reserve(CountText(command));
  text.append(command.cwd).push_back('\0');
  for (const auto* strings : {&command.argv, &command.env}) {
    for (const std::string& string : *strings) text.append(string).push_back('\0');
  }
  return text;
}

// Sets `count` pointers to the strings that start at `next`, and a null behind them. False when there are fewer
// strings.
bool PointAt(char*& next, const char* end, uint32_t count, const char** pointers) {
  for (uint32_t i = 0; i < count; ++i) {
    auto* zero = static_cast<char*>(std::memchr(next, '\0', static_cast<size_t>(end - next)));
    if (zero == nullptr) return false;
    pointers[i] = next;
    next = zero + 1;
  }
  pointers[count] = nullptr;
  return true;
}

bool TakeText(int control_fd, char* text, size_t size) {
  while (size > 0) {
    struct iovec part {
      text, size
    };
    int fds[kMaxHandoverFds];
    int count = 0;
    const ssize_t received = TakePacket(control_fd, &part, 1, fds, count);
    if (received <= 0 || count != 0) return false;
    text += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

}  // namespace

Result<CommandMemory> CommandMemory::Map() {
  void* address =
      ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return Error::System(errno, "map memory for commands");
  return CommandMemory(address);
}

CommandMemory::CommandMemory(CommandMemory&& other) noexcept : address_(std::exchange(other.address_, nullptr)) {}

CommandMemory::~CommandMemory() {
  if (address_ != nullptr) ::munmap(address_, kMemoryBytes);
}

bool FitsOrder(const Command& command) {
  return command.argv.size() + command.env.size() + 2 <= kMaxPointers && CountText(command) <= kMaxCommandBytes;
}

Status SendCommand(int control_fd, const Command& command, const WorkloadStreams& streams, const CommandMode& mode,
                   const std::function<Status()>& on_begun) {
  const std::string text = JoinText(command);
  Header header{};
  header.last = mode.last ? 1 : 0;
  header.live = mode.live;
  header.terminal = streams.terminal ? 1 : 0;
  header.has_input = streams.input ? 1 : 0;
  header.arguments = static_cast<uint32_t>(command.argv.size());
  header.variables = static_cast<uint32_t>(command.env.size());
  header.text_bytes = static_cast<uint32_t>(text.size());
  int fds[3];
  size_t count = 0;
  for (const UniqueFd* stream : {&streams.input, &streams.output, &streams.error}) {
    if (*stream) fds[count++] = stream->get();
  }
  size_t sent = std::min(text.size(), kPacketBytes);
  struct iovec first[2] = {{&header, sizeof(header)}, {const_cast<char*>(text.data()), sent}};
  if (!SendPacket(control_fd, first, 2, fds, count)) return Error::System(errno, "send PID 1 its command");
  if (on_begun) CAISSON_TRY_VOID(on_begun());
  while (sent < text.size()) {
    const size_t size = std::min(text.size() - sent, kPacketBytes);
    struct iovec part {
      const_cast<char*>(text.data()) + sent, size
    };
    if (!SendPacket(control_fd, &part, 1, nullptr, 0)) return Error::System(errno, "send PID 1 its command");
    sent += size;
  }
  return {};
}

namespace {

// Completes a command whose first packet of `received` bytes is in place: its header, and the beginning of its text.
bool ReadCommand(int control_fd, void* memory, const Header& header, size_t received, const int* fds, int count,
                 ReceivedCommand& command) {
  auto** const pointers = static_cast<const char**>(memory);
  // Both ends are the same program; these checks make a bug of ours stop the run and do no other harm.
  const size_t begun = received - sizeof(header);
  const int expected = header.terminal != 0 ? 1 : header.has_input != 0 ? 3 : 2;
  if (count != expected || header.text_bytes > kMaxCommandBytes || begun > header.text_bytes) return false;
  if (uint64_t{header.arguments} + header.variables + 2 > kMaxPointers || header.arguments == 0) return false;
  if (!TakeText(control_fd, command.text + begun, header.text_bytes - begun)) return false;
  command.text_bytes = header.text_bytes;
  command.last = header.last != 0;
  command.live = header.live;
  command.terminal = header.terminal != 0;
  const int* next_fd = fds;
  if (command.terminal || header.has_input != 0) command.input = *next_fd++;
  if (!command.terminal) {
    command.output = *next_fd++;
    command.error = *next_fd++;
  }
  char* next = command.text;
  const char* const end = command.text + command.text_bytes;
  const char* cwd[2];
  if (!PointAt(next, end, 1, cwd)) return false;
  command.cwd = cwd[0];
  command.argv = pointers;
  command.env = pointers + header.arguments + 1;
  return PointAt(next, end, header.arguments, pointers) &&
         PointAt(next, end, header.variables, pointers + header.arguments + 1) && next == end;
}

Taken TakeWith(int flags, int control_fd, void* memory, ReceivedCommand& command, LiveOrder& order) {
  command = {};
  command.text = static_cast<char*>(memory) + kMaxPointers * sizeof(char*);
  Header header{};
  struct iovec parts[2] = {{&header, sizeof(header)}, {command.text, kMaxCommandBytes}};
  int fds[kMaxHandoverFds];
  int count = 0;
  const ssize_t received = TakePacket(control_fd, parts, 2, fds, count, flags);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return Taken::kNothing;
  if (received == static_cast<ssize_t>(sizeof(order)) && count == 0) {
    std::memcpy(&order, &header, sizeof(order));
    return Taken::kLiveOrder;
  }
  if (received < static_cast<ssize_t>(sizeof(header))) return Taken::kInvalid;
  return ReadCommand(control_fd, memory, header, static_cast<size_t>(received), fds, count, command) ? Taken::kCommand
                                                                                                     : Taken::kInvalid;
}

}  // namespace

bool TakeCommand(int control_fd, void* memory, ReceivedCommand& command) {
  LiveOrder order;
  return TakeWith(0, control_fd, memory, command, order) == Taken::kCommand;
}

Taken TakeNext(int control_fd, void* memory, ReceivedCommand& command, LiveOrder& order) {
  return TakeWith(MSG_DONTWAIT, control_fd, memory, command, order);
}

void CloseStreams(ReceivedCommand& command) {
  for (int* fd : {&command.input, &command.output, &command.error}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void WipeCommand(const ReceivedCommand& command) { ::explicit_bzero(command.text, command.text_bytes); }

}  // namespace caisson::sandbox
