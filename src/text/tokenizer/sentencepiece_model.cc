#include "text/tokenizer/sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "text/tokenizer/json_model.h"
#include "text/tokenizer/protobuf.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

// Of sentencepiece_model.proto: numbers of fields and kinds.
enum ModelField { kPieces = 1, kTrainer = 2, kNormalizer = 3 };
enum PieceField { kPiece = 1, kScore = 2, kType = 3 };
enum TrainerField { kModelType = 3, kSuffixed = 24, kByteFallback = 35, kBosId = 41, kEosId = 42, kPadId = 43, kUnkSurface = 44 };
enum NormalizerField { kCharsMap = 2, kDummyPrefix = 3, kRemoveExtra = 4, kEscape = 5 };
enum PieceType { kNormal = 1, kUnknownPiece = 2, kControlPiece = 3, kUserDefined = 4, kUnused = 5, kBytePiece = 6 };
enum ModelType { kUnigramModel = 1, kBpeModel = 2 };

struct SentencePiece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  uint64_t model_type = kUnigramModel;
  bool byte_fallback = false, suffixed = false;
  int32_t bos = 1, eos = 2, pad = -1;
  std::string unknown_as = " \u2047 ";
  std::string chars_map;
  bool dummy_prefix = true, remove_extra = true, escape = true;
};

// Calls read(field) for each field; false: the message is damaged.
template <class Read>
bool read_fields(std::string_view message, Read read) {
  ProtoReader reader(message);
  while (const std::optional<ProtoField> field = reader.next()) read(*field);
  return !reader.is_damaged();
}

bool read_trainer(std::string_view message, SentencePieceModel& model) {
  return read_fields(message, [&](const ProtoField& field) {
    switch (field.number) {
      case kModelType: model.model_type = field.value; break;
      case kSuffixed: model.suffixed = field.value != 0; break;
      case kByteFallback: model.byte_fallback = field.value != 0; break;
      case kBosId: model.bos = static_cast<int32_t>(field.value); break;
      case kEosId: model.eos = static_cast<int32_t>(field.value); break;
      case kPadId: model.pad = static_cast<int32_t>(field.value); break;
      case kUnkSurface: model.unknown_as = field.bytes; break;
      default: break;
    }
  });
}

bool read_normalizer(std::string_view message, SentencePieceModel& model) {
  return read_fields(message, [&](const ProtoField& field) {
    switch (field.number) {
      case kCharsMap: model.chars_map = field.bytes; break;
      case kDummyPrefix: model.dummy_prefix = field.value != 0; break;
      case kRemoveExtra: model.remove_extra = field.value != 0; break;
      case kEscape: model.escape = field.value != 0; break;
      default: break;
    }
  });
}

bool read_piece(std::string_view message, SentencePieceModel& model) {
  SentencePiece piece;
  const bool whole = read_fields(message, [&](const ProtoField& field) {
    if (field.number == kPiece) piece.text = field.bytes;
    if (field.number == kScore) piece.score = field.as_float();
    if (field.number == kType) piece.type = field.value;
  });
  model.pieces.push_back(std::move(piece));
  return whole;
}

bool read_model(std::string_view bytes, SentencePieceModel& model) {
  bool whole = true;
  const bool read = read_fields(bytes, [&](const ProtoField& field) {
    if (!field.is_bytes) return;
    if (field.number == kPieces) whole &= read_piece(field.bytes, model);
    if (field.number == kTrainer) whole &= read_trainer(field.bytes, model);
    if (field.number == kNormalizer) whole &= read_normalizer(field.bytes, model);
  });
  return read && whole;
}

// Two pieces are joined when what they give is a piece; the one with the larger score first.
void make_bpe(const SentencePieceModel& model, Tokenizer& tokenizer, Bpe& bpe) {
  std::map<float, uint32_t, std::greater<>> ranks;
  bpe.vocabulary.reserve(model.pieces.size());
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != kNormal) continue;
    bpe.vocabulary.set(model.pieces[id].text, id);
    ranks[model.pieces[id].score] = 0;
  }
  uint32_t rank = 0;
  for (auto& [score, number] : ranks) number = rank++;
  std::vector<std::string> merged;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type != kNormal) continue;
    const std::string_view text = piece.text;
    bool is_merged = false;
    for (size_t at = code_point_at(text, 0).num_bytes; at < text.size(); at += code_point_at(text, at).num_bytes) {
      const uint32_t left = bpe.vocabulary.find(text.substr(0, at)), right = bpe.vocabulary.find(text.substr(at));
      if (left == kNoId || right == kNoId) continue;
      bpe.merges.set({left, right, id, ranks[piece.score]});
      is_merged = true;
    }
    if (is_merged) merged.push_back(piece.text);
  }
  bpe.fuse_unknown = true;
  find_byte_tokens(tokenizer.tokens, bpe.byte_tokens);
  find_cuts(bpe, merged);
}

// Above all other scores, and more for one long piece than for several short ones. (SentencePiece 0.2.0 and older had another bonus.)
float user_defined_score(std::string_view piece) { return static_cast<float>(0.1 * (static_cast<double>(piece.size()) - 1)); }

void make_unigram(const SentencePieceModel& model, Tokenizer& tokenizer, Unigram& unigram) {
  float lowest = 0;
  bool first = true;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != kNormal) continue;
    lowest = first ? piece.score : std::min(lowest, piece.score);
    first = false;
  }
  unigram.lowest_score = lowest;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const bool is_user_defined = piece.type == kUserDefined;
    if (piece.type == kNormal || is_user_defined) unigram.pieces.insert(piece.text, id);
    unigram.scores.push_back(is_user_defined ? user_defined_score(piece.text) : piece.score);
  }
  unigram.pieces.finish();
  unigram.sum = ScoreSum::kSingle;
  unigram.fuse_unknown = !model.byte_fallback;
  find_byte_tokens(tokenizer.tokens, unigram.byte_tokens);
}

// What is refused, as text; empty: nothing.
std::string refusal(const SentencePieceModel& model) {
  if (model.model_type != kUnigramModel && model.model_type != kBpeModel)
    return fmt::format("a model of type {} (word or char), expected unigram or bpe", model.model_type);
  if (model.suffixed) return "treat_whitespace_as_suffix is not supported";
  StringIndex characters;
  size_t num_unknown = 0;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.text.empty() || !is_utf8(piece.text) || !std::isfinite(piece.score))
      return fmt::format("piece {} is empty, no UTF-8, or has no score", id);
    if (piece.type == kUnused && model.model_type == kBpeModel)
      return fmt::format("piece {}, '{}', is marked unused, which BPE does not support here", id, piece.text);
    if (piece.type == kUnknownPiece) ++num_unknown;
    if (piece.type == kBytePiece && piece.text.size() != 6) return fmt::format("piece {}, '{}', is no byte", id, piece.text);
    if (piece.type == kNormal && num_code_points(piece.text) == 1) characters.set(piece.text, id);
  }
  if (num_unknown != 1) return fmt::format("{} pieces are marked unknown, expected one", num_unknown);
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != kNormal || model.model_type != kBpeModel) continue;
    for (size_t at = 0; at < piece.text.size();) {
      const size_t length = code_point_at(piece.text, at).num_bytes;
      if (characters.find(std::string_view(piece.text).substr(at, length)) == StringIndex::kNone)
        return fmt::format("piece '{}' has a character that is no piece, which BPE does not support here", piece.text);
      at += length;
    }
  }
  return "";
}

void add_kinds(const SentencePieceModel& model, Tokenizer& tokenizer) {
  SentencePieceDecoding decoding;
  decoding.unknown_as = model.unknown_as;
  decoding.drops_first_blank = model.dummy_prefix;
  decoding.drops_first_blanks = model.remove_extra;
  SentencePieceRules rules;
  rules.dummy_prefix = model.dummy_prefix;
  rules.remove_extra_whitespaces = model.remove_extra;
  rules.escape_whitespaces = model.escape;
  if (std::optional<CharsMap> map = CharsMap::parse(model.chars_map)) rules.map = std::make_shared<const CharsMap>(std::move(*map));
  auto verbatim = std::make_shared<PrefixTrie>();
  const bool is_bpe = model.model_type == kBpeModel;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    decoding.kinds.push_back(piece.type == kUnknownPiece   ? PieceKind::kUnknown
                             : piece.type == kControlPiece ? PieceKind::kControl
                             : piece.type == kBytePiece    ? PieceKind::kByte
                                                           : PieceKind::kText);
    if (piece.type != kUserDefined) continue;
    verbatim->insert(piece.text, id);
    AddedToken token;
    token.id = id;
    token.content = piece.text;
    token.normalized = true;
    tokenizer.added_tokens.push_back(token);
    if (is_bpe) tokenizer.in_normalized.add(token, piece.text);  // never merged with its neighbours
  }
  verbatim->finish();
  tokenizer.in_input.finish();
  tokenizer.in_normalized.finish();
  rules.verbatim = std::move(verbatim);
  tokenizer.normalizers.emplace_back(std::move(rules));
  tokenizer.decoders.clear();
  tokenizer.sentencepiece = std::move(decoding);
}

}  // namespace

bool looks_like_sentencepiece(std::string_view bytes) {
  // The first field is a piece: a message in a message, with a text in it.
  ProtoReader reader(bytes);
  const std::optional<ProtoField> piece = reader.next();
  return piece && piece->is_bytes && piece->number == kPieces && bytes[0] == '\x0A';
}

Result<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  if (!read_model(bytes, model) || model.pieces.empty())
    return error(code::kData, {file, 0, 0}, "no SentencePiece model, or a damaged one", "copy the file again");
  const std::string refused = refusal(model);
  if (!refused.empty()) return error(code::kUnsupportedFeature, {file, 0, 0}, refused);
  if (!model.chars_map.empty() && !CharsMap::parse(model.chars_map))
    return error(code::kData, {file, 0, 0}, "its rules of normalization (precompiled_charsmap) are damaged", "copy the file again");
  Tokenizer tokenizer;
  tokenizer.file = file;
  uint32_t unknown = 0;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == kUnknownPiece) unknown = static_cast<uint32_t>(tokenizer.tokens.size());
    tokenizer.tokens.push_back(piece.text);
  }
  const auto fill = [&](auto made, auto make) {
    made.unknown = unknown;
    made.byte_fallback = model.byte_fallback;
    make(model, tokenizer, made);
    tokenizer.model = std::move(made);
  };
  if (model.model_type == kBpeModel) {
    fill(Bpe{}, make_bpe);
  } else {
    fill(Unigram{}, make_unigram);
  }
  add_kinds(model, tokenizer);
  const auto id_or_none = [&](int32_t id) {
    const bool is_one = id >= 0 && static_cast<size_t>(id) < tokenizer.tokens.size() && model.pieces[id].type == kControlPiece;
    return is_one ? std::optional(static_cast<uint32_t>(id)) : std::nullopt;
  };
  tokenizer.bos = id_or_none(model.bos);
  tokenizer.eos = id_or_none(model.eos);
  tokenizer.pad = id_or_none(model.pad);
  return tokenizer;
}

}  // namespace distsetup
