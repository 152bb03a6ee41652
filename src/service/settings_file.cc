#include "service/settings_file.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"

namespace distsetup {
namespace {

const std::array<std::string, 3> kModes = {"inline", "remote", "front"};
const std::array<std::string, 4> kLaunchers = {"local", "nodes", "ssh", "slurm"};

// The number at `key` of `map`, between both ends; false: it is not there or wrong.
template <class Number>
void read_number(const Value* map, const char* section, const char* key, double least, double most, Number& out, Diagnostics& said) {
  const Value* value = map == nullptr ? nullptr : map->find(key);
  if (value == nullptr) return;
  const Result<double> number = as_double(*value);
  append(said, number.diagnostics);
  if (!number.ok()) return;
  const bool must_be_whole = std::numeric_limits<Number>::is_integer;
  if (*number < least || *number > most || (must_be_whole && *number != static_cast<double>(static_cast<int64_t>(*number)))) {
    said.push_back(error(code::kOutOfRange, value->location,
                         fmt::format("'{}{}{}' is {}, expected {} from {} to {}", section, *section != 0 ? "." : "", key, value->text,
                                     must_be_whole ? "a whole number" : "a number", least, most)));
    return;
  }
  out = static_cast<Number>(*number);
}

void read_text(const Value* map, const char* key, std::string& out, Diagnostics& said) {
  const Value* value = map == nullptr ? nullptr : map->find(key);
  if (value == nullptr || value->kind == Value::Kind::kNull) return;
  const Result<std::string> text = as_text(*value);
  append(said, text.diagnostics);
  if (text.ok()) out = *text;
}

// providers.post_training: the provider of ours that stands first; nullptr: none.
const Value* provider_config(const Value& file, ServiceMode mode, Diagnostics& said) {
  const Value* providers = file.find("providers");
  if (providers == nullptr) return &file;
  const Value* list = providers->find("post_training");
  const std::string wanted = mode == ServiceMode::kInline ? "inline::trl" : "remote::trl_fsdp";
  static const Value kNothing;
  for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
    const Value* type = list->items[i].find("provider_type");
    if (type == nullptr || type->text != wanted) continue;
    const Value* config = list->items[i].find("config");
    return config == nullptr ? &kNothing : config;
  }
  said.push_back(error(code::kMissingKey, list == nullptr ? file.location : list->location,
                       fmt::format("no provider of type '{}', which --mode {} serves", wanted, mode_name(mode)),
                       "name the mode of the provider that the file has: --mode inline or --mode remote"));
  return nullptr;
}

void apply_limits(const Value& map, ServiceLimits& limits, Diagnostics& said) {
  MapReader reader(map, "serve.limits", said);
  reader.get("body_bytes", limits.body_bytes);
  reader.get("rows", limits.rows);
  reader.get("queued_jobs", limits.queued_jobs);
  reader.get("datasets", limits.datasets);
  reader.get("requests_per_s", limits.requests_per_s);
  reader.finish();
  if (limits.body_bytes < 1024 || limits.rows < 1 || limits.queued_jobs < 1 || limits.datasets < 1 || limits.requests_per_s < 0)
    said.push_back(error(code::kOutOfRange, map.location, "a limit of 'serve.limits' is too small for any request"));
}

void apply_own_section(const Value& map, ServiceSettings& settings, Diagnostics& said) {
  MapReader reader(map, "serve", said);
  std::string mode, launcher;
  reader.get("data", settings.data_folder);
  reader.get("mode", mode);  // settled before: it says which provider is read
  reader.get("models", settings.model_roots);
  reader.get("files", settings.file_roots);
  reader.get("random_parameters", settings.may_start_from_random);
  reader.get("leave_jobs", settings.leaves_jobs);
  reader.get("gpu", settings.gpu);
  reader.get("grace_s", settings.grace_s);
  reader.get("retry_delay_s", settings.retry_delay_s);
  reader.get("keep_jobs_days", settings.keep_jobs_days);
  reader.get("hosts", settings.ssh_hosts);
  reader.get("slurm_flags", settings.slurm_flags);
  reader.get("base_url", settings.base_url);
  reader.get("connect_timeout_s", settings.connect_timeout_s);
  reader.get("max_retries", settings.front_retries);
  reader.get("front_retry_delay_s", settings.front_retry_delay_s);
  if (reader.get("launcher", launcher)) {
    const Result<LauncherKind> kind = launcher_from(launcher, map.find("launcher")->location);
    append(said, kind.diagnostics);
    if (kind.ok()) settings.launcher = *kind;
  }
  if (const Value* limits = reader.child("limits")) apply_limits(*limits, settings.limits, said);
  reader.finish();
  if (settings.grace_s < 0 || settings.retry_delay_s < 0 || settings.keep_jobs_days < 0)
    said.push_back(error(code::kOutOfRange, map.location, "times of 'serve' are 0 or more"));
}

void apply_devices(const Value& config, ServiceSettings& settings, Diagnostics& said) {
  const Value* device = config.find("device");
  read_text(&config, "device", settings.device, said);
  if (device != nullptr && settings.device != "cuda" && settings.device != "cpu") {
    const bool is_other = settings.device == "mps" || settings.device == "hpu" || settings.device == "xpu";
    said.push_back(error(code::kUnsupportedFeature, device->location,
                         is_other
                             ? fmt::format("'device: {}' is not supported here: the trainer has no kernels for it", settings.device)
                             : fmt::format("'device' is '{}', expected cuda or cpu", settings.device),
                         "device: cuda, or device: cpu"));
  }
  const Value* list = config.find("cuda_devices");
  for (const Value& one : list == nullptr ? std::vector<Value>{} : list->items) {
    const Result<int64_t> number = as_int(one);
    append(said, number.diagnostics);
    if (number.ok()) settings.devices.push_back(std::to_string(*number));
  }
  const Value* backend = config.find("distributed_backend");
  if (settings.mode == ServiceMode::kInline && backend != nullptr && backend->kind != Value::Kind::kNull) {
    said.push_back(error(code::kConflict, backend->location,
                         fmt::format("'distributed_backend: {}' with --mode inline, which trains on one device", backend->text),
                         "distributed_backend: null, or --mode remote"));
  }
}

}  // namespace

std::string mode_name(ServiceMode mode) { return kModes[static_cast<size_t>(mode)]; }

Result<ServiceMode> mode_from(const std::string& text, const Location& at) {
  for (size_t i = 0; i < kModes.size(); ++i) {
    if (same_name(text, kModes[i])) return static_cast<ServiceMode>(i);
  }
  return error(code::kUnknownValue, at, fmt::format("the mode is '{}'", text), suggest(text, kModes));
}

Result<LauncherKind> launcher_from(const std::string& text, const Location& at) {
  for (size_t i = 0; i < kLaunchers.size(); ++i) {
    if (same_name(text, kLaunchers[i])) return static_cast<LauncherKind>(i);
  }
  return error(code::kUnknownValue, at, fmt::format("the launcher is '{}'", text), suggest(text, kLaunchers));
}

Diagnostics apply_settings_file(const Value& file, ServiceSettings& settings) {
  Diagnostics said;
  if (file.kind != Value::Kind::kMap)
    return {error(code::kWrongType, file.location, "found no map, expected a run file of the service, or a provider's config")};
  const Value* config = provider_config(file, settings.mode, said);
  if (config == nullptr) return said;
  const Value* service = config->find("service_config");
  if (const Value* server = file.find("server"); server != nullptr && settings.mode != ServiceMode::kRemote)
    read_number(server, "server", "port", 0, 65535, settings.port, said);
  read_text(service, "host", settings.host, said);
  if (settings.mode == ServiceMode::kRemote) read_number(service, "service_config", "port", 0, 65535, settings.port, said);
  read_number(service, "service_config", "request_timeout", 1, 1e7, settings.request_timeout_s, said);
  read_number(service, "service_config", "health_check_interval", 0.1, 1e6, settings.health_check_interval_s, said);
  settings.is_health_interval_given = service != nullptr && service->find("health_check_interval") != nullptr;
  read_number(service, "service_config", "max_concurrent_jobs", 1, 10000, settings.max_concurrent_jobs, said);
  const Value* torchrun = config->find("torch_run_config");
  read_number(torchrun, "torch_run_config", "nnodes", 1, 10000, settings.nodes, said);
  read_number(torchrun, "torch_run_config", "nproc_per_node", 1, 1024, settings.ranks_per_node, said);
  read_number(torchrun, "torch_run_config", "node_rank", 0, 9999, settings.node_rank, said);
  read_text(torchrun, "master_addr", settings.master_addr, said);
  read_number(torchrun, "torch_run_config", "master_port", 1, 65535, settings.master_port, said);
  read_number(torchrun, "torch_run_config", "max_restarts", 0, 1000, settings.max_restarts, said);
  apply_devices(*config, settings, said);
  if (const Value* own = file.find("serve")) apply_own_section(*own, settings, said);
  return said;
}

}  // namespace distsetup
