#include "service/service_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "service/settings_file.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

struct ServiceWord {
  std::string name, value;
};

Location words_location() { return {"command line", 0, 0}; }

std::string whole_path(const std::string& path) {
  std::error_code failure;
  fs::path whole = fs::weakly_canonical(fs::absolute(path, failure), failure);
  if (failure) whole = fs::absolute(path).lexically_normal();
  std::string text = whole.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Below XDG_STATE_HOME, else the home's .local/state.
std::string usual_data_folder() {
  const std::string state = variable("XDG_STATE_HOME"), home = variable("HOME");
  if (state.starts_with("/")) return state + "/distsetup/service";
  return home.empty() ? "distsetup-service" : home + "/.local/state/distsetup/service";
}

template <class Number>
void word_number(const ServiceWord& word, double least, double most, Number& out, Diagnostics& said) {
  double number = 0;
  const auto [end, failure] = std::from_chars(word.value.data(), word.value.data() + word.value.size(), number);
  if (failure != std::errc() || end != word.value.data() + word.value.size() || number < least || number > most) {
    said.push_back(error(code::kOutOfRange, words_location(),
                         fmt::format("--{} is '{}', expected a number from {} to {}", word.name, word.value, least, most)));
    return;
  }
  out = static_cast<Number>(number);
}

Diagnostics read_tokens(const std::string& path, std::vector<std::string>& tokens) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  for (const std::string& line : split_words(*text, '\n')) {
    if (!line.starts_with("#")) tokens.push_back(line);
  }
  constexpr size_t kLeast = 16;
  for (const std::string& token : tokens) {
    if (token.size() < kLeast) {
      tokens.clear();
      return {error(code::kOutOfRange, {path}, fmt::format("a token has {} characters, expected {} or more", token.size(), kLeast),
                    "openssl rand -hex 32")};
    }
  }
  if (tokens.empty()) return {error(code::kMissingKey, {path}, "no token in the file, expected one a line", "openssl rand -hex 32")};
  return {};
}

// What is read before the file: which provider of it is meant.
std::string first_value(const std::vector<ServiceWord>& words, const std::string& name) {
  for (const ServiceWord& one : words) {
    if (one.name == name) return one.value;
  }
  return "";
}

void apply_word(const ServiceWord& word, ServiceSettings& settings, Diagnostics& said) {
  if (word.name == "host") settings.host = word.value;
  if (word.name == "port") word_number(word, 0, 65535, settings.port, said);
  if (word.name == "data") settings.data_folder = word.value;
  if (word.name == "models") settings.model_roots.push_back(word.value);
  if (word.name == "files") settings.file_roots.push_back(word.value);
  if (word.name == "random-parameters") settings.may_start_from_random = true;
  if (word.name == "leave-jobs") settings.leaves_jobs = true;
  if (word.name == "gpu") settings.gpu = word.value;
  if (word.name == "max-jobs") word_number(word, 1, 10000, settings.max_concurrent_jobs, said);
  if (word.name == "grace") word_number(word, 0, 1e6, settings.grace_s, said);
  if (word.name == "base-url") settings.base_url = word.value;
  if (word.name == "auth-token-file") append(said, read_tokens(word.value, settings.tokens));
  if (word.name == "device") {
    settings.device = word.value;
    if (word.value != "cuda" && word.value != "cpu")
      said.push_back(error(code::kUnknownValue, words_location(), fmt::format("--device is '{}', expected cuda or cpu", word.value)));
  }
  if (word.name == "launcher") {
    const Result<LauncherKind> kind = launcher_from(word.value, words_location());
    append(said, kind.diagnostics);
    if (kind.ok()) settings.launcher = *kind;
  }
  if (word.name == "log-level") {
    const std::optional<LogLevel> level = log_level_from(word.value);
    if (level)
      settings.log_level = *level;
    else
      said.push_back(error(code::kUnknownValue, words_location(),
                           fmt::format("--log-level is '{}', expected debug, info, warning or error", word.value)));
  }
}

// NODE_RANK and MASTER_ADDR, as a worker node's shell has them; what torchrun sets for a rank has no place in an inline service.
void apply_variables(ServiceSettings& settings, Diagnostics& said) {
  if (const std::string rank = variable("NODE_RANK"); !rank.empty())
    word_number(ServiceWord{"NODE_RANK", rank}, 0, 9999, settings.node_rank, said);
  if (const std::string address = variable("MASTER_ADDR"); !address.empty()) settings.master_addr = address;
  if (settings.mode != ServiceMode::kInline) return;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    const std::string value = variable(name);
    if (!value.empty() && value != "1" && value != "0") {
      said.push_back(error(code::kConflict, {name}, fmt::format("{} is {}, and --mode inline trains on one device", name, value),
                           "unset it, or --mode remote"));
    }
  }
}

// GPUs that jobs may have: cuda_devices among those that CUDA_VISIBLE_DEVICES leaves, by the names that it gives them.
void settle_devices(ServiceSettings& settings, Diagnostics& said) {
  if (settings.device != "cuda") {
    settings.devices.clear();
    return;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return;
  const std::vector<std::string> names = split_words(visible, ',');
  for (const std::string& one : settings.devices) {
    if (std::find(names.begin(), names.end(), one) == names.end())
      said.push_back(error(code::kConflict, {settings.config_path},
                           fmt::format("'cuda_devices' has {}, and CUDA_VISIBLE_DEVICES leaves {}", one, visible)));
  }
  if (settings.devices.empty()) settings.devices = names;
}

void check_settings(ServiceSettings& settings, Diagnostics& said) {
  if (settings.mode == ServiceMode::kInline) settings.nodes = settings.ranks_per_node = 1;
  if (settings.node_rank >= settings.nodes && settings.nodes > 1)
    said.push_back(error(code::kOutOfRange, words_location(),
                         fmt::format("the node rank is {}, expected one of 0 to {} ('torch_run_config.nnodes' is {})",
                                     settings.node_rank, settings.nodes - 1, settings.nodes)));
  if (settings.nodes > 1 && settings.launcher == LauncherKind::kLocal) settings.launcher = LauncherKind::kNodes;
  if (settings.launcher == LauncherKind::kSsh && static_cast<int64_t>(settings.ssh_hosts.size()) != settings.nodes)
    said.push_back(
        error(code::kConflict, words_location(),
              fmt::format("'serve.hosts' has {} names, and there are {} nodes", settings.ssh_hosts.size(), settings.nodes)));
  if (!settings.is_loopback() && settings.tokens.empty()) {
    said.push_back(error(code::kConflict, words_location(),
                         fmt::format("--host {} is reached from other machines, and there is no token to ask for", settings.host),
                         "add --auth-token-file FILE (openssl rand -hex 32 > FILE), or --host localhost"));
  }
  constexpr double kUsualRate = 100;
  if (!settings.is_loopback() && settings.limits.requests_per_s == 0) settings.limits.requests_per_s = kUsualRate;
  for (std::vector<std::string>* roots : {&settings.model_roots, &settings.file_roots}) {
    for (std::string& root : *roots) {
      std::error_code failure;
      if (!fs::is_directory(root, failure))
        said.push_back(error(code::kUnreadableFile, words_location(), fmt::format("'{}' is no folder", root)));
      root = whole_path(root);
    }
  }
}

}  // namespace

bool ServiceSettings::is_loopback() const { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Result<ServiceSettings> read_service_settings(const std::vector<std::string>& given) {
  ServiceSettings settings;
  Diagnostics said;
  std::vector<ServiceWord> words;
  for (const std::string& one : given) {
    const size_t equals = std::min(one.find('='), one.size());
    words.push_back({one.substr(std::min<size_t>(2, equals), equals - std::min<size_t>(2, equals)),
                     equals < one.size() ? one.substr(equals + 1) : ""});
  }
  std::optional<Value> file;
  if (const std::string path = first_value(words, "config"); !path.empty()) {
    settings.config_path = whole_path(path);
    const Result<std::string> text = read_file(path);
    append(said, text.diagnostics);
    if (!text.ok()) return said;
    settings.config_text = *text;
    Result<Value> value = parse_yaml(*text, path);
    append(said, value.diagnostics);
    if (!value.ok()) return said;
    file = std::move(*value);
  }
  std::string mode = first_value(words, "mode");
  Location mode_at = words_location();
  if (const Value* own = mode.empty() && file ? file->find("serve") : nullptr; own != nullptr && own->find("mode") != nullptr) {
    mode = own->find("mode")->text;
    mode_at = own->find("mode")->location;
  }
  if (!mode.empty()) {
    const Result<ServiceMode> chosen = mode_from(mode, mode_at);
    if (!chosen.ok()) return chosen.diagnostics;
    settings.mode = *chosen;
  }
  constexpr int kFrontPort = 8321;
  if (settings.mode != ServiceMode::kRemote) settings.port = kFrontPort;
  if (settings.mode == ServiceMode::kRemote) settings.ranks_per_node = 2;
  settings.data_folder = usual_data_folder();
  if (file) append(said, apply_settings_file(*file, settings));
  apply_variables(settings, said);
  for (const ServiceWord& word : words) apply_word(word, settings, said);
  settle_devices(settings, said);
  check_settings(settings, said);
  settings.data_folder = whole_path(settings.data_folder);
  return {std::move(settings), std::move(said)};
}

}  // namespace distsetup
