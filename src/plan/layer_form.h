// What sets layers of a model apart, and what the file of a family (native_file.h) may say of them: conditions and numbers.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace distsetup {

struct LayerForm {
  bool local = false;    // it has a window
  bool experts = false;  // it has experts, not one MLP
  bool rotated = true;   // queries and keys are turned by their positions
  auto operator<=>(const LayerForm&) const = default;
};
LayerForm layer_form(const Geometry& geometry, int64_t layer);

// Beside fields of Geometry, conditions ask whether the layer has a window, experts or rotary positions, and whether the head is the
// embedding; attributes may be the layer's window, 0 where it has none, or what scores are multiplied by (model/rope.h).
inline constexpr std::string_view kLocal = "local", kExperts = "experts", kRotated = "rotated", kTied = "tied",
                                  kLayerWindow = "layer_window", kScoreScale = "score_scale";
bool is_subject(std::string_view subject);  // of a condition
std::string subject_text(std::string_view subject, const Geometry& geometry, LayerForm layer);
bool all_hold(const std::vector<std::string>& conditions, const Geometry& geometry, LayerForm layer);
// A number, a field with one (1 where it is true), "sqrt(field)", "1/field", "1/sqrt(field)" (0 where the field is 0),
// "layer_window" or "score_scale". Empty: none of these.
std::optional<double> number_of(std::string_view text, const Geometry& geometry, LayerForm layer);

}  // namespace distsetup
