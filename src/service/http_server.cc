#include "service/http_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "service/access.h"

namespace distsetup {
namespace {

// A connection has a thread as long as it is open, so a connection that waits is closed soon.
constexpr size_t kThreads = 96;
constexpr int kKeepAlive_s = 2;
constexpr size_t kKeepAliveRequests = 1000;
constexpr int kBacklog = 512;  // the library's own is 5

}  // namespace

struct HttpServer::State {
  httplib::Server server;
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
  // request.params has the fields of a form's body, too
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
  server.set_keep_alive_timeout(kKeepAlive_s);
  server.set_keep_alive_max_count(kKeepAliveRequests);
  server.set_read_timeout(30);
  server.set_write_timeout(30);
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
  // A request that announces no body has none; the library would read until the client closes.
  server.set_pre_routing_handler([handle](const httplib::Request& request, httplib::Response& response) {
    const bool has_body = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    if (has_body || request.method == "GET" || request.method == "HEAD") return httplib::Server::HandlerResponse::Unhandled;
    handle(request, response);
    return httplib::Server::HandlerResponse::Handled;
  });
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
  server.set_error_handler(httplib::Server::HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty() || response.status < 400) return httplib::Server::HandlerResponse::Unhandled;
    const HttpAnswer answer =
        refusal(response.status, response.status == 413 ? "the body is larger than this service takes"
                                                        : fmt::format("the request cannot be read ({})", response.status));
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
