// Asking a service over HTTP: one request, one answer. Who cannot be reached and who refuses are different things here.
#pragma once
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/json.h"

namespace distsetup {

struct ServiceAddress {
  std::string host = "localhost";
  int port = 8322;
  std::string token;                     // "": none
  std::string token_file;                // where it came from, for messages
  double connect_s = 5, answer_s = 300;  // a plan of a large model on many GPUs takes its time
  std::string url() const;
};

// "http://host:port", "host:port" or "host"; what is written behind the port is refused, and so is https.
Result<ServiceAddress> parse_service_address(std::string_view text);

struct ServiceReply {
  int status = 0;
  Json body;         // null where the answer is no JSON
  std::string text;  // as it came
  bool is_good() const { return status >= 200 && status < 300; }
};

// kEnvironment when nobody answers. `target`: path and query.
Result<ServiceReply> ask_service(const ServiceAddress& address, std::string_view method, const std::string& target,
                                 const std::string& body = "");

// "a b/c" as a part of a path or the value of a query
std::string url_part(std::string_view text);

}  // namespace distsetup
