// A tokenizer: from a text to numbers and back, equal to the library that its file was written for.
//
//   input -> added tokens -> normalizers -> added tokens -> pre-tokenizers -> model -> post-processing
//
// A Tokenizer is read once (read_tokenizer.h) and never changes: threads may share it. An Encoder belongs to one thread; it remembers
// the words that it has seen.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/unigram.h"

namespace distsetup {

struct Tokenizer {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::variant<Bpe, Unigram> model;
  std::vector<AddedToken> added_tokens;  // by id
  AddedTokenMatcher in_input, in_normalized;
  std::vector<Decoder> decoders;
  std::vector<std::string> tokens;      // by id, as the file writes them; empty: there is no such id
  std::vector<std::string> decoded_as;  // of added tokens that normalizers change: what decoders get; else empty

  std::optional<SentencePieceDecoding> sentencepiece;  // of a SentencePiece model, instead of decoders

  // After the model: blanks at the ends of tokens do not count in their offsets; tokens around the text.
  bool trim_offsets = false, trim_keeps_prefix_space = false;
  std::vector<uint32_t> before, after;

  std::optional<uint32_t> bos, eos, pad;
  std::string digest;  // SHA-256 of the files that it was read from
  std::string file;    // the file that it was read from

  size_t vocabulary_size() const { return tokens.size(); }  // the largest id plus one: rows of the embedding
  std::optional<uint32_t> id_of(std::string_view token) const;
};

enum class Specials { kFound, kText };  // in the text: special tokens' names are these tokens; are text like any other

struct EncodeOptions {
  bool add_special_tokens = true;  // those around the text: bos, eos
  Specials specials_in_text = Specials::kFound;
};

// offsets[i]: the bytes of the input that ids[i] stands for, whole characters: tokens that share a character have the same range.
// Empty for tokens around the text.
struct Encoding {
  std::vector<uint32_t> ids;
  std::vector<TextRange> offsets;
  bool operator==(const Encoding&) const = default;
};

class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);  // which must outlive it
  ~Encoder();
  // Errors: the text is not UTF-8 (with the byte), is 4 GiB or more, or a regular expression gave up on it. Their location is the
  // caller's to fill in: he knows where the text is from.
  Result<Encoding> encode(std::string_view text, const EncodeOptions& options = {});

 private:
  struct Parts;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Parts> parts_;
};

Result<Encoding> encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {});

enum class SkipSpecials { kNo, kYes };
// An id that the vocabulary does not have is an error.
Result<std::string> decode(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids, SkipSpecials skip = SkipSpecials::kYes);

}  // namespace distsetup
