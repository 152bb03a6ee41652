// The idea: a family's file says for each field of a geometry which keys of config.json state it, and what holds when they are absent
// (families.h); this walks the fields in order. Here is only what all families share in kind: layers without a window, layers without
// experts. Leaves out: dropout, initialisation, token ids, quantisation; what a family lists as left out is
// noted and not counted.
#include "model/config_reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <type_traits>

#include "base/diagnostic_codes.h"
#include "model/condition.h"
#include "model/config_keys.h"
#include "model/config_rope.h"
#include "model/families.h"
#include "model/geometry_fields.h"
#include "model/layer_pattern.h"

namespace distsetup {
namespace {

constexpr int64_t kLargest = 1'000'000'000'000;  // no count in a config is near it; sums of a few stay inside 64 bits
constexpr int64_t kMostLayers = 100'000;         // validate() refuses more

std::string activation_name(const std::string& name) {
  if (name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  return name;
}

class ConfigReading {
 public:
  ConfigReading(const Value& config, const Family& family, Diagnostics& diagnostics)
      : config_(config), family_(family), diagnostics_(diagnostics) {}

  Geometry read(const std::string& name) {
    g_.name = name;
    g_.family = family_.name;
    g_.layer_class = family_.layer_class;
    g_.source = config_.location.file;
    for (const auto& [value, rule] : family_.values) read_value(value, rule);
    for (const GeometryField& field : geometry_fields()) {
      const FamilyRule* rule = rule_of(field.name);
      if (rule != nullptr) std::visit([&](auto member) { read_field(*rule, g_.*member); }, field.member);
    }
    g_.activation = activation_name(g_.activation);
    read_rope_scaling(config_, g_, diagnostics_);
    read_layers_without_window();
    read_unrotated_layers();
    read_expert_layers();
    fill_head_size();
    for (const std::string& key : family_.refused_keys) refuse_if_set(key);
    for (const std::string& key : family_.unlike_keys) mark_unlike_if_set(key);
    for (const auto& [key, what] : family_.left_out) note_left_out(key, what);
    return std::move(g_);
  }

 private:
  const Value* stated(std::string_view path) const { return stated_at(config_, path); }

  template <class T>
  T take(Result<T> result, T fallback) {
    append(diagnostics_, std::move(result.diagnostics));
    return result.value ? std::move(*result.value) : fallback;
  }
  int64_t integer(std::string_view key, const Value& stated, int64_t fallback) {
    // A list of the same number for each layer (Hunyuan) is that number.
    const std::vector<Value>& items = stated.items;
    const bool is_same = !items.empty() && std::ranges::all_of(items, [&](const Value& item) { return item.text == items[0].text; });
    const Value& value = is_same ? items[0] : stated;
    // Three layers with a window and one without (EXAONE 4: "LLLG") are each fourth.
    const std::string& text = value.text;
    const bool is_letters = text.ends_with('G') && text.find_first_not_of('L') == text.size() - 1;
    const int64_t number = is_letters ? std::ssize(text) : take<int64_t>(as_int(value), fallback);
    if (number >= 0 && number <= kLargest) return number;
    diagnostics_.push_back(
        error(code::kOutOfRange, value.location, fmt::format("'{}' is {}, expected 0 to {}", key, number, kLargest)));
    return fallback;
  }
  int64_t integer(const std::string& key, int64_t fallback) {
    const Value* value = key.empty() ? nullptr : stated(key);
    return value == nullptr ? fallback : integer(key, *value, fallback);
  }

  void read_value(const std::string& name, const FamilyRule& rule) {
    const auto key = std::find_if(rule.keys.begin(), rule.keys.end(), [this](const std::string& k) { return stated(k) != nullptr; });
    std::string& out = values_[name] = rule.value;
    if (key == rule.keys.end()) return;
    const Value& value = *stated(*key);
    if (rule.value == "true" || rule.value == "false") {
      out = take<bool>(as_bool(value), rule.value == "true") ? "true" : "false";
    } else if (const Result<int64_t> number = as_int(scalar_value(rule.value));
               number.ok() && rule.value.find('.') == std::string::npos) {
      out = std::to_string(integer(*key, value, *number));
    } else {
      out = take<std::string>(as_text(value), rule.value);
    }
  }

  const FamilyRule* rule_of(std::string_view field) {
    const auto rules = family_.fields.find(std::string(field));
    if (rules == family_.fields.end()) return nullptr;
    for (const FamilyRule& rule : rules->second) {
      const auto holds = [&](const std::string& condition) { return condition_holds(condition, rule); };
      if (std::all_of(rule.when.begin(), rule.when.end(), holds)) return &rule;
    }
    return nullptr;
  }

  template <class T>
  void read_field(const FamilyRule& rule, T& out) {
    for (const std::string& stated_key : rule.keys) {
      const std::string_view key = without_reciprocal(stated_key);
      const Value* value = value_at(config_, key);
      const bool is_null = value != nullptr && value->kind == Value::Kind::kNull;
      if (is_null && !rule.if_null.empty()) return compute(rule.if_null, rule, out);
      if (value == nullptr || is_null) continue;
      if constexpr (std::is_same_v<T, int64_t>) out = integer(key, *value, out);
      if constexpr (std::is_same_v<T, double>) out = take<double>(as_double(*value), out);
      if constexpr (std::is_same_v<T, double>) out = is_reciprocal(stated_key) && out != 0 ? 1 / out : out;
      if constexpr (std::is_same_v<T, bool>) out = take<bool>(as_bool(*value), out);
      if constexpr (std::is_same_v<T, std::string>) out = take<std::string>(as_text(*value), out);
      return;
    }
    if (!rule.value.empty()) return compute(rule.value, rule, out);
    diagnostics_.push_back(error(code::kMissingKey, config_.location, fmt::format("config.json has no '{}'", rule.keys.front()),
                                 fmt::format("write '{}' into it, or name a preset: distsetup list models", rule.keys.front())));
  }

  // What an expression of a family's file makes of the fields and values read so far.
  void compute(const std::string& expression, const FamilyRule& rule, int64_t& out) { out = sum_of(expression, rule); }
  void compute(const std::string& expression, const FamilyRule& rule, bool& out) { out = condition_holds(expression, rule); }
  void compute(const std::string& expression, const FamilyRule& rule, double& out) {
    const size_t over = expression.find(" / ");
    out = number_of(expression.substr(0, over), rule);
    if (over == std::string::npos) return;
    const double below = number_of(expression.substr(over + 3), rule);
    if (below == 0) return mistake(rule, fmt::format("'{}': '{}' is 0", expression, expression.substr(over + 3)));
    out /= below;
  }
  void compute(const std::string& expression, const FamilyRule&, std::string& out) { out = expression; }
  template <class E>
  requires std::is_enum_v<E>
  void compute(const std::string& expression, const FamilyRule& rule, E& out) {
    constexpr auto names = [] {
      if constexpr (std::is_same_v<E, Norm>)
        return kNormNames;
      else
        return kAttentionNames;
    }();
    const auto found = std::find(names.begin(), names.end(), expression);
    if (found == names.end()) return mistake(rule, fmt::format("found '{}', expected one of {}", expression, fmt::join(names, ", ")));
    out = static_cast<E>(found - names.begin());
  }

  void mistake(const FamilyRule& rule, std::string message) {
    diagnostics_.push_back(error(code::kUnknownValue, rule.location, std::move(message)));
  }

  // A value, or a field, as text.
  std::string text_of(std::string_view name, const FamilyRule& rule) {
    if (const auto value = values_.find(name); value != values_.end()) return value->second;
    const GeometryField* field = find_geometry_field(name);
    if (field == nullptr) {
      mistake(rule, fmt::format("'{}' is neither a field of a model nor one of the values of family '{}'", name, family_.name));
      return "0";
    }
    const bool is_filled_later = name == "head_size" && g_.head_size == 0 && g_.num_heads > 0;  // fill_head_size()
    return is_filled_later ? fmt::format("{}", g_.hidden / g_.num_heads) : field_text(*field, g_);
  }

  // "true", "alibi", "not alibi", "attn_type = multiquery_attention"; a number holds unless it is 0.
  bool condition_holds(std::string_view condition, const FamilyRule& rule) {
    return distsetup::condition_holds(condition, [&](std::string_view subject) -> std::string {
      return subject == "true" || subject == "false" ? std::string(subject) : text_of(subject, rule);
    });
  }

  // "4 * hidden", "a + b": sums of products; too large for 64 bits is -1, which validate() refuses.
  int64_t sum_of(std::string_view expression, const FamilyRule& rule) {
    if (const size_t plus = expression.find(" + "); plus != std::string_view::npos) {
      int64_t sum = 0;
      const bool overflows =
          __builtin_add_overflow(sum_of(expression.substr(0, plus), rule), sum_of(expression.substr(plus + 3), rule), &sum);
      return overflows ? -1 : sum;
    }
    if (const size_t times = expression.find(" * "); times != std::string_view::npos) {
      int64_t product = 0;
      const bool overflows =
          __builtin_mul_overflow(sum_of(expression.substr(0, times), rule), sum_of(expression.substr(times + 3), rule), &product);
      return overflows ? -1 : product;
    }
    const Result<int64_t> literal = as_int(scalar_value(std::string(expression)));
    if (literal.ok()) return *literal;
    return take<int64_t>(as_int(scalar_value(text_of(expression, rule), rule.location)), 0);
  }

  // "1.5", "scale_depth", "4 * hidden", "sqrt(num_layers)".
  double number_of(std::string_view term, const FamilyRule& rule) {
    constexpr std::string_view kRoot = "sqrt(";
    if (term.starts_with(kRoot) && term.ends_with(')'))
      return std::sqrt(number_of(term.substr(kRoot.size(), term.size() - kRoot.size() - 1), rule));
    if (const Result<double> literal = as_double(scalar_value(std::string(term))); literal.ok()) return *literal;
    if (term.find(' ') != std::string_view::npos) return static_cast<double>(sum_of(term, rule));
    return take<double>(as_double(scalar_value(text_of(term, rule), rule.location)), 0);
  }

  // The items of a list for each layer, of which [["global", "local"], 12] are 24.
  std::vector<Value> each_layer(const Value& list) {
    std::vector<Value> items;
    const auto is_full = [&] { return std::ssize(items) >= g_.num_layers; };
    for (const Value& item : list.items) {
      const bool is_repeated = item.items.size() == 2 && !item.items[0].items.empty();
      const int64_t times = is_repeated ? integer("attention_types", item.items[1], 0) : 1;
      for (int64_t i = 0; i < times && !is_full(); ++i)
        for (const Value& each : is_repeated ? item.items[0].items : std::vector<Value>{item})
          if (!is_full()) items.push_back(each);
    }
    return items;
  }

  // What a list under `key` says of each layer, as a pattern; nothing where there is no list. Another one is said to be wrong.
  template <class F>
  std::optional<int64_t> layer_pattern(const char* key, F is_of_kind, std::string_view each) {
    const Value* list = stated(key);
    if (list == nullptr || list->items.empty()) return std::nullopt;
    const std::vector<Value> items = each_layer(*list);
    std::vector<bool> layers;
    for (const Value& item : items) layers.push_back(is_of_kind(item.text));
    const LayerPattern pattern = pattern_of(layers);
    if (pattern.odd) {
      const Value& item = items[static_cast<size_t>(*pattern.odd)];
      const int64_t n = std::abs(pattern.every);
      const std::string where = n == 1 ? "all layers" : fmt::format("each {} layers", n);
      diagnostics_.push_back(error(code::kUnsupportedArchitecture, item.location,
                                   fmt::format("'{}' has {} at layer {}, expected {} {} {}", key, item.text, *pattern.odd, each,
                                               pattern.every < -1 ? "first in" : "in", where)));
    }
    return pattern.every;
  }

  // `layer_types` lists what each layer sees (GPT-Neo: `attention_layers`, or `attention_types`), which goes before all else.
  void read_layers_without_window() {
    if (g_.sliding_window == 0) return;
    std::optional<int64_t> every;
    for (const auto& [key, whole] : {std::pair("attention_types", "global"), std::pair("attention_layers", "global"),
                                     std::pair("layer_types", "full_attention")}) {
      const auto sees_all = [all = whole](const std::string& kind) { return kind == all; };
      if (const auto listed = layer_pattern(key, sees_all, whole)) every = listed;
    }
    g_.global_layer_every = every ? *every : with_window_layers(g_.global_layer_every);
    if (g_.global_layer_every == 1) g_.sliding_window = g_.global_layer_every = 0;
  }

  // A pattern of layers without a window, and those that the family's keys leave without one beside.
  int64_t with_window_layers(int64_t every) {
    const WindowLayerKeys& keys = family_.window_layers;
    const std::string& key = keys.first.empty() ? keys.end : keys.first;
    if (key.empty() || g_.num_layers > kMostLayers) return every;
    const int64_t at = integer(key, keys.absent);
    std::vector<bool> layers;
    for (int64_t i = 0; i < g_.num_layers; ++i) layers.push_back((keys.first.empty() ? i >= at : i < at) || is_in_pattern(i, every));
    const LayerPattern pattern = pattern_of(layers);
    const Value* value = stated(key);
    if (pattern.odd)
      diagnostics_.push_back(
          error(code::kUnsupportedArchitecture, value == nullptr ? config_.location : value->location,
                fmt::format("'{}' is {}: of {} layers some have a window, expected all or none of them", key, at, g_.num_layers)));
    return pattern.every;
  }

  // `no_rope_layers` has a 0 for each layer without rotary positions (SmolLM3), which goes before a stated interval.
  void read_unrotated_layers() {
    if (g_.unrotated_layer_every == 0) return;
    const auto is_unrotated = [](const std::string& item) { return item == "0" || item == "false"; };
    if (const auto every = layer_pattern("no_rope_layers", is_unrotated, "a 0")) g_.unrotated_layer_every = *every;
  }

  void read_expert_layers() {
    const ExpertLayerKeys& keys = family_.expert_layers;
    if (g_.num_experts <= 0) return;
    if (const Value* kinds = keys.kinds.empty() ? nullptr : stated(keys.kinds); kinds != nullptr && !kinds->items.empty()) {
      for (const Value& kind : kinds->items) g_.expert_layer.push_back(kind.text == "sparse");
      return;
    }
    const int64_t first = integer(keys.first_dense, keys.first_dense_default);
    const Value* last_stated = keys.last.empty() ? nullptr : stated(keys.last);
    const int64_t last = last_stated == nullptr ? -1 : take<int64_t>(as_int(*last_stated), -1);
    const int64_t end = last < 0 ? g_.num_layers : std::min(last + 1, g_.num_layers);
    const int64_t every = std::max<int64_t>(integer(keys.every, 1), 1);
    const Value* dense = keys.dense.empty() ? nullptr : stated(keys.dense);
    const bool all_have_experts = first == 0 && end == g_.num_layers && every == 1 && (dense == nullptr || dense->items.empty());
    if (all_have_experts || g_.num_layers < 0 || g_.num_layers > kMostLayers) return;
    for (int64_t i = 0; i < g_.num_layers; ++i)
      g_.expert_layer.push_back(i >= first && i < end && (i + (keys.at_last ? 1 : 0)) % every == 0);
    if (dense == nullptr) return;
    for (const Value& item : dense->items) {
      const int64_t layer = take<int64_t>(as_int(item), -1);
      if (layer >= 0 && layer < g_.num_layers) g_.expert_layer[static_cast<size_t>(layer)] = false;
    }
  }

  // d = h / a where the file states no d.
  void fill_head_size() {
    if (g_.head_size != 0 || g_.num_heads <= 0 || g_.hidden <= 0) return;
    if (g_.hidden % g_.num_heads == 0) {
      g_.head_size = g_.hidden / g_.num_heads;
      return;
    }
    diagnostics_.push_back(error(code::kIndivisible, config_.location,
                                 fmt::format("hidden_size {} is not divisible by {} heads", g_.hidden, g_.num_heads),
                                 "state head_dim, or choose hidden_size as a multiple of num_attention_heads"));
  }

  std::string set_to(std::string_view condition, const Value& value) const {
    return fmt::format("'{}' of model_type '{}' is set to '{}'", condition_subject(condition), family_.name, value.text);
  }

  void refuse_if_set(std::string_view condition) {
    if (const Value* value = stated_as(config_, condition))
      diagnostics_.push_back(
          error(code::kUnsupportedArchitecture, value->location, set_to(condition, *value) + ", which is not supported"));
  }

  void mark_unlike_if_set(std::string_view condition) {
    const Value* value = g_.unlike_family.empty() ? stated_as(config_, condition) : nullptr;
    if (value != nullptr)
      g_.unlike_family =
          fmt::format("{} ({}:{}:{})", set_to(condition, *value), value->location.file, value->location.line, value->location.column);
  }

  void note_left_out(const std::string& key, const std::string& what) {
    const int64_t count = integer(key, 0);
    if (count == 0) return;
    diagnostics_.push_back(note(code::kUnsupportedArchitecture, stated(key)->location,
                                fmt::format("{} {}{} left out of the model", count, what, count == 1 ? " is" : "s are")));
  }

  const Value& config_;
  const Family& family_;
  Diagnostics& diagnostics_;
  Geometry g_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace

Geometry read_config(const Value& config, const Family& family, const std::string& name, Diagnostics& diagnostics) {
  return ConfigReading(config, family, diagnostics).read(name);
}

}  // namespace distsetup
