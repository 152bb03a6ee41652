// Bytes as symbols: "c*(a+2*kv)*d*T/t", kept as a sum of products, so that a program is parsed once and evaluated for many setups.
// Integers, names, + * /, parentheses; division by a name or a number only (it rounds down, last).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup::replay {

// Symbols of a setup. Tensor sizes inside a kernel are symbols too, from kFirstLocal on.
enum class Symbol : uint8_t {
  kTokens,                // T: of a micro-batch on a rank
  kSequence,              // S
  kHidden,                // h
  kHeads,                 // a
  kKvHeads,               // kv
  kHeadSize,              // d
  kFeedForward,           // f
  kVocabulary,            // V
  kTensorParallel,        // t
  kSequenceShards,        // s: t with sequence parallelism, else 1
  kComputeBytes,          // c
  kGroup,                 // n: chunks of a chunked loss
  kLossRows,              // rows: of one chunk of a fused linear cross entropy
  kAdapterRank,           // r
  kAdapterBytes,          // e: of an adapter's weight
  kResidualBytes,         // b: of the residual stream (fp32 after k-bit preparation)
  kWeightElements,        // w: of the op's own weight
  kExperts,               // E
  kExpertsPerToken,       // k
  kExpertFeedForward,     // fe
  kSharedFeedForward,     // fs: of all shared experts
  kLocalExperts,          // l: on this rank
  kExpertTensorParallel,  // y: ranks that share an expert's matrices
  kRoutedRows,            // R: rows that this rank's experts get
  kQueryLatent,           // rq: rank of the query's latent
  kKvLatent,              // rk: of the latent of keys and values
  kNopeHeadSize,          // dn: of a head, without position
  kRopeHeadSize,          // dr: of a head, with position
  kValueHeadSize,         // dv
  kMlpRows,               // m: tokens that go through an MLP at once: T, or those of a tile
  kDeltaRule,             // z: bytes that a layer keeps whose recurrence runs by PyTorch's operations
  kUlyssesKvHeads,        // ku: kv heads of all ranks between Ulysses' exchanges, where each has one at least
  kCount
};
inline constexpr int kFirstLocal = 32;
inline constexpr int kMaxLocals = 20;
using SymbolValues = int64_t[kFirstLocal + kMaxLocals];

struct SizeExpression {
  struct Product {
    int64_t factor = 1, divisor = 1;
    uint8_t num_times = 0, num_over = 0;
    uint8_t times[6] = {}, over[3] = {};
  };
  std::vector<Product> sum;
  bool empty() const { return sum.empty(); }
  int64_t evaluate(const int64_t* values) const {
    int64_t total = 0;
    for (const Product& product : sum) {
      int64_t value = product.factor, divisor = product.divisor;
      for (int i = 0; i < product.num_times; ++i) value *= values[product.times[i]];
      for (int i = 0; i < product.num_over; ++i) divisor *= values[product.over[i]];
      total += divisor == 1 ? value : value / divisor;
    }
    return total;
  }
};

// -1: no such name.
int symbol_index(std::string_view name);

// `find` maps a name to the index of its value, -1 when there is none. False, with what is wrong in `problem`, when the text is no
// expression.
bool parse_size(std::string_view text, const std::function<int(std::string_view)>& find, SizeExpression& out, std::string& problem);

}  // namespace distsetup::replay
