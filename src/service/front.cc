#include "service/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/diagnostic_codes.h"
#include "service/client/service_call.h"

namespace distsetup {
namespace {

// What the front answers itself: what it is.
constexpr std::array<std::string_view, 6> kOwnPaths = {"/health",     "/v1/health", "/openapi.json",
                                                       "/v1/version", "/metrics",   "/v1/inspect/routes"};

Result<ServiceAddress> remote_address(const ServiceSettings& settings) {
  Result<ServiceAddress> address = parse_service_address(settings.base_url);
  if (!address.ok()) return address;
  if (!settings.tokens.empty()) address->token = settings.tokens.front();
  address->connect_s = settings.connect_timeout_s;
  address->answer_s = settings.request_timeout_s;
  return address;
}

std::string target_of_request(const HttpRequest& request) {
  std::string target;
  for (const char c : request.path) target += c == '/' ? "/" : url_part(std::string_view(&c, 1));
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    target += separator + url_part(name) + "=" + url_part(value);
    separator = '&';
  }
  return target;
}

bool is_worth_a_retry(const Result<ServiceReply>& reply) {
  return !reply.ok() || reply->status == 502 || reply->status == 503 || reply->status == 504;
}

Result<ServiceReply> ask_with_retries(const ServiceSettings& settings, const ServiceAddress& address, const std::string& method,
                                      const std::string& target, const std::string& body) {
  Result<ServiceReply> reply = ask_service(address, method, target, body);
  for (int64_t i = 0; i < settings.front_retries && is_worth_a_retry(reply); ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(settings.front_retry_delay_s));
    reply = ask_service(address, method, target, body);
  }
  return reply;
}

}  // namespace

bool is_passed_on(std::string_view path) {
  return std::find(kOwnPaths.begin(), kOwnPaths.end(), path) == kOwnPaths.end() && !path.starts_with("/static/") && path != "/" &&
         !path.starts_with("/jobs/");
}

HttpAnswer pass_on(Service& service, const HttpRequest& request) {
  const Result<ServiceAddress> address = remote_address(service.settings);
  if (!address.ok()) return refusal(503, address.diagnostics);
  const Result<ServiceReply> reply =
      ask_with_retries(service.settings, *address, request.method, target_of_request(request), request.body);
  if (!reply.ok()) {
    service.log->write(LogLevel::kWarning, "remote_not_answering", {{"base_url", service.settings.base_url}});
    return refusal(503, fmt::format("remote service not responding at {}: {}", address->url(), reply.diagnostics[0].message));
  }
  HttpAnswer answer;
  answer.status = reply->status;
  answer.body = reply->text;
  answer.type = reply->body.is_null() ? "text/plain; charset=utf-8" : "application/json";
  if (answer.status == 409) answer.headers.emplace_back("x-should-retry", "false");
  return answer;
}

Diagnostics check_remote(const ServiceSettings& settings) {
  const Result<ServiceAddress> address = remote_address(settings);
  if (!address.ok()) return address.diagnostics;
  const Result<ServiceReply> reply = ask_with_retries(settings, *address, "GET", "/health", "");
  if (!reply.ok()) return reply.diagnostics;
  if (reply->is_good()) return {};
  return {error(code::kEnvironment, {}, fmt::format("the remote service at {} is not healthy: {}", address->url(), reply->status),
                "look at its log")};
}

void RemoteWatch::look() {
  const Result<ServiceAddress> address = remote_address(service_.settings);
  const Result<ServiceReply> reply =
      address.ok() ? ask_service(*address, "GET", "/health") : Result<ServiceReply>(address.diagnostics);
  const bool is_good = reply.ok() && reply->is_good();
  if (service_.is_remote_healthy.exchange(is_good) == is_good) return;
  service_.log->write(is_good ? LogLevel::kInfo : LogLevel::kWarning, is_good ? "remote_healthy" : "remote_not_healthy",
                      {{"base_url", service_.settings.base_url}});
}

void RemoteWatch::loop() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> interval(service_.settings.health_check_interval_s);
  while (!wake_.wait_for(lock, interval, [this] { return is_ending_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

RemoteWatch::~RemoteWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace distsetup
