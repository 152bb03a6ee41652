// `distsetup data tokenize`: a text as a tokenizer's ids, and ids as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "text/tokenizer/read_tokenizer.h"

namespace distsetup {
namespace {

// The numbers in a text, whatever is between them: blanks, lines, commas, brackets.
Result<std::vector<uint32_t>> ids_in(const std::string& text, const std::string& file) {
  std::vector<uint32_t> ids;
  int line = 1, column = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (std::string_view(" \t\r\n,[]").find(c) != std::string_view::npos) {
      column = c == '\n' ? 1 : column + 1;
      line += c == '\n';
      ++at;
      continue;
    }
    uint32_t id = 0;
    const auto [end, failed] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (failed != std::errc()) {
      const size_t word_end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
      return error(code::kData, {file, line, column},
                   fmt::format("'{}' is no token id, expected whole numbers", text.substr(at, word_end - at)),
                   "to make ids of a text, leave out --decode");
    }
    ids.push_back(id);
    column += static_cast<int>(end - text.data() - static_cast<std::ptrdiff_t>(at));
    at = static_cast<size_t>(end - text.data());
  }
  return ids;
}

// Mistakes of a text or of ids are in the file that they came from.
Diagnostics located(Diagnostics diagnostics, const std::string& file) {
  for (Diagnostic& one : diagnostics) one.location.file = file;
  return diagnostics;
}

std::string table_of(const Encoding& encoding, const std::string& text) {
  std::string out;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const TextRange range = encoding.offsets[i];
    const std::string quoted = Json(text.substr(range.begin, range.end - range.begin)).dump();
    out += fmt::format("{:>8} {:>8} {:>8}  {}\n", encoding.ids[i], range.begin, range.end, quoted);
  }
  return out;
}

Json json_of(const Tokenizer& tokenizer, const Encoding& encoding) {
  Json offsets = Json::array();
  for (const TextRange& range : encoding.offsets) offsets.push_back({range.begin, range.end});
  const auto id = [](const std::optional<uint32_t>& one) { return one ? Json(*one) : Json(); };
  return {{"schema_version", 1},          {"tokenizer", tokenizer.file},
          {"digest", tokenizer.digest},   {"vocabulary_size", tokenizer.vocabulary_size()},
          {"bos", id(tokenizer.bos)},     {"eos", id(tokenizer.eos)},
          {"pad", id(tokenizer.pad)},     {"ids", encoding.ids},
          {"offsets", std::move(offsets)}};
}

int run_tokenize(const Arguments& arguments, const Terminal& terminal) {
  if (arguments.has("decode")) {
    const Diagnostics idle = refuse_idle(arguments, {"offsets", "json", "no-special-tokens", "specials-as-text"}, "without --decode");
    if (has_error(idle)) return fail(arguments, terminal, idle);
  }
  const Result<Tokenizer> tokenizer = read_tokenizer(arguments.positionals[0]);
  if (!tokenizer.ok()) return fail(arguments, terminal, tokenizer.diagnostics);
  const std::string path = arguments.positionals.size() > 1 ? arguments.positionals[1] : "-";
  const Result<std::string> text = read_file(path == "-" ? "/dev/stdin" : path);
  if (!text.ok()) return fail(arguments, terminal, text.diagnostics);
  if (arguments.has("decode")) {
    const Result<std::vector<uint32_t>> ids = ids_in(*text, path);
    if (!ids.ok()) return fail(arguments, terminal, ids.diagnostics);
    const Result<std::string> decoded = decode(*tokenizer, *ids, SkipSpecials::kNo);
    if (!decoded.ok()) return fail(arguments, terminal, located(decoded.diagnostics, path));
    return print_result(terminal, *decoded);
  }
  EncodeOptions options;
  options.add_special_tokens = !arguments.has("no-special-tokens");
  options.specials_in_text = arguments.has("specials-as-text") ? Specials::kText : Specials::kFound;
  const Result<Encoding> encoding = encode(*tokenizer, *text, options);
  if (!encoding.ok()) return fail(arguments, terminal, located(encoding.diagnostics, path));
  if (arguments.has("json")) return print_result(terminal, dump_json(json_of(*tokenizer, *encoding)));
  if (arguments.has("offsets")) return print_result(terminal, table_of(*encoding, *text));
  return print_result(terminal, fmt::format("{}\n", fmt::join(encoding->ids, " ")));
}

}  // namespace

Command data_tokenize_command() {
  Command command;
  command.summary = "the token ids of a text, or the text of token ids";
  command.positional = "TOKENIZER [FILE|-]";
  command.min_positionals = 1;
  command.max_positionals = 2;
  command.examples = {"distsetup data tokenize model/tokenizer.json notes.txt", "distsetup data tokenize model notes.txt --offsets",
                      "distsetup data tokenize model ids.txt --decode"};
  command.notes =
      "TOKENIZER is the folder of a model or a tokenizer file; without FILE the text comes from standard input, whole, with its last "
      "line break. Ids are those of the library that the file was written for.";
  command.flags = {
      {"decode", {}, FlagKind::kSwitch, "", "FILE holds ids: print their text"},
      {"offsets", {}, FlagKind::kSwitch, "", "a line for each token: id, first byte, end, text"},
      {"no-special-tokens", {}, FlagKind::kSwitch, "", "leave out what the tokenizer puts around a text (bos, eos)"},
      {"specials-as-text", {}, FlagKind::kSwitch, "", "names of special tokens in the text are text, not these tokens"},
  };
  command.run = run_tokenize;
  return command;
}

}  // namespace distsetup
