// A helper that an archive has taken over may send any bytes. Accepted frames are those that the encoder can produce.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fault.h"
#include "intake/frames.h"
#include "target.h"

CAISSON_FUZZ_TARGET(intake_frames) {
  using namespace caisson::intake;
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(bytes), size);
  const size_t step = 1 + bytes[0] % 32;
  std::string again;
  FrameReader reader(64, 4096, [&](const Frame& frame) {
    CAISSON_CHECK(frame.name.size() <= 64 && frame.body.size() <= 4096);
    again += Encode(frame);
    return caisson::Status();
  });
  caisson::Status status;
  for (size_t at = 0; at < size && status; at += step) status = reader.Feed(stream.substr(at, step));
  if (status) status = reader.Finish();
  CAISSON_CHECK(stream.substr(0, again.size()) == again);
  if (status)
    CAISSON_CHECK(again == stream);
  else
    CheckFault(status.error());
  return 0;
}
