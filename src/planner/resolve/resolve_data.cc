#include "planner/resolve/resolve_data.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "data/pieces.h"

namespace distsetup {
namespace {

// Ids mean to the weights what their tokenizer says.
void check_tokenizer(Resolving& r, bool is_prepared) {
  if (!starts_from_weights(r.plan()) || r.inputs.own_tokenizer.empty()) return;
  if (!is_prepared)
    return r.fail(code::kData, "data.paths",
                  fmt::format("text in data.paths is read as bytes, and the weights know the tokens of '{}'", r.inputs.own_tokenizer),
                  "--sources FILES in place of --data FILES: they are read with that tokenizer");
  const std::string &own = r.inputs.own_tokenizer_digest, &of_data = r.inputs.data_tokenizer_digest;
  if (own.empty() || of_data.empty() || own == of_data) return;
  r.said.push_back(warning(code::kData, r.spec.at("data.paths"),
                           fmt::format("the data was prepared with another tokenizer than '{}', or with another tokenizer_config.json "
                                       "beside it: its ids may be other tokens",
                                       r.inputs.own_tokenizer),
                           "distsetup data prepare with --tokenizer and the folder of the weights"));
}

// Samples are cut at the end of a sequence.
void check_cuts(Resolving& r) {
  const int64_t length = r.plan().train.sequence_length;
  if (!r.inputs.long_samples.has_value() || length <= 0) return;
  const CutSamples found = cut_samples(*r.inputs.long_samples, r.inputs.data_holds_pairs, length);
  if (found.kept == found.trained) return;
  if (found.kept == 0)
    return r.fail(code::kData, "data.paths",
                  fmt::format("none of the {} {} has a token to train on within {}", format_count(found.samples),
                              r.inputs.data_holds_pairs ? "pairs" : "samples", format_count(length)),
                  "a longer --sequence-length");
  constexpr double kWorthAWarning = 0.01;  // of the trained tokens
  const bool is_much = static_cast<double>(found.trained - found.kept) > kWorthAWarning * static_cast<double>(found.trained);
  const std::string text =
      fmt::format("in sequences of {} tokens, {}", format_count(length), words_of(found, r.inputs.data_holds_pairs));
  r.said.push_back((is_much ? warning : note)(code::kData, r.spec.at("data.paths"), text, "a longer --sequence-length reads more"));
}

}  // namespace

void check_data_tokens(Resolving& r) {
  if (!r.native()) return;
  const bool is_prepared = r.plan().data.tokenizer == kPreparedTokens;
  check_tokenizer(r, is_prepared);
  if (is_prepared) check_cuts(r);
}

}  // namespace distsetup
