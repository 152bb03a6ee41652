// The fields of Geometry by name, once: as presets spell them and as presets/families/ fills them from a config.json.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "model/geometry.h"

namespace distsetup {

struct GeometryField {
  std::string_view name;
  std::variant<int64_t Geometry::*, double Geometry::*, bool Geometry::*, std::string Geometry::*, Norm Geometry::*,
               Attention Geometry::*>
      member;
};

// In an order in which a field may be computed from those before it (feed_forward from hidden).
std::span<const GeometryField> geometry_fields();
const GeometryField* find_geometry_field(std::string_view name);               // nullptr when there is none
std::string field_text(const GeometryField& field, const Geometry& geometry);  // "rms", "true", "4096"

// Beside the values of the two enumerations.
inline constexpr std::array<std::string_view, 3> kNormNames = {"rms", "layer", "layer_no_bias"};
inline constexpr std::array<std::string_view, 2> kAttentionNames = {"grouped", "latent"};

}  // namespace distsetup
