// The builder behind parse_yaml and parse_json. A duplicate key is reported and building goes on, so that one pass finds them all;
// what makes the rest meaningless (depth, size, syntax) stops it.
#include "base/tree_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

constexpr size_t kMaxDepth = 400;            // yaml-cpp itself gives up at 500
constexpr size_t kMaxValues = 10'000'000;    // a tokenizer of 200,000 words is far below
constexpr size_t kMaxAliasValues = 100'000;  // what aliases stand for, all together
constexpr size_t kMaxDuplicates = 100;
constexpr size_t kMaxMessageText = 40;

size_t num_values_in(const Value& value) {
  size_t n = 1;
  for (const Value& item : value.items) n += num_values_in(item);
  for (const auto& entry : value.entries) n += num_values_in(entry.second);
  return n;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

SourceText::SourceText(std::string_view text, std::string_view file_name) : text_(text), file_name_(file_name), line_starts_{0} {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_starts_.push_back(i + 1);
  }
}

SourceText::SourceText(std::string_view text, std::string_view file_name, std::vector<LinePlace> places)
    : SourceText(text, file_name) {
  places_ = std::move(places);
}

size_t SourceText::line_start(size_t offset) const {
  return *(std::upper_bound(line_starts_.begin(), line_starts_.end(), std::min(offset, text_.size())) - 1);
}

Location SourceText::at(size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const size_t begin = *(after - 1);
  const bool goes_on = last_offset_ >= begin && last_offset_ <= offset;
  const std::string_view added = goes_on ? text_.substr(last_offset_, offset - last_offset_) : text_.substr(begin, offset - begin);
  const auto num_continuations = static_cast<size_t>(std::count_if(added.begin(), added.end(), is_continuation));
  last_num_characters_ = (goes_on ? last_num_characters_ : 0) + added.size() - num_continuations;
  last_offset_ = offset;
  const auto line = static_cast<size_t>(after - line_starts_.begin());
  const int column = static_cast<int>(last_num_characters_) + 1;
  if (line > places_.size()) return {file_name_, static_cast<int>(line), column};
  const LinePlace& place = places_[line - 1];
  return {file_name_, place.line, place.column > 0 ? place.column : column};
}

size_t SourceText::offset(int line, int byte_column) const {
  if (line < 0) return 0;
  if (static_cast<size_t>(line) >= line_starts_.size()) return text_.size();
  return std::min(line_starts_[line] + static_cast<size_t>(std::max(byte_column, 0)), text_.size());
}

size_t SourceText::offset(const Location& at) const {
  const size_t begin = offset(at.line - 1, 0);
  const bool goes_on =
      last_offset_ >= begin && line_start(last_offset_) == begin && last_num_characters_ < static_cast<size_t>(at.column);
  if (!goes_on) last_offset_ = begin, last_num_characters_ = 0;
  for (; last_num_characters_ + 1 < static_cast<size_t>(at.column) && last_offset_ < text_.size(); ++last_num_characters_) {
    do ++last_offset_;
    while (last_offset_ < text_.size() && is_continuation(text_[last_offset_]));
  }
  return last_offset_;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

Diagnostics check_characters(const SourceText& source) {
  const std::string_view text = source.text();
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool breaks_line = text[i] == '\n' || (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
    const bool is_control = ((byte < 0x20 || byte == 0x7f) && text[i] != '\t' && !breaks_line) ||
                            (byte == 0xc2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xa0);
    if (length == 0 || is_control) {
      return {error(code::kSyntax, source.at(i), fmt::format("found byte 0x{:02x}, expected UTF-8 text", byte),
                    "save the file as UTF-8 text with plain line ends")};
    }
    i += length;
  }
  return {};
}

void TreeBuilder::fail(Diagnostic d) {
  if (!stopped_) diagnostics_.push_back(std::move(d));
  stopped_ = true;
}

void TreeBuilder::complain(Diagnostic d) {
  if (!stopped_) diagnostics_.push_back(std::move(d));
}

void TreeBuilder::count(size_t num_values, const Location& at) {
  num_values_ += num_values;
  if (num_values_ > kMaxValues) fail(error(code::kSyntax, at, fmt::format("found more than {} values, expected fewer", kMaxValues)));
}

void TreeBuilder::add(Value value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return;
  }
  Open& parent = open_.back();
  if (parent.value.kind == Value::Kind::kList) {
    parent.value.items.push_back(std::move(value));
    return;
  }
  CHECK(parent.has_key);
  parent.value.entries.back().second = std::move(value);
  parent.has_key = false;
}

void TreeBuilder::leaf(Value value, size_t anchor) {
  if (stopped_) return;
  count(1, value.location);
  if (anchor != 0) anchors_[anchor] = value;
  add(std::move(value));
}

void TreeBuilder::begin(Value container, size_t anchor) {
  if (stopped_) return;
  count(1, container.location);
  if (open_.size() >= kMaxDepth) {
    return fail(
        error(code::kSyntax, container.location, fmt::format("found nesting deeper than {} levels, expected less", kMaxDepth)));
  }
  if (anchor != 0) open_anchors_.insert(anchor);
  open_.push_back({std::move(container), anchor, false, {}});
}

void TreeBuilder::end() {
  if (stopped_) return;
  CHECK(!open_.empty() && !open_.back().has_key);
  Open done = std::move(open_.back());
  open_.pop_back();
  if (done.anchor != 0) {
    count(num_values_in(done.value), done.value.location);
    anchors_[done.anchor] = done.value;
    open_anchors_.erase(done.anchor);
  }
  add(std::move(done.value));
}

void TreeBuilder::key(std::string name, Location at, int length) {
  if (stopped_) return;
  CHECK(expects_key());
  Open& parent = open_.back();
  std::string folded = name;
  if (key_rule_ == KeyRule::kFolded) std::replace(folded.begin(), folded.end(), '-', '_');
  const auto [first, is_new] = parent.seen.try_emplace(std::move(folded), parent.value.entries.size());
  if (!is_new) {
    const Location& before = parent.value.key_locations[first->second];
    Diagnostic d =
        error(code::kDuplicateKey, at, fmt::format("key '{}' is given twice, expected once", name.substr(0, kMaxMessageText)),
              fmt::format("remove this one or the first, at line {} column {}", before.line, before.column));
    d.length = length;
    diagnostics_.push_back(std::move(d));
    if (diagnostics_.size() >= kMaxDuplicates) stopped_ = true;  // a file that repeats itself: enough is said
  }
  parent.value.entries.push_back({std::move(name), Value{}});
  parent.value.key_locations.push_back(std::move(at));
  parent.has_key = true;
}

void TreeBuilder::alias(size_t anchor, const Location& at) {
  if (stopped_) return;
  if (open_anchors_.count(anchor) > 0) {
    return fail(error(code::kSyntax, at, "found an alias inside the value it stands for, expected one that ends"));
  }
  const auto found = anchors_.find(anchor);
  CHECK(found != anchors_.end(), "alias {}", anchor);
  const size_t num_values = num_values_in(found->second);
  num_alias_values_ += num_values;
  if (num_alias_values_ > kMaxAliasValues)
    return fail(error(code::kSyntax, at, fmt::format("found aliases for more than {} values, expected fewer", kMaxAliasValues)));
  count(num_values, at);
  if (!stopped_) add(found->second);
}

Result<Value> TreeBuilder::finish() {
  const bool is_whole = repeats_ == RepeatedKeys::kAllKept && !stopped_;
  if (!diagnostics_.empty() && !is_whole) return std::move(diagnostics_);
  CHECK(open_.empty());
  return {std::move(root_), std::move(diagnostics_)};
}

}  // namespace distsetup
