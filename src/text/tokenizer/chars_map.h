// SentencePiece's rules of normalization: beginnings of a text and what each becomes, as a double array (Darts) and a list of texts
// that end with a zero byte. tokenizer.json carries the same bytes as `precompiled_charsmap` (sentencepiece's normalizer.cc, darts.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

class CharsMap {
 public:
  // None: these bytes are no such rules. Every place that they point to has been checked.
  static std::optional<CharsMap> parse(std::string_view bytes);

  struct Rule {
    size_t num_bytes = 0;  // of the text that it replaces
    std::string_view by;
  };
  std::optional<Rule> longest(std::string_view text) const { return find(text, Take::kLongest); }
  std::optional<Rule> shortest(std::string_view text) const { return find(text, Take::kShortest); }

 private:
  enum class Take { kLongest, kShortest };
  std::optional<Rule> find(std::string_view text, Take take) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace distsetup
