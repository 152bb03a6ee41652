// Who may ask: a token where the service has some, this machine's names in the Host header where it has none (a page of another site
// that a browser shows could otherwise reach a service on the loopback address), and so many requests in a second.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "service/http_message.h"
#include "service/service_settings.h"

namespace distsetup {

std::optional<HttpAnswer> refuse_host(const ServiceSettings& settings, const HttpRequest& request);
// A browser says which page a request comes from: what changes something is taken from our own page alone.
std::optional<HttpAnswer> refuse_other_page(const HttpRequest& request);
// `Authorization: Bearer TOKEN`, or Basic with the token as password, which browsers ask for.
std::optional<HttpAnswer> refuse_stranger(const ServiceSettings& settings, const HttpRequest& request);

// A bucket per client that fills with `per_s` tokens a second, and holds those of four seconds.
class RateLimiter {
 public:
  explicit RateLimiter(double per_s) : per_s_(per_s) {}
  // Seconds until the next request is taken; 0: this one is.
  double wait_s(const std::string& client, double now_s);

 private:
  struct Bucket {
    double tokens = 0, at_s = 0;
  };
  double per_s_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace distsetup
