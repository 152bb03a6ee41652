// Sources: PBS Professional 2022.1 qsub(1B) and pbs_resources(7B); Torque's "nodes=2:ppn=8:gpus=4"; IBM Spectrum LSF 10.1 bsub(1).
#include "codegen/read/batch_keys.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace distsetup {
namespace {

using foreign::Directive;
using foreign::Document;

FoundKey key_at(const Document& document, size_t begin, std::string key, std::string text) {
  FoundKey one;
  one.key = std::move(key);
  one.stands_alone = text.empty();
  one.text = text.empty() ? "true" : std::move(text);
  one.at = document.place(begin);
  return one;
}

std::pair<std::string, std::string> name_and_value(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  return {text.substr(0, equals), text.substr(std::min(equals + 1, text.size()))};
}

// "2:ncpus=64:ngpus=4+1:ngpus=4": nodes of all chunks; GPUs of a node where all chunks have the same.
void add_chunks(const std::string& chunks, const Document& document, size_t at, std::vector<FoundKey>& keys) {
  long long nodes = 0;
  std::set<std::string> gpus;
  for (const std::string& chunk : split(chunks, '+')) {
    const std::vector<std::string> parts = split(chunk, ':');
    const auto count = foreign::number(parts[0]);
    nodes +=
        count && *count > 0 && *count < 1'000'000 ? *count : 1;  // a chunk without a number is one; "nodes=host1+host2" names them
    for (const std::string& part : parts) {
      const auto [name, value] = name_and_value(part);
      if (name == "ngpus" || name == "gpus") gpus.insert(value);
    }
  }
  keys.push_back(key_at(document, at, "nodes", std::to_string(nodes)));
  if (gpus.size() == 1) keys.push_back(key_at(document, at, "gpus_per_node", *gpus.begin()));
}

void add_resources(const Directive& directive, const Document& document, std::vector<FoundKey>& keys) {
  for (const std::string& resource : split(directive.value, ',')) {
    const auto [name, value] = name_and_value(resource);
    if (name == "select" || name == "nodes") {
      add_chunks(value, document, directive.span.begin, keys);
    } else if (name == "walltime" && foreign::number(value)) {
      keys.push_back(key_at(document, directive.span.begin, "walltime_s", value));
    } else if (!name.empty()) {
      keys.push_back(key_at(document, directive.span.begin, name == "walltime" ? name : "l." + name, value));
    }
  }
}

// -R "span[hosts=1]" keeps the slots (-n) on one host, "span[ptile=4]" puts four of them on each.
std::optional<FoundKey> nodes_of_lsf(const Document& document, const std::vector<Directive>& directives) {
  long long slots = 0;
  for (const Directive& one : directives) {
    if (!one.is_late && one.name == "nnodes") return std::nullopt;
    if (!one.is_late && one.name == "n") slots = foreign::number(one.value).value_or(0);
  }
  for (const Directive& one : directives) {
    if (one.is_late || one.name != "R") continue;
    if (one.value.find("span[hosts=1]") != std::string::npos) return key_at(document, one.span.begin, "nnodes", "1");
    const size_t at = one.value.find("span[ptile=");
    if (at == std::string::npos) continue;
    const size_t begin = at + 11, end = one.value.find(']', begin);
    const auto per_host = foreign::number(std::string_view(one.value).substr(begin, end == std::string::npos ? end : end - begin));
    if (per_host && *per_host > 0 && slots > 0 && slots % *per_host == 0)
      return key_at(document, one.span.begin, "nnodes", std::to_string(slots / *per_host));
  }
  return std::nullopt;
}

}  // namespace

std::vector<FoundKey> keys_of_pbs(const Document& document, const std::vector<Directive>& directives) {
  std::vector<FoundKey> keys;
  for (const Directive& one : directives) {
    if (one.is_late) continue;
    if (one.name == "l") {
      add_resources(one, document, keys);
    } else {
      keys.push_back(key_at(document, one.span.begin, one.name, one.value));
    }
  }
  return keys;
}

std::vector<FoundKey> keys_of_lsf(const Document& document, const std::vector<Directive>& directives) {
  std::vector<FoundKey> keys;
  if (std::optional<FoundKey> nodes = nodes_of_lsf(document, directives)) keys.push_back(std::move(*nodes));
  for (const Directive& one : directives) {
    if (one.is_late) continue;
    std::string value = one.value;
    if (one.name == "W") {  // [hours:]minutes, and "/host" behind them
      value = value.substr(0, value.find('/'));
      if (value.find(':') != std::string::npos) value += ":00";
    }
    keys.push_back(key_at(document, one.span.begin, one.name, value));
    if (one.name != "gpu") continue;
    for (const std::string& part : split(value, ':')) {
      const auto [name, number] = name_and_value(part);
      if (name == "num") keys.back() = key_at(document, one.span.begin, "gpus_per_node", number.substr(0, number.find('/')));
    }
  }
  return keys;
}

std::vector<FoundKey> keys_of_hostfile(const Document& document) {
  std::set<std::string> slots;
  long long hosts = 0;
  size_t first = 0;
  for (size_t at = 0; at < document.text.size();) {
    const size_t end = std::min(document.text.find('\n', at), document.text.size());
    std::string line = document.text.substr(at, end - at);
    line = line.substr(0, line.find('#'));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string::npos) {
      if (hosts++ == 0) first = at + begin;
      const size_t value = line.find("slots=");
      const size_t digits = value == std::string::npos ? value : value + 6;
      slots.insert(digits == std::string::npos ? "" : line.substr(digits, line.find_first_not_of("0123456789", digits) - digits));
    }
    at = end + 1;
  }
  std::vector<FoundKey> keys;
  if (hosts > 0) keys.push_back(key_at(document, first, "nodes", std::to_string(hosts)));
  if (slots.size() == 1 && !slots.begin()->empty()) keys.push_back(key_at(document, first, "gpus_per_node", *slots.begin()));
  return keys;
}

std::vector<FoundKey> keys_of_environment(const Document& document) {
  std::vector<FoundKey> keys;
  for (const foreign::EnvironmentSetting& one : document.environment) {
    keys.push_back(key_at(document, one.span.begin, "env." + one.name, one.value));
    keys.back().text = one.value;
    keys.back().stands_alone = true;
  }
  return keys;
}

}  // namespace distsetup
