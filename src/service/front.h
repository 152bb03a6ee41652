// --mode front: what concerns jobs, data sets and plans is passed on to a remote service, with retries; its answers come back as they
// are.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

#include "service/http_message.h"
#include "service/service.h"

namespace distsetup {

bool is_passed_on(std::string_view path);
HttpAnswer pass_on(Service& service, const HttpRequest& request);
// Whether the remote service is healthy; asked at the start, so that a front without one ends at once.
Diagnostics check_remote(const ServiceSettings& settings);

// Looks after the remote service every health_check_interval_s as long as it lives; /health says what it saw last.
class RemoteWatch {
 public:
  explicit RemoteWatch(Service& service) : service_(service), thread_([this] { loop(); }) {}
  ~RemoteWatch();
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;

 private:
  void look();
  void loop();

  Service& service_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace distsetup
