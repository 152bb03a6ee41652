#include "plan/published_order.h"

#include <utility>

#include "model/rope.h"

namespace distsetup {

std::string published_name(const Parameter& p) {
  if (p.stacked_at < 0) return p.name;
  const size_t last = p.name.rfind('.'), number = p.name.rfind('.', last - 1);
  return p.name.substr(0, number) + p.name.substr(last);
}

int64_t published_row(const Parameter& p, const Geometry& g, int64_t row) {
  if (p.order == RowOrder::kPlain) return row;
  if (p.order == RowOrder::kPairs) {
    const int64_t element = row % g.head_size, half = rotated_elements(g) / 2;
    if (element >= 2 * half) return row;
    return row - element + (element < half ? 2 * element : 2 * (element - half) + 1);
  }
  // [q of group 0 .., k of group 0, v of group 0, q of group 1 ..], d rows each
  const int64_t d = g.head_size, group_size = g.num_heads / g.num_kv_heads, head = row / d;
  const bool is_q = head < g.num_heads;
  const int64_t group = is_q ? head / group_size : (head - g.num_heads) % g.num_kv_heads;
  const int64_t inside = is_q ? head % group_size : group_size + (head - g.num_heads) / g.num_kv_heads;
  return (group * (group_size + 2) + inside) * d + row % d;
}

int64_t published_element(const Parameter& p, const Geometry& g, int64_t element) {
  const int64_t width = p.full_shape.size() > 1 ? p.full_shape[1] : 1;
  const int64_t row = published_row(p, g, element / width), column = element % width;
  return p.transposed ? column * p.full_shape[0] + row : row * width + column;
}

std::vector<int64_t> published_shape(const Parameter& p) {
  if (p.published_rows > 0) return {p.published_rows, full_numel(p) / p.published_rows};
  std::vector<int64_t> shape = p.full_shape;
  if (p.transposed) std::swap(shape.front(), shape.back());
  return shape;
}

bool is_stored_straight(const Parameter& p, const std::vector<int64_t>& shape) {
  return p.stacked_at >= 0 && p.transposed && shape == p.full_shape && shape != published_shape(p);
}

}  // namespace distsetup
