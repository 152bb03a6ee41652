#include "service/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/base64.h"
#include "base/names.h"

namespace distsetup {
namespace {

constexpr double kBurst_s = 4;
constexpr size_t kMostClients = 10000;

// As long for a wrong token as for a right one.
bool is_same_secret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0 && !b.empty();
}

std::string given_token(const std::string& authorization) {
  const size_t space = authorization.find(' ');
  if (space == std::string::npos) return "";
  const std::string rest = authorization.substr(authorization.find_first_not_of(' ', space) == std::string::npos
                                                    ? authorization.size()
                                                    : authorization.find_first_not_of(' ', space));
  if (same_name(authorization.substr(0, space), "bearer")) return rest;
  if (!same_name(authorization.substr(0, space), "basic")) return "";
  const std::optional<std::string> both = from_base64(rest);
  const size_t colon = both ? both->find(':') : std::string::npos;
  return colon == std::string::npos ? "" : both->substr(colon + 1);
}

}  // namespace

std::optional<HttpAnswer> refuse_host(const ServiceSettings& settings, const HttpRequest& request) {
  if (!settings.tokens.empty()) return std::nullopt;
  std::string host = lower(request.header("host"));
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.find(']', colon) == std::string::npos)
    host.resize(colon);
  for (const char* own : {"localhost", "127.0.0.1", "[::1]", ""}) {
    if (host == own) return std::nullopt;
  }
  if (host == lower(settings.host)) return std::nullopt;
  return refusal(403, fmt::format("the Host header names '{}', expected localhost", host.substr(0, 100)));
}

std::optional<HttpAnswer> refuse_other_page(const HttpRequest& request) {
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  const std::string origin = lower(request.header("origin")), host = lower(request.header("host"));
  const size_t name = origin.find("://");
  if (origin.empty() || (name != std::string::npos && origin.substr(name + 3) == host)) return std::nullopt;
  return refusal(403, fmt::format("the request comes from a page of '{}', expected one of this service", origin.substr(0, 100)));
}

std::optional<HttpAnswer> refuse_stranger(const ServiceSettings& settings, const HttpRequest& request) {
  if (settings.tokens.empty()) return std::nullopt;
  const std::string given = given_token(request.header("authorization"));
  bool is_known = false;
  for (const std::string& token : settings.tokens) is_known |= is_same_secret(given, token);
  if (is_known) return std::nullopt;
  HttpAnswer answer =
      refusal(401, given.empty() ? "a token is needed: Authorization: Bearer TOKEN" : "the token is none of this service's");
  answer.headers.emplace_back("WWW-Authenticate", "Basic realm=\"distsetup\", charset=\"UTF-8\"");
  return answer;
}

double RateLimiter::wait_s(const std::string& client, double now_s) {
  if (per_s_ <= 0) return 0;
  const std::lock_guard lock(mutex_);
  if (buckets_.size() > kMostClients) buckets_.clear();
  const double most = std::max(1.0, per_s_ * kBurst_s);
  Bucket& bucket = buckets_.try_emplace(client, Bucket{most, now_s}).first->second;
  bucket.tokens = std::min(most, bucket.tokens + (now_s - bucket.at_s) * per_s_);
  bucket.at_s = now_s;
  if (bucket.tokens < 1) return (1 - bucket.tokens) / per_s_;
  bucket.tokens -= 1;
  return 0;
}

}  // namespace distsetup
