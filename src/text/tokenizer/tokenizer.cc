#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/word_cache.h"

namespace distsetup {
namespace {

constexpr size_t kMostBytes = (size_t{1} << 32) - 1;  // of a text: offsets have 32 bits

// The first character of `text` is a blank, in a byte-level vocabulary too.
bool is_blank(uint32_t c) { return c == 0x120 || is_white_space(c); }

// How many blanks a token has at its ends (post-processing by trim_offsets).
struct Blanks {
  size_t leading = 0, trailing = 0;
};
Blanks blanks_of(std::string_view token) {
  Blanks blanks;
  for (size_t at = 0; at < token.size(); ++blanks.leading) {
    const CodePoint c = code_point_at(token, at);
    if (!is_blank(c.value)) break;
    at += c.num_bytes;
  }
  for (size_t at = token.size(); at > 0; ++blanks.trailing) {
    at = previous_at(token, at);
    if (!is_blank(code_point_at(token, at).value)) break;
  }
  return blanks;
}

void trim(TextRange& range, std::string_view token, std::string_view input, bool is_first, bool keeps_prefix_space) {
  Blanks blanks = blanks_of(token);
  if (blanks.leading > 0) {
    if ((is_first || range.begin == 0) && keeps_prefix_space && blanks.leading == 1) blanks.leading = 0;
    for (; blanks.leading > 0 && range.begin < range.end; --blanks.leading) range.begin += code_point_at(input, range.begin).num_bytes;
  }
  // A token that stands for fewer characters than it has blanks keeps its end, as in the library.
  uint32_t end = range.end;
  for (; blanks.trailing > 0 && end > 0; --blanks.trailing) end = static_cast<uint32_t>(previous_at(input, end));
  if (blanks.trailing == 0) range.end = std::max(end, range.begin);
}

}  // namespace

struct Encoder::Parts {
  RegexScratch regex;
  BpeScratch bpe;
  UnigramScratch unigram;
  WordCache cache;
  std::vector<WordToken> tokens;

  // The tokens of a word; false: the model has none for it.
  bool encode(const Bpe& model, std::string_view word) {
    if (word.size() > WordCache::kMostBytes) return encode_word(model, word, bpe, tokens);
    if (cache.find(word, tokens)) return true;
    const size_t before = tokens.size();
    if (!encode_word(model, word, bpe, tokens)) return false;
    cache.add(word, std::span(tokens).subspan(before));
    return true;
  }
  bool encode(const Unigram& model, std::string_view word) { return encode_word(model, word, unigram, tokens); }
};

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), parts_(std::make_unique<Parts>()) {}
Encoder::~Encoder() = default;

namespace {

// Where a piece may be cut without changing its tokens: the end of the part that begins at `begin`.
size_t end_of_part(std::string_view piece, size_t begin, std::string_view cut_before) {
  if (cut_before.empty()) return piece.size();
  size_t at = begin;
  while (piece.compare(at, cut_before.size(), cut_before) == 0) at += cut_before.size();  // a run of them stays together
  const size_t next = piece.find(cut_before, at);
  return next == std::string_view::npos ? piece.size() : next;
}

Diagnostic cannot_encode(std::string message, std::string help = "") {
  return error(code::kData, {}, std::move(message), std::move(help));
}

bool apply_steps(const Tokenizer& tokenizer, bool with_special, AlignedText& text, RegexScratch& scratch) {
  tokenizer.in_input.cut(text, with_special);
  for (const Normalizer& step : tokenizer.normalizers) {
    if (!normalize(step, text, scratch)) return false;
  }
  tokenizer.in_normalized.cut(text, with_special);
  for (const PreTokenizer& step : tokenizer.pre_tokenizers) {
    if (!pre_tokenize(step, text, scratch)) return false;
  }
  return true;
}

}  // namespace

Result<Encoding> Encoder::encode(std::string_view text, const EncodeOptions& options) {
  const Tokenizer& t = tokenizer_;
  if (text.size() > kMostBytes) return cannot_encode(fmt::format("a text of {} bytes, expected less than 4 GiB", text.size()));
  const size_t invalid = find_invalid(text);
  if (invalid != std::string_view::npos) {
    return cannot_encode(fmt::format("byte {} of the text, 0x{:02X}, is not UTF-8", invalid, static_cast<uint8_t>(text[invalid])));
  }
  AlignedText aligned = aligned_text(text);
  if (!apply_steps(t, options.specials_in_text == Specials::kFound, aligned, parts_->regex))
    return cannot_encode("a regular expression of the tokenizer took too many steps on this text", "cut the text into shorter ones");
  Encoding out;
  const auto add = [&](uint32_t id, TextRange range, std::string_view value) {
    TextRange offsets = aligned.in_input(range);
    if (t.trim_offsets) trim(offsets, value, text, out.ids.empty(), t.trim_keeps_prefix_space);
    out.ids.push_back(id);
    out.offsets.push_back(offsets);
  };
  const auto* bpe = std::get_if<Bpe>(&t.model);
  // Of Unigram's unknown tokens the library keeps the text itself.
  const auto* unigram = std::get_if<Unigram>(&t.model);
  const uint32_t as_written = unigram != nullptr ? unigram->unknown : kNoId;
  const std::string_view cut_before = bpe != nullptr ? std::string_view(bpe->cut_before) : "";
  for (const Piece& piece : aligned.pieces) {
    const std::string_view whole = aligned.view(piece.range);
    if (piece.token != kNoToken) {
      add(static_cast<uint32_t>(piece.token), piece.range, whole);
      continue;
    }
    for (size_t begin = 0, end = 0; begin < whole.size(); begin = end) {
      end = end_of_part(whole, begin, cut_before);
      parts_->tokens.clear();
      if (!std::visit([&](const auto& model) { return parts_->encode(model, whole.substr(begin, end - begin)); }, t.model))
        return cannot_encode("the text has a character that no token stands for, and the tokenizer has no token for unknown ones");
      const auto shift = static_cast<uint32_t>(piece.range.begin + begin);
      for (const WordToken& token : parts_->tokens) {
        const TextRange range = {shift + token.begin, shift + token.end};
        add(token.id, range, token.id == as_written ? aligned.view(range) : std::string_view(t.tokens[token.id]));
      }
    }
  }
  if (options.add_special_tokens && !(t.before.empty() && t.after.empty())) {
    out.ids.insert(out.ids.begin(), t.before.begin(), t.before.end());
    out.ids.insert(out.ids.end(), t.after.begin(), t.after.end());
    out.offsets.insert(out.offsets.begin(), t.before.size(), {});
    out.offsets.insert(out.offsets.end(), t.after.size(), {});
  }
  return out;
}

Result<Encoding> encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  return Encoder(tokenizer).encode(text, options);
}

std::optional<uint32_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : added_tokens) {
    if (added.content == token) return added.id;
  }
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  if (found == tokens.end() || token.empty()) return std::nullopt;
  return static_cast<uint32_t>(found - tokens.begin());
}

Result<std::string> decode(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids, SkipSpecials skip) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t id = ids[i];
    if (id >= tokenizer.tokens.size() || tokenizer.tokens[id].empty()) {
      return error(code::kData, {},
                   fmt::format("id {} (number {} of the ids) is not in the vocabulary of {} tokens", id, i, tokenizer.tokens.size()));
    }
    const auto added = std::lower_bound(tokenizer.added_tokens.begin(), tokenizer.added_tokens.end(), id,
                                        [](const AddedToken& token, uint32_t wanted) { return token.id < wanted; });
    const bool is_added = added != tokenizer.added_tokens.end() && added->id == id;
    if (skip == SkipSpecials::kYes && is_added && added->special) continue;
    texts.push_back(id < tokenizer.decoded_as.size() && !tokenizer.decoded_as[id].empty() ? tokenizer.decoded_as[id]
                                                                                          : tokenizer.tokens[id]);
  }
  if (tokenizer.sentencepiece) return decode_pieces(*tokenizer.sentencepiece, tokenizer.tokens, ids);
  RegexScratch scratch;
  for (const Decoder& step : tokenizer.decoders) {
    if (!decode_step(step, texts, scratch))
      return error(code::kData, {}, "a regular expression of the tokenizer took too many steps on these tokens");
  }
  std::string out;
  for (const std::string& text : texts) out += text;
  return out;
}

}  // namespace distsetup
