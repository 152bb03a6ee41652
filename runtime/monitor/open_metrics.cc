#include "runtime/monitor/open_metrics.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <cmath>
#include <mutex>
#include <thread>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr int kLargestPort = 65535;

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Exposition {
 public:
  void gauge(const std::string& name, const std::string& unit, const std::string& help, std::optional<double> value) {
    if (value) family(name, "gauge", unit, help, name, *value);
  }
  void counter(const std::string& name, const std::string& unit, const std::string& help, int64_t value) {
    family(name, "counter", unit, help, name + "_total", static_cast<double>(value));
  }
  void info(const std::string& name, const std::string& help, const std::string& label, const std::string& value) {
    std::string escaped;
    for (const char c : value) escaped += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    text_ += fmt::format("# TYPE {0} info\n# HELP {0} {1}\n{0}_info{{{2}=\"{3}\"}} 1\n", name, help, label, escaped);
  }
  std::string finish() { return std::move(text_) + "# EOF\n"; }

 private:
  void family(const std::string& name, const char* type, const std::string& unit, const std::string& help, const std::string& sample,
              double value) {
    text_ += fmt::format("# TYPE {} {}\n", name, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n{} {}\n", name, help, sample, number_text(value));
  }
  std::string text_;
};

}  // namespace

std::string open_metrics_text(const RunNumbers& n) {
  Exposition out;
  out.info("distsetup_run", "What is trained.", "model", n.model);
  out.gauge("distsetup_step", "", "Optimizer steps done.", static_cast<double>(n.step));
  out.gauge("distsetup_planned_steps", "", "Optimizer steps of the whole run.", static_cast<double>(n.steps));
  out.gauge("distsetup_loss", "", "Loss of the newest step.", n.loss);
  out.gauge("distsetup_held_out_loss", "", "Loss of the held-out data at the newest evaluation.", n.held_out_loss);
  out.gauge("distsetup_learning_rate", "", "Learning rate of the newest step.", n.learning_rate);
  out.gauge("distsetup_gradient_norm", "", "Norm of the gradient before clipping.", n.gradient_norm);
  out.gauge("distsetup_loss_scale", "", "What the loss of the newest step was multiplied by, in fp16.", n.loss_scale);
  out.gauge("distsetup_tokens_per_second", "", "Trained tokens per second over all ranks, in the newest step.", n.tokens_per_s);
  out.gauge("distsetup_step_seconds", "seconds", "Duration of the newest step.", n.step_s);
  out.gauge("distsetup_wait_seconds", "seconds", "Time of it that rank 0 waited for collectives.", n.wait_s);
  out.gauge("distsetup_predicted_step_seconds", "seconds", "Duration of a step as the plan predicts it.", n.predicted_step_s);
  out.gauge("distsetup_peak_memory_bytes", "bytes", "Most bytes that rank 0 had allocated at once.",
            static_cast<double>(n.peak_bytes));
  out.gauge("distsetup_predicted_peak_memory_bytes", "bytes", "The same as the plan predicts it.",
            static_cast<double>(n.predicted_peak_bytes));
  out.gauge("distsetup_goodput_ratio", "ratio", "Share of this process's time that was steps that count.", n.goodput);
  out.counter("distsetup_tokens", "", "Tokens trained since the start of the run.", n.tokens);
  out.counter("distsetup_skipped_steps", "", "Steps that were skipped because of their loss or gradient norm.", n.skipped_steps);
  return out.finish();
}

std::optional<MetricsAddress> metrics_address_from(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  MetricsAddress address = {text.substr(0, colon), 0};
  if (address.host.empty()) address.host = kLoopback;
  const bool in_brackets = address.host.front() == '[' && address.host.back() == ']';
  if (in_brackets) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || (!in_brackets && address.host.find(':') != std::string::npos)) return std::nullopt;
  if (address.host.find_first_of(" \t/@[]") != std::string::npos) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, address.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || address.port < 1 || address.port > kLargestPort) return std::nullopt;
  return address;
}

struct MetricsServer::State {
  httplib::Server server;
  std::thread thread;
  std::mutex mutex;
  std::string text = open_metrics_text({});
};

MetricsServer::MetricsServer() = default;

MetricsServer::~MetricsServer() {
  if (state_ == nullptr) return;
  state_->server.stop();
  if (state_->thread.joinable()) state_->thread.join();
}

bool MetricsServer::is_started() const { return state_ != nullptr; }

Diagnostics MetricsServer::start(const std::string& text) {
  const std::optional<MetricsAddress> address = metrics_address_from(text);
  if (!address)
    return {error(code::kEnvironment, {"--metrics-address"},
                  fmt::format("'{}' is no address, expected HOST:PORT like 127.0.0.1:9400", text))};
  auto state = std::make_unique<State>();
  state->server.Get("/metrics", [state = state.get()](const httplib::Request&, httplib::Response& response) {
    const std::lock_guard lock(state->mutex);
    response.set_content(state->text, kContentType);
  });
  // The library's default would share the port with another process that listens on it.
  state->server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  if (!state->server.bind_to_port(address->host.c_str(), address->port))
    return {error(code::kEnvironment, {"--metrics-address"},
                  fmt::format("cannot listen on {} for metrics: the port is taken, or the host is not this machine", text),
                  "name another --metrics-address, or leave it out")};
  state->thread = std::thread([server = &state->server] { server->listen_after_bind(); });
  state_ = std::move(state);
  return {};
}

void MetricsServer::set(const RunNumbers& numbers) {
  if (state_ == nullptr) return;
  std::string text = open_metrics_text(numbers);
  const std::lock_guard lock(state_->mutex);
  state_->text = std::move(text);
}

}  // namespace distsetup
