#include "service/http/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>

#include "policy/syntax.h"

namespace caisson::service::http {

namespace {

namespace beast = boost::beast;

}  // namespace

struct RequestReader::Parser {
  beast::http::request_parser<beast::http::string_body> beast;
};

RequestReader::RequestReader(size_t max_head_bytes) : max_head_bytes_(max_head_bytes), check_(max_head_bytes) {}
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

RequestReader::State RequestReader::Admit() {
  state_ = State::kBody;
  return ReadBody();
}

RequestReader::State RequestReader::Next() {
  check_ = HeadCheck(max_head_bytes_);
  parser_.reset();
  request_ = {};
  state_ = State::kHead;
  return ReadHead();
}

RequestReader::State RequestReader::ReadHead() {
  const HeadCheck::State seen = check_.Look(buffer_);
  if (seen == HeadCheck::State::kMore) return state_ = State::kHead;
  if (seen == HeadCheck::State::kRefused) return Refuse(check_.fault().status, check_.fault().reason);

  parser_ = std::make_unique<Parser>();
  auto& parser = parser_->beast;
  parser.header_limit(static_cast<uint32_t>(max_head_bytes_));
  // The handler judges the length, per route, before the body is read. (Without a limit at all, this Beast refuses
  // every body.)
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
  keep_alive_ = parser.keep_alive();
  expects_continue_ = request_.Field("expect").has_value();
  return state_ = State::kBegun;
}

RequestReader::State RequestReader::ReadBody() {
  auto& parser = parser_->beast;
  size_t used = 0;
  beast::error_code fault;
  while (!parser.is_done() && used < buffer_.size() && !fault)
    used += parser.put(boost::asio::buffer(buffer_.data() + used, buffer_.size() - used), fault);
  if (fault && fault != beast::http::error::need_more) return Refuse(400, "the body is malformed");
  buffer_.erase(0, used);
  if (!parser.is_done()) return state_ = State::kBody;
  request_.body = std::move(parser.get().body());
  return state_ = State::kWhole;
}

}  // namespace caisson::service::http
