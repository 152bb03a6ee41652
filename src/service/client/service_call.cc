#include "service/client/service_call.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <chrono>

#include "base/diagnostic_codes.h"
#include "base/json_text.h"
#include "base/names.h"

namespace distsetup {
namespace {

constexpr int kMaxPort = 65535;

Diagnostic bad_address(std::string_view text, std::string why) {
  return error(code::kWrongType, {"--server"}, fmt::format("'{}' {}", text, why), "write it as http://HOST:PORT");
}

std::string failure_text(httplib::Error failure) {
  switch (failure) {
    case httplib::Error::Connection: return "connection refused, or no such host";
    case httplib::Error::Read: return "the connection ended before an answer came";
    case httplib::Error::Write: return "the request could not be sent";
    default: return httplib::to_string(failure);
  }
}

}  // namespace

std::string ServiceAddress::url() const {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port) : fmt::format("http://[{}]:{}", host, port);
}

Result<ServiceAddress> parse_service_address(std::string_view text) {
  ServiceAddress address;
  std::string_view rest = text;
  if (lower(rest.substr(0, 8)) == "https://")
    return bad_address(text, "asks for encryption, which is not supported here; ssh -L 8322:localhost:8322 HOST makes a safe way");
  if (lower(rest.substr(0, 7)) == "http://") rest.remove_prefix(7);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool is_bracketed = rest.starts_with('[');
  const size_t close = rest.find(']');
  if (is_bracketed && close == std::string_view::npos) return bad_address(text, "has no ']'");
  const size_t colon = rest.find(':', is_bracketed ? close : 0);
  address.host = std::string(is_bracketed ? rest.substr(1, close - 1) : rest.substr(0, colon));
  if (address.host.empty() || address.host.find_first_of("/@?# \t") != std::string::npos) return bad_address(text, "names no machine");
  if (colon == std::string_view::npos) return address;
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (failed != std::errc() || end != port.data() + port.size() || address.port < 1 || address.port > kMaxPort)
    return bad_address(text, fmt::format("has '{}' for a port, expected 1 to {}", port, kMaxPort));
  return address;
}

Result<ServiceReply> ask_service(const ServiceAddress& address, std::string_view method, const std::string& target,
                                 const std::string& body) {
  httplib::Client client(address.host, address.port);
  const auto milliseconds = [](double seconds) { return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)); };
  client.set_connection_timeout(milliseconds(address.connect_s));
  client.set_read_timeout(milliseconds(address.answer_s));
  client.set_write_timeout(milliseconds(address.answer_s));
  client.set_tcp_nodelay(true);
  httplib::Headers headers = {{"Accept", "application/json"}};
  if (!address.token.empty()) headers.emplace("Authorization", "Bearer " + address.token);
  const httplib::Result answer = method == "GET"      ? client.Get(target.c_str(), headers)
                                 : method == "DELETE" ? client.Delete(target.c_str(), headers)
                                 : method == "PUT"    ? client.Put(target.c_str(), headers, body, "application/jsonl")
                                                      : client.Post(target.c_str(), headers, body, "application/json");
  if (!answer)
    return error(code::kEnvironment, {}, fmt::format("no service answers at {}: {}", address.url(), failure_text(answer.error())),
                 "start one: distsetup serve; or name another: --server URL, DISTSETUP_SERVER");
  ServiceReply reply{answer->status, json_from_text(answer->body), answer->body};
  if (reply.body.is_discarded()) reply.body = nullptr;
  return reply;
}

std::string url_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain =
        is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view("-._~").find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace distsetup
