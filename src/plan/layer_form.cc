#include "plan/layer_form.h"

#include <algorithm>
#include <cmath>

#include "base/value_yaml.h"
#include "model/condition.h"
#include "model/count.h"
#include "model/geometry_fields.h"
#include "model/rope.h"

namespace distsetup {

LayerForm layer_form(const Geometry& geometry, int64_t layer) {
  return {has_window(geometry, layer), is_expert_layer(geometry, layer), is_rotated(geometry, layer)};
}

bool is_subject(std::string_view subject) {
  return subject == kLocal || subject == kExperts || subject == kRotated || subject == kTied ||
         find_geometry_field(subject) != nullptr;
}

std::string subject_text(std::string_view subject, const Geometry& geometry, LayerForm layer) {
  if (subject == kLocal) return layer.local ? "true" : "false";
  if (subject == kExperts) return layer.experts ? "true" : "false";
  if (subject == kRotated) return layer.rotated ? "true" : "false";
  if (subject == kTied) return geometry.tied_embeddings ? "true" : "false";
  return field_text(*find_geometry_field(subject), geometry);
}

bool all_hold(const std::vector<std::string>& conditions, const Geometry& geometry, LayerForm layer) {
  const auto text_of = [&](std::string_view subject) { return subject_text(subject, geometry, layer); };
  return std::all_of(conditions.begin(), conditions.end(), [&](const std::string& c) { return condition_holds(c, text_of); });
}

std::optional<double> number_of(std::string_view text, const Geometry& geometry, LayerForm layer) {
  if (text == kLayerWindow) return layer.local ? static_cast<double>(geometry.sliding_window) : 0;
  if (text == kScoreScale) return score_scale(geometry);
  if (text.starts_with("1/")) {
    const std::optional<double> below = number_of(text.substr(2), geometry, layer);
    return below && *below != 0 ? 1 / *below : below;
  }
  if (text.starts_with("sqrt(") && text.ends_with(")")) {
    const std::optional<double> square = number_of(text.substr(5, text.size() - 6), geometry, layer);
    return square ? std::optional<double>(std::sqrt(*square)) : std::nullopt;
  }
  const GeometryField* field = find_geometry_field(text);
  const std::string value = field == nullptr ? std::string(text) : field_text(*field, geometry);
  if (field != nullptr && (value == "true" || value == "false")) return value == "true" ? 1 : 0;
  return as_double(scalar_value(value)).value;
}

}  // namespace distsetup
