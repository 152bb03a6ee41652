// Which token comes next, of the logits of all.
#pragma once
#include <cstdint>
#include <random>
#include <span>

namespace distsetup {

struct Sampling {
  double temperature = 0;  // logits are divided by it; 0: always the likeliest token
  int64_t top_k = 0;       // only so many of the likeliest; 0: all
  double top_p = 1;        // only the fewest likeliest whose probabilities reach this sum (Holtzman et al., arXiv 1904.09751)
};

// First top_k, then top_p, as Transformers' generate. Of equal logits the lower token counts as likelier. The same logits, numbers and
// state of `random` give the same token on every machine. Throws std::domain_error when a logit is not a number.
int64_t next_token(std::span<const float> logits, const Sampling& sampling, std::mt19937_64& random);

}  // namespace distsetup
