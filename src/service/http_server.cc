#include "service/http_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "service/access.h"
#include "service/connection.h"
#include "service/route_table.h"
#include "service/router.h"

namespace distsetup {
namespace {

// A connection has a thread as long as it is open, so a connection that waits is closed soon.
constexpr size_t kThreads = 96;
constexpr int kKeepAlive_s = 2;
constexpr size_t kKeepAliveRequests = 1000;
constexpr int kBacklog = 512;  // the library's own is 5

// Of the request that this thread answers: the library refused it, or leaves its body; where the next one begins is not known then.
thread_local bool is_refused_by_library = false;

// The Content-Type of the request that this thread answers, where that is a form; else empty. The library refuses forms of more than
// 8 KiB, and curl says of whatever it sends with --data-binary that it is a form: so the library is told that it is plain bytes.
thread_local std::string form_type;

void hide_form(httplib::Request& request) {
  form_type.clear();
  const auto type = request.headers.find("Content-Type");
  if (type == request.headers.end() || !type->second.starts_with("application/x-www-form-urlencoded")) return;
  form_type = std::exchange(type->second, "application/octet-stream");
}

bool has_unread_body(const httplib::Request& request) {
  const bool has_body = request.has_header("Transfer-Encoding") || request.get_header_value<uint64_t>("Content-Length") > 0;
  return has_body && request.method != "POST" && request.method != "PUT" && request.method != "PATCH" && request.method != "DELETE";
}

// The library's server on our connections.
class ConnectionServer final : public httplib::Server {
 private:
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, {});
    bool is_good = false, is_at_end = false;
    is_refused_by_library = false;
    for (size_t left = kKeepAliveRequests; left > 0 && !is_at_end; --left) {
      if (!connection.awaits_request(kKeepAlive_s, [this] { return svr_sock_ != INVALID_SOCKET; })) break;
      bool is_head_read = false;
      connection.begin_head();
      is_good = process_request(connection, left == 1, is_at_end, [&](httplib::Request& request) {
        is_head_read = true;
        connection.end_head();
        hide_form(request);
        is_refused_by_library = has_unread_body(request);
      });
      is_refused_by_library |= !is_head_read;
      is_at_end |= !is_good || is_refused_by_library;
    }
    connection.close(is_refused_by_library ? Connection::Ending::kRefused : Connection::Ending::kPlain);
    return is_good;
  }
};

// A first line whose method the library does not know; of everything else that it cannot read we know no more than it says.
HttpAnswer refuse_unread(const httplib::Request& request, int status) {
  const bool is_method = !request.method.empty() && request.version.starts_with("HTTP/1.") && request.target.starts_with("/") &&
                         std::all_of(request.method.begin(), request.method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (status == 400 && is_method && request.path.empty()) {
    const std::string path = httplib::detail::decode_url(request.target.substr(0, request.target.find_first_of("?#")), false);
    return refuse_route(match_route(route_table(), request.method, path), request.method, path);
  }
  if (status == 413) return refusal(413, "the body is larger than this service takes");
  return refusal(status, fmt::format("the request cannot be read ({})", status));
}

}  // namespace

struct HttpServer::State {
  ConnectionServer server;
  std::function<HttpAnswer(HttpRequest)> answer;
  RateLimiter limiter;
  std::string host;
  int port = 0;
  socket_t socket = INVALID_SOCKET;
  explicit State(double requests_per_s) : limiter(requests_per_s) {}

  void handle(const httplib::Request& request, httplib::Response& response);
};

void HttpServer::State::handle(const httplib::Request& request, httplib::Response& response) {
  HttpRequest own;
  own.method = request.method;
  own.path = request.path;
  own.body = request.body;
  own.remote_address = request.remote_addr;
  for (const auto& [name, value] : request.headers) own.headers.emplace(lower(name), value);
  if (!form_type.empty()) own.headers.find("content-type")->second = form_type;
  httplib::Params query;
  if (const size_t mark = request.target.find('?'); mark != std::string::npos)
    httplib::detail::parse_query_text(request.target.substr(mark + 1, request.target.find('#') - mark - 1), query);
  for (const auto& [name, value] : query) own.query.emplace_back(name, value);
  HttpAnswer answer;
  if (const double wait_s = limiter.wait_s(own.remote_address, now_s()); wait_s > 0) {
    answer = refusal(429, "too many requests");
    answer.headers.emplace_back("Retry-After", std::to_string(static_cast<int>(wait_s) + 1));
  } else {
    answer = this->answer(std::move(own));
  }
  response.status = answer.status;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  if (!answer.next_piece) {
    response.set_content(answer.body, answer.type);
    return;
  }
  response.set_chunked_content_provider(answer.type, [next = answer.next_piece](size_t, httplib::DataSink& sink) {
    std::string piece;
    const bool is_more = next(piece);
    if (!piece.empty() && !sink.write(piece.data(), piece.size())) return false;
    if (!is_more) sink.done();
    return true;
  });
}

HttpServer::HttpServer(const ServiceSettings& settings, std::function<HttpAnswer(HttpRequest)> answer)
    : state_(std::make_unique<State>(settings.limits.requests_per_s)) {
  state_->answer = std::move(answer);
  state_->host = settings.host == "localhost" ? "127.0.0.1" : settings.host;  // which clients of either spelling reach
  state_->port = settings.port;
  httplib::Server& server = state_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(static_cast<size_t>(settings.limits.body_bytes));
  server.set_keep_alive_timeout(kKeepAlive_s);  // which answers name
  server.set_keep_alive_max_count(kKeepAliveRequests);
  server.set_tcp_nodelay(true);
  server.set_socket_options([state = state_.get()](socket_t socket) {
    const int yes = 1;  // the library's default would share the port with another process that listens on it
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    state->socket = socket;
  });
  // Ours is the only router.
  const auto handle = [state = state_.get()](const httplib::Request& request, httplib::Response& response) {
    state->handle(request, response);
  };
  server.Get(".*", handle);
  server.Post(".*", handle);
  server.Put(".*", handle);
  server.Patch(".*", handle);
  server.Delete(".*", handle);
  server.Options(".*", handle);
  // A request that says nothing of a body has none (`curl -X POST`); the library would wait for one until the client is gone.
  server.set_pre_routing_handler([state = state_.get()](const httplib::Request& request, httplib::Response& response) {
    const bool may_have_body = request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
    const bool is_unknown =
        request.method == "TRACE" || request.method == "CONNECT" || request.method == "PRI";  // no route of the library
    if (!is_unknown && (!may_have_body || request.has_header("Content-Length") || request.has_header("Transfer-Encoding")))
      return httplib::Server::HandlerResponse::Unhandled;
    state->handle(request, response);
    return httplib::Server::HandlerResponse::Handled;
  });
  // What the library refuses itself: bodies that are too large, heads that are none.
  server.set_error_handler(httplib::Server::HandlerWithResponse([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty() || response.status < 400) return httplib::Server::HandlerResponse::Unhandled;
    const HttpAnswer answer = refuse_unread(request, response.status);
    is_refused_by_library = true;
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    response.set_header("Connection", "close");
    response.set_content(answer.body, answer.type);
    return httplib::Server::HandlerResponse::Handled;
  }));
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
    response.status = 500;
    response.set_content(refusal(500, "this is not your mistake: please report it with the request").body, "application/json");
  });
}

HttpServer::~HttpServer() = default;

Result<int> HttpServer::bind() {
  State& state = *state_;
  bool is_bound = true;
  if (state.port == 0) {
    state.port = state.server.bind_to_any_port(state.host);
    is_bound = state.port > 0;
  } else {
    is_bound = state.server.bind_to_port(state.host, state.port);
  }
  if (!is_bound) {
    return error(code::kEnvironment, {},
                 fmt::format("cannot listen on {}:{}: the port is taken, or the host is not this machine", state.host, state.port),
                 "name another with --port, or --host");
  }
  ::listen(state.socket, kBacklog);
  return state.port;
}

void HttpServer::serve() { state_->server.listen_after_bind(); }

void HttpServer::stop() { state_->server.stop(); }

}  // namespace distsetup
