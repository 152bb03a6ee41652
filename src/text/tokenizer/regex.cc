#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr size_t kJitStackBytes = size_t{64} << 10, kMostJitStackBytes = size_t{64} << 20;

}  // namespace

struct RegexScratch::Parts {
  pcre2_match_data* data = pcre2_match_data_create(8, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackBytes, kMostJitStackBytes, nullptr);
  Parts() {
    CHECK(data != nullptr && context != nullptr && stack != nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Parts() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

RegexScratch::RegexScratch() : parts_(std::make_unique<Parts>()) {}
RegexScratch::~RegexScratch() = default;

Result<Regex> Regex::compile(std::string_view pattern, RegexDialect dialect, const Location& where, const std::string& path) {
  Result<std::string> translated = translate_regex(pattern, dialect, where, path);
  if (!translated.ok()) return translated.diagnostics;
  const uint32_t lines = dialect == RegexDialect::kOniguruma ? PCRE2_MULTILINE : 0;
  int number = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context != nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | lines, &number, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(number, text, sizeof(text));
    return error(
        code::kSyntax, where,
        fmt::format("{}: the regular expression '{}' does not compile: {}", path, pattern, reinterpret_cast<const char*>(text)));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no compiler for this processor, matching is only slower
  Regex regex;
  regex.code_ =
      std::shared_ptr<const void>(code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  return regex;
}

bool Regex::find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>& matches) const {
  matches.clear();
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* data = scratch.parts_->data;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int count = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, scratch.parts_->context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) return false;
    const size_t begin = ends[0], end = ends[1];
    if (begin == end && begin == last_end) {
      if (end >= text.size()) break;
      from = end + code_point_at(text, end).num_bytes;
      continue;
    }
    matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    from = last_end = end;
  }
  return true;
}

}  // namespace distsetup
