#include "plan/update_layout.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/published_order.h"

namespace distsetup {
namespace {

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Room for the elements of a unit that Muon leaves to AdamW. Which of them a rank has differs; the room does not.
int64_t rest_room(const UnitLayout& unit) {
  int64_t rest = 0;
  bool has_matrix = false;
  for (const Parameter& p : unit.parameters) {
    has_matrix = has_matrix || is_hidden_matrix(unit.kind, p);
    rest += is_hidden_matrix(unit.kind, p) ? 0 : p.numel;
  }
  return has_matrix ? std::min(unit.shard_numel, padded(rest, kShardAlignment)) : unit.shard_numel;
}

// Stretches of a rank's shard by parameter, of all parameters that checkpoints hold.
std::vector<MuonRange> all_ranges(const Layout& layout, const Coordinates& at) {
  std::vector<MuonRange> out;
  int64_t room = 0;
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    const UnitLayout& unit = layout.units[static_cast<size_t>(u)];
    if (unit.is_frozen) continue;
    const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
    int64_t rest = room;
    for (const Parameter& p : unit.parameters) {
      const auto [begin, end] = owned_part(layout, unit, p, at);
      if (begin >= end) continue;
      const bool is_hidden = is_hidden_matrix(unit.kind, p);
      const int64_t from = unit.shard_offset + begin - own.begin;
      out.push_back({from, from + end - begin, &p, u, is_hidden, is_hidden ? -1 : rest});
      rest += is_hidden ? 0 : end - begin;
    }
    room += rest_room(unit);
    CHECK(rest <= room, "unit {}: {} of {}", u, rest, room);
  }
  return out;
}

}  // namespace

StateSizes state_sizes(const Layout& layout) {
  int64_t rest = 0, factors = 0;
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_frozen) continue;
    rest += rest_room(unit);
    for (const Parameter& p : unit.parameters) factors += p.trains ? num_factors(p) : 0;
  }
  return {layout.shard_numel, rest, factors};
}

StateSizes stored_sizes(const Layout& layout) {
  return {layout.stored_numel, layout.stored_numel - layout.hidden_numel, layout.factored_numel};
}

FactoredLayout factored_layout(const Layout& layout) {
  FactoredLayout out;
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    const UnitLayout& unit = layout.units[static_cast<size_t>(u)];
    if (unit.is_frozen) continue;
    for (const Parameter& p : unit.parameters) {
      if (!p.trains) continue;
      const bool is_matrix = p.shape.size() == 2;
      CHECK(is_matrix || p.shape.size() == 1, "parameter {}", p.name);
      out.parameters.push_back({u, &p, p.shape[0], is_matrix ? p.shape[1] : 1, !is_matrix, out.num_factors, out.num_rows});
      out.num_factors += num_factors(p);
      out.num_rows += p.shape[0];
    }
  }
  return out;
}

double orthogonalize_flops(int64_t rows, int64_t columns, int64_t steps) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * (4 * m * m * n + 2 * m * m * m);  // X Xᵀ; its square; their sum times X
}

std::vector<std::vector<HiddenMatrix>> hidden_matrices(const Layout& layout) {
  std::vector<double> load(static_cast<size_t>(group_size(layout.mesh, layout.shard_group)));
  std::vector<std::vector<HiddenMatrix>> out(layout.units.size());
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const UnitLayout& unit = layout.units[u];
    if (unit.is_frozen) continue;
    for (const Parameter& p : unit.parameters)
      if (is_hidden_matrix(unit.kind, p)) out[u].push_back({&p, p.shape[0], p.shape[1], 0});
    std::vector<std::pair<double, HiddenMatrix*>> by_cost;
    for (HiddenMatrix& m : out[u]) by_cost.emplace_back(orthogonalize_flops(m.rows, m.columns, 1), &m);
    std::stable_sort(by_cost.begin(), by_cost.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [cost, matrix] : by_cost) {
      const auto least = std::min_element(load.begin(), load.end());
      matrix->owner = static_cast<int>(least - load.begin());
      *least += cost;
    }
  }
  return out;
}

std::vector<MuonRange> muon_ranges(const Layout& layout, const Coordinates& at) {
  std::vector<MuonRange> out = all_ranges(layout, at);
  std::erase_if(out, [](const MuonRange& range) { return !range.parameter->trains; });
  return out;
}

double rate_factor(const MuonPlan& muon, const Parameter& parameter) {
  const std::vector<int64_t> shape = published_shape(parameter);
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  return muon.adjust_lr == kMatchAdamW ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
}

namespace {

std::vector<StatePiece> factor_pieces(const Layout& layout, const Coordinates& at) {
  std::vector<StatePiece> out;
  for (const FactoredParameter& f : factored_layout(layout).parameters) {
    const UnitLayout& unit = layout.units[static_cast<size_t>(f.unit)];
    const bool is_copy = shard_index(layout, unit, at) != 0 || unit.is_copy;
    const auto add = [&](const char* suffix, int64_t offset, int64_t numel) {
      out.push_back({f.parameter->name, suffix, {numel}, {{0}, {numel}, offset}, is_copy});
    };
    if (f.is_vector) {
      add(".variance", f.offset, f.rows);
      continue;
    }
    add(".row_var", f.offset, f.rows);
    add(".col_var", f.offset + f.rows, f.columns);
  }
  return out;
}

}  // namespace

std::vector<StatePiece> state_pieces(const Layout& layout, std::string_view state, StateScope scope, const Coordinates& at) {
  if (scope == StateScope::kFactors) return factor_pieces(layout, at);
  std::vector<StatePiece> out;
  for (const MuonRange& range : all_ranges(layout, at)) {
    if (scope == StateScope::kRest && range.is_hidden) continue;
    const UnitLayout& unit = layout.units[static_cast<size_t>(range.unit)];
    const bool is_adamw = scope == StateScope::kMomenta && !range.is_hidden;
    const std::string suffix = "." + (is_adamw ? "exp_avg" : std::string(state));
    for (Box box : boxes_of(layout, unit, *range.parameter, at)) {
      if (scope == StateScope::kRest) box.shard_offset += range.rest_begin - range.begin;
      out.push_back(
          {range.parameter->name, suffix, range.parameter->full_shape, std::move(box), is_copy_of_another(layout, unit, at)});
    }
  }
  return out;
}

}  // namespace distsetup
