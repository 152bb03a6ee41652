// `--metrics-address HOST:PORT`: the run's newest numbers for Prometheus and its kin, over HTTP, from rank 0. The text is
// OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/): names with their unit, counters that end in _total, # EOF
// at the end.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/diagnostic.h"

namespace distsetup {

struct RunNumbers {
  std::string model;
  int64_t step = 0, steps = 0, skipped_steps = 0, tokens = 0;
  std::optional<double> loss, held_out_loss, learning_rate, gradient_norm, loss_scale;
  std::optional<double> step_s, tokens_per_s, wait_s;  // of the newest step
  double predicted_step_s = 0;
  int64_t peak_bytes = 0, predicted_peak_bytes = 0;  // metered on this rank; of the plan
  double goodput = 0;                                // share of this process's time that was steps that count
};

std::string open_metrics_text(const RunNumbers& numbers);

struct MetricsAddress {
  std::string host;
  int port = 0;
};
// "127.0.0.1:9400", "[::1]:9400", ":9400" (loopback). Nothing: it is no address.
std::optional<MetricsAddress> metrics_address_from(const std::string& text);

class MetricsServer {
 public:
  MetricsServer();
  ~MetricsServer();
  // Listens, and answers GET /metrics from a thread of its own. Errors (kEnvironment): the port is taken, the host is not of this
  // machine.
  Diagnostics start(const std::string& address);
  bool is_started() const;
  void set(const RunNumbers& numbers);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
