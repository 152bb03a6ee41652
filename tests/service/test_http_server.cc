// The HTTP library's server as ours has it, asked over a socket.
#include <httplib.h>

#include <catch2/catch.hpp>

#include <string>
#include <thread>

#include "service/http_server.h"

using namespace distsetup;

TEST_CASE("service server: a body that is called a form is taken up to the limit of all bodies, under its own name") {
  ServiceSettings settings;
  settings.host = "127.0.0.1";
  settings.port = 0;
  settings.limits.body_bytes = 100'000;
  HttpServer server(settings, [](HttpRequest request) {
    HttpAnswer answer;
    answer.body = request.header("content-type") + " " + std::to_string(request.body.size());
    return answer;
  });
  const Result<int> port = server.bind();
  REQUIRE(port.ok());
  std::thread serving([&] { server.serve(); });
  httplib::Client client("127.0.0.1", *port);
  client.set_keep_alive(true);  // what is remembered of a request does not last
  const std::string form = "application/x-www-form-urlencoded";
  for (const size_t bytes : {10, 8193, 50'000}) {
    const auto put = client.Put("/file", std::string(bytes, 'a'), form.c_str());
    CHECK((put && put->status == 200 && put->body == form + " " + std::to_string(bytes)));
    const auto post = client.Post("/file", std::string(bytes, 'a'), "text/plain");
    CHECK((post && post->status == 200 && post->body == "text/plain " + std::to_string(bytes)));
  }
  const auto large = client.Put("/file", std::string(100'001, 'a'), form.c_str());
  CHECK((large && large->status == 413));
  server.stop();
  serving.join();
}
