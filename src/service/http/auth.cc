#include "service/http/auth.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/clock.h"

namespace caisson::service::http {

namespace {

constexpr size_t kMaxTokenBytes = 512;
constexpr size_t kMaxPeers = 4096;
constexpr int64_t kReloadIntervalNs = 1'000'000'000;

// The token of "Bearer TOKEN" (RFC 6750, 2.1), or nothing.
std::optional<std::string_view> BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i)
    if ((authorization[i] | (i + 1 < kScheme.size() ? 0x20 : 0)) != kScheme[i]) return std::nullopt;
  const std::string_view token = authorization.substr(kScheme.size());
  const bool fits = token.size() <= kMaxTokenBytes && std::all_of(token.begin(), token.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                             std::string_view("-._~+/=").find(c) != std::string_view::npos;
                    });
  return fits ? std::optional(token) : std::nullopt;
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mode == b.st_mode &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

Authenticator::Authenticator(const ServerConfig& config)
    : tokens_path_(config.tokens),
      local_tenant_(config.local_tenant),
      failures_per_minute_(config.bounds.auth_failures_per_minute) {}

Result<std::unique_ptr<Authenticator>> Authenticator::Make(const ServerConfig& config) {
  std::unique_ptr<Authenticator> made(new Authenticator(config));
  if (!config.tokens.empty()) {
    ::stat(config.tokens.c_str(), &made->read_);
    CAISSON_TRY(made->tokens_, LoadTokens(config.tokens));
    made->checked_ns_ = MonotonicNanos();
  }
  return made;
}

std::variant<Caller, Refusal> Authenticator::Authenticate(const Request& request) {
  if (const auto authorization = request.Field("authorization")) return ByToken(*authorization, request.peer);
  if (request.peer.local)
    if (std::optional<Caller> caller = ByUser(request.peer)) return *std::move(caller);
  return Fail(request.peer);
}

std::optional<Caller> Authenticator::ByUser(const Peer& peer) const {
  const std::string subject = "uid:" + std::to_string(peer.uid);
  if (peer.uid == 0 || peer.uid == ::geteuid()) {
    return Caller{
        subject, local_tenant_, {Right::kSubmit, Right::kRead, Right::kApprove, Right::kAdmin, Right::kMetrics}};
  }
  return std::nullopt;
}

std::variant<Caller, Refusal> Authenticator::ByToken(std::string_view authorization, const Peer& peer) {
  const auto token = BearerToken(authorization);
  {
    const std::lock_guard lock(mutex_);
    if (!Reload()) return Refusal{503, "the service cannot read its tokens", 5};
    if (const Token* known = token ? FindToken(tokens_, *token, UnixMillis()) : nullptr) return known->caller;
  }
  return Fail(peer);
}

bool Authenticator::Reload() {
  if (tokens_path_.empty()) return true;
  const int64_t now = MonotonicNanos();
  if (now - checked_ns_ < kReloadIntervalNs) return readable_;
  checked_ns_ = now;
  struct stat info {};
  if (::stat(tokens_path_.c_str(), &info) != 0) return readable_ = false;
  if (readable_ && SameFile(info, read_)) return true;
  read_ = info;
  Result<std::vector<Token>> tokens = LoadTokens(tokens_path_);
  readable_ = tokens.has_value();
  tokens_ = readable_ ? *std::move(tokens) : std::vector<Token>();
  return readable_;
}

Refusal Authenticator::Fail(const Peer& peer) {
  const std::lock_guard lock(mutex_);
  const int64_t minute = MonotonicNanos() / 60'000'000'000;
  if (failures_.size() >= kMaxPeers) failures_.clear();
  Failures& failures = failures_[peer.address];
  if (failures.minute != minute) failures = {minute, 0};
  if (++failures.count > failures_per_minute_) return {429, "too many requests without valid credentials", 60};
  return {401, "valid credentials are needed: Authorization: Bearer TOKEN, or a user known here on the unix socket", 0};
}

}  // namespace caisson::service::http
