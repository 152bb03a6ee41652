// A request and its answer, as handlers see them: nothing of the library that carries them.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"

namespace distsetup {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, decoded
  std::string body;
  std::string remote_address;
  std::map<std::string, std::string> headers;                   // names in lower case
  std::vector<std::pair<std::string, std::string>> query;       // decoded, in order
  std::map<std::string, std::string, std::less<>> path_values;  // what stands for {name} in the route

  std::string header(const std::string& name) const;  // "": absent
};

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  // In place of `body`, for what is long: the next piece is put into `piece`; false: that was all. Called until then or until the
  // client is gone.
  std::function<bool(std::string& piece)> next_piece;
};

// One mistake in a body: where ("training_config.n_epochs", "query job_uuid"), what, and what to do.
struct BodyMistake {
  std::string where, message, help;
};

std::string compact_text(const Json& json);  // bytes that are no UTF-8 become U+FFFD
HttpAnswer json_answer(const Json& json, int status = 200);
// {"detail": …, "errors": [{"where", "message", "help"}]}
HttpAnswer refusal(int status, const std::string& detail, const std::vector<BodyMistake>& mistakes = {});
HttpAnswer refusal(int status, const Diagnostics& diagnostics);  // its errors; the first is the detail

}  // namespace distsetup
