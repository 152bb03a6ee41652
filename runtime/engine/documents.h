// The documents of packed rows (src/plan/packed_rows.h), for ops that go through them one by one.
#pragma once
#include <cstdint>

namespace distsetup {

// use(begin, end) for each document: its tokens among num_tokens.
template <class Use>
void each_document(const int64_t* cu_seqlens, int64_t num_tokens, Use use) {
  for (const int64_t* at = cu_seqlens; at[0] < num_tokens; ++at) use(at[0], at[1]);
}

}  // namespace distsetup
