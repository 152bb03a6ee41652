#include "runtime/engine/kv_copies.h"

namespace distsetup {
namespace {

// A stretch of columns of an operand's rows.
struct Columns {
  char* data = nullptr;
  int64_t pitch = 0, bytes = 0, num_rows = 0;
};
Columns columns(const Argument& rows, int64_t first, int64_t count) {
  const int64_t element = size_bytes(rows.dtype);
  return {static_cast<char*>(rows.data) + first * element, rows.dim(1) * element, count * element, rows.dim(0)};
}
RowCopy copy(const Columns& to, const Columns& from) { return {to.data, from.data, to.pitch, from.pitch, from.bytes, from.num_rows}; }

// Between rows of whole sequences and those of all ranks, one rank after the other.
std::vector<RowCopy> between_orders(const Call& c, bool to_sequences) {
  const OpContext& x = *c.context;
  const Argument &from = c.reads[0], &to = c.writes[0];
  const int64_t row = from.dim(1) * size_bytes(from.dtype), length = x.cp * x.S;
  std::vector<RowCopy> copies;
  for (int rank = 0; rank < x.cp; ++rank) {
    const Positions own = own_positions(length, x.cp, rank);
    for (const bool is_second : {false, true}) {
      const int64_t of_rank = (rank * x.B * x.S + (is_second ? own.chunk : 0)) * row, pitch_of_rank = x.S * row;
      const int64_t of_sequence = (is_second ? own.second : own.first) * row, pitch_of_sequence = length * row;
      const int64_t bytes = (is_second ? own.rows - own.chunk : own.chunk) * row;
      if (to_sequences)
        copies.push_back({static_cast<char*>(to.data) + of_sequence, static_cast<const char*>(from.data) + of_rank, pitch_of_sequence,
                          pitch_of_rank, bytes, x.B});
      else
        copies.push_back({static_cast<char*>(to.data) + of_rank, static_cast<const char*>(from.data) + of_sequence, pitch_of_rank,
                          pitch_of_sequence, bytes, x.B});
    }
  }
  return copies;
}

}  // namespace

std::vector<RowCopy> kv_copies(const std::string& kernel, const Call& c) {
  const int64_t q = c.context->a * c.context->d, k = c.context->kv * c.context->d;
  if (kernel == "kv_pack") return {copy(columns(c.writes[0], 0, 2 * k), columns(c.reads[0], q, 2 * k))};
  if (kernel == "kv_pack_backward") return {copy(columns(c.writes[0], q, 2 * k), columns(c.reads[0], 0, 2 * k))};
  if (kernel == "kv_pack_split")
    return {copy(columns(c.writes[0], 0, k), columns(c.reads[0], q, k)),
            copy(columns(c.writes[0], k, k), columns(c.reads[1], q + k, k))};
  if (kernel == "kv_pack_split_backward")
    return {copy(columns(c.writes[0], q, k), columns(c.reads[0], 0, k)),
            copy(columns(c.writes[1], q + k, k), columns(c.reads[0], k, k))};
  if (kernel == "kv_sort" || kernel == "kv_sort_backward") return between_orders(c, kernel == "kv_sort");
  return {};
}

}  // namespace distsetup
