// The HTTP library, and the only file that knows it: threads, limits, connections.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/diagnostic.h"
#include "service/http_message.h"
#include "service/service_settings.h"

namespace distsetup {

class HttpServer {
 public:
  HttpServer(const ServiceSettings& settings, std::function<HttpAnswer(HttpRequest)> answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  Result<int> bind();  // the port
  void serve();        // until stop()
  void stop();         // from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
