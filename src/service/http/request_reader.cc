#include "service/http/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>

#include "linux/files.h"
#include "policy/syntax.h"
#include "service/http/bodies.h"

namespace caisson::service::http {

namespace {

namespace beast = boost::beast;

}  // namespace

RequestReader::RequestReader(size_t max_head_bytes, std::string spool)
    : max_head_bytes_(max_head_bytes), spool_(std::move(spool)), check_(max_head_bytes) {}
RequestReader::~RequestReader() = default;
RequestReader::RequestReader(RequestReader&&) noexcept = default;

RequestReader::State RequestReader::Refuse(int status, std::string reason) {
  fault_ = {status, std::move(reason)};
  return state_ = State::kRefused;
}

RequestReader::State RequestReader::Take(std::string_view bytes) {
  buffer_.append(bytes);
  if (state_ == State::kHead) return ReadHead();
  if (state_ == State::kBody) return ReadBody();
  return state_;
}

RequestReader::State RequestReader::AcceptBody() {
  state_ = State::kBody;
  if (body_left_ > kMaxBodyInMemory) {
    Result<UniqueFd> file = linux_sys::OpenUnnamed(spool_);
    if (!file) return Refuse(503, "there is no room for the body now");
    body_file_ = *std::move(file);
    request_.body_file = body_file_.get();
  }
  return ReadBody();
}

RequestReader::State RequestReader::Next() {
  check_ = HeadCheck(max_head_bytes_);
  request_ = {};
  body_file_.Reset();
  state_ = State::kHead;
  return ReadHead();
}

RequestReader::State RequestReader::ReadHead() {
  const HeadCheck::State seen = check_.Look(buffer_);
  if (seen == HeadCheck::State::kMore) return state_ = State::kHead;
  if (seen == HeadCheck::State::kRefused) return Refuse(check_.fault().status, check_.fault().reason);

  beast::http::request_parser<beast::http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(max_head_bytes_));
  // The handler judges the length, per route, before the body is read. (With no limit set, this version of Beast
  // refuses every body.)
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  beast::error_code fault;
  const size_t used = parser.put(boost::asio::buffer(buffer_.data(), check_.size()), fault);
  if (fault || used != check_.size() || !parser.is_header_done() || parser.chunked())
    return Refuse(400, "the head is malformed");
  buffer_.erase(0, used);

  const auto& head = parser.get();
  request_.method = std::string(head.method_string());
  request_.target = std::string(head.target());
  for (const auto& field : head)
    request_.fields.emplace_back(policy::ToLowerAscii(std::string(field.name_string())), std::string(field.value()));
  request_.content_length = static_cast<int64_t>(parser.content_length().value_or(0));
  body_left_ = request_.content_length;
  keep_alive_ = parser.keep_alive();
  expects_continue_ = request_.Field("expect").has_value();
  return state_ = State::kBegun;
}

RequestReader::State RequestReader::ReadBody() {
  const std::string_view taken = std::string_view(buffer_).substr(0, static_cast<size_t>(body_left_));
  if (body_file_) {
    // Written to the page cache, 16 KiB at a time: fast enough for the loop's thread.
    if (!linux_sys::WriteAll(body_file_.get(), taken)) return Refuse(503, "there is no room for the body now");
  } else {
    request_.body.append(taken);
  }
  body_left_ -= static_cast<int64_t>(taken.size());
  buffer_.erase(0, taken.size());
  return state_ = body_left_ > 0 ? State::kBody : State::kWhole;
}

}  // namespace caisson::service::http
