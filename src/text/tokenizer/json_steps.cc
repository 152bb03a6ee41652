#include "text/tokenizer/json_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/base64.h"
#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr int kDeepest = 16;  // Sequences in Sequences

// ByteLevel's pattern: GPT-2's (encoder.py).
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool too_deep(const JsonNode& node, int depth) {
  if (depth <= kDeepest) return false;
  node.note(fmt::format("is a Sequence in more than {} others", kDeepest));
  return true;
}

// {"String": "x"} or {"Regex": "x"}, or the text itself.
Regex regex_of(const JsonNode& node) {
  const bool is_regex = !node.at("Regex").is_absent();
  const bool is_text = node.json() != nullptr && node.json()->is_string();
  const std::string text = is_regex ? node.at("Regex").text() : is_text ? node.text() : node.at("String").text();
  const std::string pattern = is_regex ? text : escape_regex(text);
  Result<Regex> regex = Regex::compile(pattern, RegexDialect::kOniguruma, {node.file(), 0, 0}, node.path());
  if (regex.ok()) return *regex;
  append(node.notes().diagnostics, regex.diagnostics);
  return {};
}

std::string one_character(const JsonNode& node) {
  const std::string text = node.text();
  if (num_code_points(text) != 1) node.note(fmt::format("is '{}', expected one character", text));
  return text;
}

SplitBehavior behavior_of(const JsonNode& node) {
  static const std::pair<std::string_view, SplitBehavior> kNames[] = {{"removed", SplitBehavior::kRemoved},
                                                                      {"isolated", SplitBehavior::kIsolated},
                                                                      {"mergedwithprevious", SplitBehavior::kMergedWithPrevious},
                                                                      {"mergedwithnext", SplitBehavior::kMergedWithNext},
                                                                      {"contiguous", SplitBehavior::kContiguous}};
  if (node.is_absent()) return SplitBehavior::kIsolated;
  const std::string text = node.text();
  std::string name;
  for (const char c : text) {
    if (c != '_') name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  node.note(fmt::format("is '{}', expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", text));
  return SplitBehavior::kIsolated;
}

PrependScheme prepend_scheme_of(const JsonNode& node) {
  const std::string name = node.at("prepend_scheme").text_or("always");
  const bool never = !node.at("add_prefix_space").flag_or(true);  // the older spelling
  if (never || name == "never") return PrependScheme::kNever;
  if (name != "always" && name != "first")
    node.at("prepend_scheme").note(fmt::format("is '{}', expected always, first or never", name));
  return name == "first" ? PrependScheme::kFirst : PrependScheme::kAlways;
}

void read_precompiled(const JsonNode& node, std::vector<Normalizer>& steps) {
  if (node.is_absent()) return;  // no rules
  const std::optional<std::string> bytes = from_base64(node.text());
  if (bytes && bytes->empty()) return;
  std::optional<CharsMap> map = bytes ? CharsMap::parse(*bytes) : std::nullopt;
  if (!map) return node.note("is damaged: no rules of normalization in base64");
  steps.emplace_back(PrecompiledRules{std::make_shared<const CharsMap>(std::move(*map))});
}

void normalizers(const JsonNode& node, std::vector<Normalizer>& steps, int depth) {
  if (node.is_absent() || too_deep(node, depth)) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& one : node.at("normalizers").items()) normalizers(one, steps, depth + 1);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.emplace_back(type == "NFC"    ? NormalForm::kNfc
                       : type == "NFD"  ? NormalForm::kNfd
                       : type == "NFKC" ? NormalForm::kNfkc
                                        : NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else if (type == "Strip") {
    steps.emplace_back(StripSpace{node.at("strip_left").flag_or(true), node.at("strip_right").flag_or(true)});
  } else if (type == "Prepend") {
    steps.emplace_back(PrependText{node.at("prepend").text()});
  } else if (type == "Replace") {
    steps.emplace_back(ReplaceMatches{regex_of(node.at("pattern")), node.at("content").text()});
  } else if (type == "Nmt") {
    steps.emplace_back(NmtRules{});
  } else if (type == "Precompiled") {
    read_precompiled(node.at("precompiled_charsmap"), steps);
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteCharacters{});
  } else if (!type.empty()) {
    node.refuse_type("a normalizer", type);
  }
}

void byte_level(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  if (node.at("add_prefix_space").flag_or(true)) steps.emplace_back(PrefixSpace{});
  if (node.at("use_regex").flag_or(true)) {
    Result<Regex> regex = Regex::compile(kGpt2Pattern, RegexDialect::kOniguruma, {node.file(), 0, 0}, node.path());
    append(node.notes().diagnostics, regex.diagnostics);
    if (regex.ok()) steps.emplace_back(RegexSplit{*regex, SplitBehavior::kIsolated, false});
  }
  steps.emplace_back(BytesAsCharacters{});
}

void pre_tokenizers(const JsonNode& node, std::vector<PreTokenizer>& steps, int depth) {
  if (node.is_absent() || too_deep(node, depth)) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& one : node.at("pretokenizers").items()) pre_tokenizers(one, steps, depth + 1);
  } else if (type == "ByteLevel") {
    byte_level(node, steps);
  } else if (type == "Split") {
    steps.emplace_back(RegexSplit{regex_of(node.at("pattern")), behavior_of(node.at("behavior")), node.at("invert").flag_or(false)});
  } else if (type == "Digits") {
    const bool each = node.at("individual_digits").flag_or(false);
    steps.emplace_back(CharacterSplit{CharacterClass::kNumeric, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    steps.emplace_back(CharacterSplit{CharacterClass::kPunctuation, behavior_of(node.at("behavior"))});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(CharacterSplit{CharacterClass::kWhiteSpace, SplitBehavior::kRemoved});
  } else if (type == "CharDelimiterSplit") {
    const std::string one = one_character(node.at("delimiter"));
    steps.emplace_back(
        CharacterSplit{CharacterClass::kOneCharacter, SplitBehavior::kRemoved, one.empty() ? 0 : code_point_at(one, 0).value});
  } else if (type == "Whitespace") {
    Result<Regex> regex = Regex::compile(R"(\w+|[^\w\s]+)", RegexDialect::kRust, {node.file(), 0, 0}, node.path());
    append(node.notes().diagnostics, regex.diagnostics);
    if (regex.ok()) steps.emplace_back(RegexSplit{*regex, SplitBehavior::kRemoved, true});
  } else if (type == "Metaspace") {
    steps.emplace_back(Metaspace{one_character(node.at("replacement")), prepend_scheme_of(node), node.at("split").flag_or(true)});
  } else if (type == "FixedLength") {
    const JsonNode length = node.at("length");
    steps.emplace_back(FixedLength{length.is_absent() ? 5 : static_cast<size_t>(length.number(1, 1 << 30))});
  } else if (!type.empty()) {
    node.refuse_type("a pre-tokenizer", type);
  }
}

void decoders(const JsonNode& node, std::vector<Decoder>& steps, int depth) {
  if (node.is_absent() || too_deep(node, depth)) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& one : node.at("decoders").items()) decoders(one, steps, depth + 1);
  } else if (type == "ByteLevel") {
    steps.emplace_back(DecodeByteLevel{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(DecodeByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(DecodeFuse{});
  } else if (type == "Replace") {
    steps.emplace_back(DecodeReplace{regex_of(node.at("pattern")), node.at("content").text()});
  } else if (type == "Strip") {
    steps.emplace_back(DecodeStrip{one_character(node.at("content")), static_cast<size_t>(node.at("start").number(0, 1 << 30)),
                                   static_cast<size_t>(node.at("stop").number(0, 1 << 30))});
  } else if (type == "Metaspace") {
    steps.emplace_back(DecodeMetaspace{one_character(node.at("replacement")), prepend_scheme_of(node) != PrependScheme::kNever});
  } else if (type == "BPEDecoder") {
    steps.emplace_back(DecodeEndSuffix{node.at("suffix").text()});
  } else if (!type.empty()) {
    node.refuse_type("a decoder", type);
  }
}

void read_template(const JsonNode& node, Tokenizer& tokenizer) {
  const JsonNode known = node.at("special_tokens");
  std::vector<uint32_t> before, after;
  int texts = 0;
  for (const JsonNode& part : node.at("single").items()) {
    const JsonNode special = part.at("SpecialToken");
    if (!part.at("Sequence").is_absent()) {
      ++texts;
    } else if (special.is_absent()) {
      part.note("is neither a Sequence nor a SpecialToken");
    } else {
      const JsonNode token = known.at(special.at("id").text());
      if (token.is_absent()) part.note("names a token that special_tokens does not have");
      for (const JsonNode& id : token.is_absent() ? std::vector<JsonNode>() : token.at("ids").items())
        (texts == 0 ? before : after).push_back(static_cast<uint32_t>(id.number(0, kNoId - 1)));
    }
  }
  if (texts != 1) node.at("single").note(fmt::format("has the text {} times, expected once", texts));
  tokenizer.before.insert(tokenizer.before.begin(), before.begin(), before.end());
  tokenizer.after.insert(tokenizer.after.end(), after.begin(), after.end());
}

void read_pair(const JsonNode& pair, std::vector<uint32_t>& ids) {
  const std::vector<JsonNode> parts = pair.items();
  if (parts.size() == 2) ids.push_back(static_cast<uint32_t>(parts[1].number(0, kNoId - 1)));
}

void post_processor(const JsonNode& node, Tokenizer& tokenizer, int depth) {
  if (node.is_absent() || too_deep(node, depth)) return;
  const std::string type = node.type();
  const bool roberta = type == "RobertaProcessing";
  if (type == "Sequence") {
    for (const JsonNode& one : node.at("processors").items()) post_processor(one, tokenizer, depth + 1);
  } else if (type == "TemplateProcessing") {
    read_template(node, tokenizer);
  } else if (type == "BertProcessing" || roberta || type == "ByteLevel") {
    if (type != "ByteLevel") {
      std::vector<uint32_t> before, after;
      read_pair(node.at("cls"), before);
      read_pair(node.at("sep"), after);
      tokenizer.before.insert(tokenizer.before.begin(), before.begin(), before.end());
      tokenizer.after.insert(tokenizer.after.end(), after.begin(), after.end());
    }
    if (type != "BertProcessing" && node.at("trim_offsets").flag_or(true)) {
      tokenizer.trim_offsets = true;
      tokenizer.trim_keeps_prefix_space = node.at("add_prefix_space").flag_or(true);
    }
  } else if (!type.empty()) {
    node.refuse_type("a post-processor", type);
  }
}

}  // namespace

void read_normalizers(const JsonNode& node, std::vector<Normalizer>& steps) { normalizers(node, steps, 0); }
void read_pre_tokenizers(const JsonNode& node, std::vector<PreTokenizer>& steps) { pre_tokenizers(node, steps, 0); }
void read_post_processor(const JsonNode& node, Tokenizer& tokenizer) { post_processor(node, tokenizer, 0); }

void read_decoders(const JsonNode& node, std::vector<Decoder>& steps) {
  decoders(node, steps, 0);
  if (node.is_absent()) steps.emplace_back(DecodeJoin{});
}

}  // namespace distsetup
