// A text on its way through a tokenizer: normalizers and pre-tokenizers change it and cut it into pieces, and every byte of it still
// knows which bytes of the input it stands for. That is how tokens get their offsets.
//
// The rule of the tokenizers library: a character that replaces another takes its range; a character that is put in takes the range of
// the one before it. All bytes of a character have one range.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace distsetup {

constexpr int64_t kNoToken = -1;

// A part of the text: [begin, end) in `bytes`; with `token` it is an added token already.
struct Piece {
  TextRange range;
  int64_t token = kNoToken;
};

struct AlignedText {
  std::string bytes;
  std::vector<TextRange> spans;  // of each byte, in the input; empty: nothing has been changed, bytes is the input
  std::vector<Piece> pieces;     // in order, none empty

  std::string_view view(TextRange range) const { return std::string_view(bytes).substr(range.begin, range.end - range.begin); }
  // The range in the input of bytes [begin, end), begin < end: whole characters.
  TextRange in_input(TextRange range) const;
};

AlignedText aligned_text(std::string_view input);  // one piece; none when it is empty

// Writes the next version of a text: copied, replaced and inserted characters, piece by piece.
class AlignedTextBuilder {
 public:
  explicit AlignedTextBuilder(const AlignedText& from) : from_(from) {}
  void begin_piece() { piece_begin_ = static_cast<uint32_t>(to_.bytes.size()); }
  void end_piece(int64_t token = kNoToken);  // an empty one is left out
  void copy(TextRange range);                // bytes of the old text as they are
  // Text in place of the old text's character (or characters) whose first byte is at `at`.
  void replace(std::string_view text, size_t at) {
    add(text, from_.in_input({static_cast<uint32_t>(at), static_cast<uint32_t>(at + 1)}));
  }
  void add(std::string_view text, TextRange span);
  AlignedText take() { return std::move(to_); }

 private:
  const AlignedText& from_;
  AlignedText to_;
  uint32_t piece_begin_ = 0;
};

}  // namespace distsetup
