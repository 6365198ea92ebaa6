#include "runtime/oci/trace_event.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>

namespace caisson::runtime::oci {
namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string Number(uint64_t field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Bytes(uint64_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Packet(uint16_t type, const std::string& message, uint32_t dropped = 0) {
  std::string packet = {8, 0, static_cast<char>(type), static_cast<char>(type >> 8)};
  for (int i = 0; i < 4; ++i) packet += static_cast<char>(dropped >> (8 * i));
  return packet + message;
}

TEST(TraceEvent, ReadsAnOpen) {
  const std::string context = Number(2, 7) + Number(4, 6) + Bytes(8, "/usr") + Bytes(9, "python3");
  const std::string message = Bytes(1, context) + Bytes(2, Number(2, EACCES)) + Number(3, SYS_openat) +
                              Number(4, static_cast<uint64_t>(int64_t{AT_FDCWD})) + Bytes(6, "relative") +
                              Number(7, O_WRONLY | O_CREAT) + Number(8, 0644);
  const Result<TraceEvent> event = DecodeTraceEvent(Packet(7, message, 3));
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->number, SYS_openat);
  EXPECT_EQ(event->error, EACCES);
  EXPECT_EQ(event->pid, 6);
  EXPECT_EQ(event->cwd, "/usr");
  EXPECT_EQ(event->path, "relative");
  EXPECT_EQ(static_cast<int>(event->arguments[0]), AT_FDCWD);
  EXPECT_EQ(event->arguments[2], static_cast<uint64_t>(O_WRONLY | O_CREAT));
  EXPECT_EQ(event->dropped, 3U);
}

TEST(TraceEvent, PutsTheFlagsOfOpenWhereTheCallHasThem) {
  const std::string message = Bytes(2, "") + Number(3, SYS_open) + Bytes(6, "/x") + Number(7, O_RDWR) + Number(8, 0600);
  const Result<TraceEvent> event = DecodeTraceEvent(Packet(7, message));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->arguments[1], static_cast<uint64_t>(O_RDWR));
  EXPECT_EQ(event->arguments[2], 0600U);
}

TEST(TraceEvent, ReadsRegisters) {
  const std::string message = Bytes(2, Number(2, EROFS)) + Number(4, SYS_mkdir) + Number(5, 0x7f00) + Number(6, 0777);
  const Result<TraceEvent> event = DecodeTraceEvent(Packet(6, message));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->number, SYS_mkdir);
  EXPECT_EQ(event->arguments[0], 0x7f00U);
  EXPECT_EQ(event->arguments[1], 0777U);
  EXPECT_EQ(event->error, EROFS);
}

TEST(TraceEvent, RefusesEveryTruncation) {
  const std::string message = Bytes(1, Number(4, 6) + Bytes(8, "/")) + Bytes(2, Number(2, EACCES)) +
                              Number(3, SYS_openat) + Bytes(6, "/usr/x") + Number(7, O_WRONLY);
  const std::string packet = Packet(7, message);
  ASSERT_TRUE(DecodeTraceEvent(packet));
  size_t refused = 0;
  for (size_t size = 0; size < packet.size(); ++size) refused += !DecodeTraceEvent(packet.substr(0, size));
  // What ends between two fields after the number of the call is a shorter message.
  EXPECT_GE(refused, packet.size() - 4);
}

TEST(TraceEvent, RefusesWhatItDoesNotKnow) {
  const std::string call = Bytes(2, "") + Number(4, SYS_mkdir);
  EXPECT_TRUE(DecodeTraceEvent(Packet(6, call)));
  EXPECT_TRUE(DecodeTraceEvent(Packet(6, call + Number(99, 1) + Bytes(98, "later versions"))));
  EXPECT_FALSE(DecodeTraceEvent(Packet(5, call))) << "another type";
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, Number(4, SYS_mkdir)))) << "a call that has not returned";
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, Bytes(2, "")))) << "no call";
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, call + std::string(11, '\xff')))) << "an endless number";
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, call + Varint(5 << 3 | 2) + Varint(1000) + "short")));
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, call + Varint(5 << 3 | 3)))) << "a group";
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, Bytes(2, Number(2, 5000)) + Number(4, SYS_mkdir)))) << "no errno";
  std::string header = Packet(6, call);
  header[0] = 100;
  EXPECT_FALSE(DecodeTraceEvent(header));
  EXPECT_FALSE(DecodeTraceEvent(Packet(6, call) + std::string(kMaxTracePacket, ' ')));
}

TEST(TraceEvent, ReadsTheHandshake) {
  const Result<uint64_t> version = DecodeTraceHandshake(Number(1, 1));
  ASSERT_TRUE(version);
  EXPECT_EQ(*version, 1U);
  EXPECT_FALSE(DecodeTraceHandshake(""));
  EXPECT_FALSE(DecodeTraceHandshake("\xff"));
}

}  // namespace
}  // namespace caisson::runtime::oci
