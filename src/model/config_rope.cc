#include "model/config_rope.h"

#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic_codes.h"
#include "model/config_keys.h"

namespace distsetup {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

class RopeReading {
 public:
  RopeReading(const Value& config, const Value& rope, Geometry& g, Diagnostics& diagnostics)
      : config_(config), rope_(rope), g_(g), diagnostics_(diagnostics) {}

  void read() {
    const Value* type = find("rope_type");
    if (type == nullptr) type = find("type");
    const std::string kind = type == nullptr ? "" : take<std::string>(as_text(*type), "");
    // Text has the same position in each of the three sections of `mrope` (Qwen VL).
    g_.rope_scaled = kind != "default" && kind != "mrope";
    double alpha = 0;
    if (kind == "dynamic") number("alpha", alpha);
    if (alpha > 0) {  // Hunyuan: a larger base, whatever the length
      const double d = static_cast<double>(g_.head_size > 0 || g_.num_heads <= 0 ? g_.head_size : g_.hidden / g_.num_heads);
      g_.rope_base *= std::pow(alpha, d / (d - 2));
      g_.rope_scaled = false;
    }
    if (!g_.rope_scaled || type == nullptr) return;
    g_.rope_scaling = find("short_factor") != nullptr ? "longrope" : kind;  // Phi 3 has called it su and yarn
    read_original_positions();
    number("factor", g_.rope_factor);
    if (g_.rope_scaling == "yarn") g_.rope_high_turns = 32;
    for (const char* key : {"low_freq_factor", "beta_slow"}) number(key, g_.rope_low_turns);
    for (const char* key : {"high_freq_factor", "beta_fast"}) number(key, g_.rope_high_turns);
    number("attention_factor", g_.rope_amplitude);
    number("mscale", g_.rope_mscale);
    number("mscale_all_dim", g_.rope_mscale_all);
    number("short_mscale", g_.rope_short_amplitude);
    number("long_mscale", g_.rope_long_amplitude);
    if (const Value* value = find("truncate")) g_.rope_truncated = take<bool>(as_bool(*value), true);
    numbers("short_factor", g_.rope_short_factors);
    numbers("long_factor", g_.rope_long_factors);
  }

 private:
  const Value* find(std::string_view key) const {
    const Value* value = rope_.find(key);
    return value == nullptr || value->kind == Value::Kind::kNull ? nullptr : value;
  }
  template <class T>
  T take(Result<T> result, T fallback) {
    append(diagnostics_, std::move(result.diagnostics));
    return result.value ? std::move(*result.value) : fallback;
  }
  void number(std::string_view key, double& out) {
    if (const Value* value = find(key)) out = take<double>(as_double(*value), out);
  }
  void numbers(std::string_view key, std::vector<double>& out) {
    if (const Value* list = find(key))
      for (const Value& item : list->items) out.push_back(take<double>(as_double(item), 1));
  }

  // And what they say of the factor, where it is not stated.
  void read_original_positions() {
    const Value* original = find(kOriginal);
    if (original == nullptr) original = stated_at(config_, kOriginal);
    if (g_.rope_scaling == "dynamic") original = nullptr;  // which does not look at it
    g_.rope_original_positions = original == nullptr ? g_.max_positions : take<int64_t>(as_int(*original), 0);
    if (g_.rope_original_positions < 0)
      diagnostics_.push_back(error(code::kOutOfRange, original->location,
                                   fmt::format("'{}' is {}, expected at least 0", kOriginal, g_.rope_original_positions)));
    if (g_.rope_original_positions > 0 && (g_.rope_scaling == "yarn" || g_.rope_scaling == "longrope"))
      g_.rope_factor = static_cast<double>(g_.max_positions) / static_cast<double>(g_.rope_original_positions);
  }

  const Value& config_;
  const Value& rope_;
  Geometry& g_;
  Diagnostics& diagnostics_;
};

}  // namespace

void read_rope_scaling(const Value& config, Geometry& g, Diagnostics& diagnostics) {
  const Value* rope = stated_at(config, "rope_parameters");
  if (rope == nullptr) rope = stated_at(config, "rope_scaling");
  if (rope == nullptr) return;
  if (const Value* whole = rope->find("full_attention")) rope = whole;  // beside that of layers with a window (Gemma 3)
  RopeReading(config, *rope, g, diagnostics).read();
}

}  // namespace distsetup
