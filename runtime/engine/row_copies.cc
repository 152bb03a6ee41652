#include "runtime/engine/row_copies.h"

#include <algorithm>
#include <map>

namespace distsetup {
namespace {

using Copies = std::vector<RowCopy>;

// A stretch of columns of T rows, from row first_row on.
struct Columns {
  char* data = nullptr;
  int64_t pitch = 0, bytes = 0, num_rows = 0;
};
Columns columns(const Argument& rows, const OpContext& x, int64_t first, int64_t count, int64_t first_row = 0) {
  const int64_t element = size_bytes(rows.dtype), pitch = rows.dim(1) * element;
  return {static_cast<char*>(rows.data) + first_row * pitch + first * element, pitch, count * element, x.T};
}
RowCopy copy(const Columns& to, const Columns& from) { return {to.data, from.data, to.pitch, from.pitch, from.bytes, from.num_rows}; }

// Between rows of all ranks, one rank after the other, and those of whole sequences.
Copies between_orders(const Call& c, bool to_sequences) {
  const OpContext& x = *c.context;
  const Argument &from = c.reads[0], &to = c.writes[0];
  const int64_t row = from.dim(1) * size_bytes(from.dtype), length = x.cp * x.S;
  Copies copies;
  for (int rank = 0; rank < x.cp; ++rank) {
    const Positions own = own_positions(length, x.cp, rank);
    for (const bool is_second : {false, true}) {
      const int64_t of_rank = (rank * x.T + (is_second ? own.chunk : 0)) * row, pitch_of_rank = x.S * row;
      const int64_t of_sequence = (is_second ? own.second : own.first) * row, pitch_of_sequence = length * row;
      const int64_t bytes = (is_second ? own.rows - own.chunk : own.chunk) * row;
      char* const target = static_cast<char*>(to.data);
      const char* const source = static_cast<const char*>(from.data);
      if (to_sequences)
        copies.push_back({target + of_sequence, source + of_rank, pitch_of_sequence, pitch_of_rank, bytes, x.B});
      else
        copies.push_back({target + of_rank, source + of_sequence, pitch_of_rank, pitch_of_sequence, bytes, x.B});
    }
  }
  return copies;
}
Copies to_sequences(const Call& c) { return between_orders(c, true); }
Copies to_ranks(const Call& c) { return between_orders(c, false); }

// Columns of q, k and v heads as they lie in qkv, or q and k in qk and v in qkv: `rows` holds one operand or both.
struct Part {
  const Argument* rows;
  int64_t first, count;
};
std::vector<Part> parts_of(const std::vector<Argument>& rows, const OpContext& x) {
  const int64_t q = x.a * x.d, k = x.kv * x.d;
  return {{&rows.front(), 0, q}, {&rows.front(), q, k}, {&rows.back(), q + k, k}};
}

// qkv | qk, qkv <-> kv
Copies pack_kv(const Call& c) {
  const std::vector<Part> parts = parts_of(c.reads, *c.context);
  Copies copies;
  for (const int i : {1, 2})
    copies.push_back(copy(columns(c.writes[0], *c.context, (i - 1) * parts[i].count, parts[i].count),
                          columns(*parts[i].rows, *c.context, parts[i].first, parts[i].count)));
  return copies;
}
Copies unpack_kv(const Call& c) {
  const std::vector<Part> parts = parts_of(c.writes, *c.context);
  Copies copies;
  for (const int i : {1, 2})
    copies.push_back(copy(columns(*parts[i].rows, *c.context, parts[i].first, parts[i].count),
                          columns(c.reads[0], *c.context, (i - 1) * parts[i].count, parts[i].count)));
  return copies;
}

// qkv | qk, qkv <-> for each rank, one after the other, the q, k and v of its heads
Copies between_heads(const std::vector<Argument>& rows, const Argument& by_rank, const OpContext& x, bool to_ranks) {
  Copies copies;
  for (int rank = 0; rank < x.cp; ++rank) {
    int64_t column = 0;
    for (const Part& part : parts_of(rows, x)) {
      const int64_t share = part.count / x.cp;
      const Columns whole = columns(*part.rows, x, part.first + rank * share, share);
      const Columns mine = columns(by_rank, x, column, share, rank * x.T);
      copies.push_back(to_ranks ? copy(mine, whole) : copy(whole, mine));
      column += share;
    }
  }
  return copies;
}
Copies pack_heads(const Call& c) { return between_heads(c.reads, c.writes[0], *c.context, true); }
Copies unpack_heads_gradient(const Call& c) { return between_heads(c.writes, c.reads[0], *c.context, false); }

// From each rank the attention of its heads <-> all heads of a token
Copies between_attention(const Argument& by_rank, const Argument& att, const OpContext& x, bool to_ranks) {
  const int64_t share = x.a * x.d / x.cp;
  Copies copies;
  for (int rank = 0; rank < x.cp; ++rank) {
    const Columns whole = columns(att, x, rank * share, share), mine = columns(by_rank, x, 0, share, rank * x.T);
    copies.push_back(to_ranks ? copy(mine, whole) : copy(whole, mine));
  }
  return copies;
}
Copies unpack_attention(const Call& c) { return between_attention(c.reads[0], c.writes[0], *c.context, false); }
Copies pack_attention_gradient(const Call& c) { return between_attention(c.writes[0], c.reads[0], *c.context, true); }

// ckv -> the latent, its first columns; and the latent's gradient -> those of ckv's.
Copies copy_latent(const Call& c) {
  const int64_t count = std::min(c.reads[0].dim(1), c.writes[0].dim(1));
  return {copy(columns(c.writes[0], *c.context, 0, count), columns(c.reads[0], *c.context, 0, count))};
}

}  // namespace

Copies row_copies(const std::string& kernel, const Call& c) {
  static const std::map<std::string, Copies (*)(const Call&)> kKernels = {{"kv_pack", pack_kv},
                                                                          {"kv_pack_split", pack_kv},
                                                                          {"kv_pack_backward", unpack_kv},
                                                                          {"kv_pack_split_backward", unpack_kv},
                                                                          {"kv_sort", to_sequences},
                                                                          {"kv_sort_backward", to_ranks},
                                                                          {"heads_pack", pack_heads},
                                                                          {"heads_pack_split", pack_heads},
                                                                          {"heads_pack_backward", unpack_heads_gradient},
                                                                          {"heads_pack_split_backward", unpack_heads_gradient},
                                                                          {"heads_sort", to_sequences},
                                                                          {"heads_sort_backward", to_ranks},
                                                                          {"heads_unsort", to_ranks},
                                                                          {"heads_unsort_backward", to_sequences},
                                                                          {"heads_unpack", unpack_attention},
                                                                          {"heads_unpack_backward", pack_attention_gradient},
                                                                          {"latent_part", copy_latent},
                                                                          {"latent_part_backward", copy_latent}};
  const auto found = kKernels.find(kernel);
  return found == kKernels.end() ? Copies{} : found->second(c);
}

}  // namespace distsetup
