#include "cli/commands/data_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "base/quantity.h"
#include "data/set_json.h"

namespace distsetup {
namespace {

std::string split_text(std::string_view what, const SplitCounts& c, bool holds_pairs) {
  return fmt::format("{:<9} {:>14} {}  {:>16} tokens  {:>16} trained\n", what, format_count(holds_pairs ? c.samples / 2 : c.samples),
                     holds_pairs ? "pairs  " : "samples", format_count(c.tokens), format_count(c.trained_tokens));
}

}  // namespace

std::string set_text(const SetDescription& set) {
  std::string out = split_text("training", set.training, set.holds_pairs) + split_text("held out", set.held_out, set.holds_pairs);
  out += fmt::format("tokenizer {}, {} ids; the longest sample has {} tokens\n", set.tokenizer, format_count(set.vocabulary_size),
                     format_count(set.longest));
  const int64_t most = set.lengths.empty() ? 0 : *std::max_element(set.lengths.begin(), set.lengths.end());
  constexpr int64_t kBar = 40;
  for (size_t i = 0; i < set.lengths.size(); ++i) {
    if (set.lengths[i] == 0) continue;
    std::string bar;
    for (int64_t n = 0; n < (set.lengths[i] * kBar + most - 1) / most; ++n) bar += "█";
    out += fmt::format("  up to {:>10} tokens {:>12}  {}\n", format_count(int64_t{1} << i), format_count(set.lengths[i]), bar);
  }
  return out;
}

Json set_to_json(const SetDescription& set) {
  Json json = json_from_text(format_set_description(set));
  json["schema_version"] = 1;
  return json;
}

std::string printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
  return text;
}

}  // namespace distsetup
