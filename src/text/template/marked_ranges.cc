#include "text/template/marked_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

Diagnostic refused(const PartRenderer& renderer, const std::string& why) {
  return error(code::kUnsupportedFeature, {renderer.chat.name}, why,
               "give a template that marks what is trained with {% generation %} … {% endgeneration %}");
}

// Characters for private use (Unicode, U+E000 to U+F8FF) that the text does not have.
std::optional<Marks> marks_for(const std::string& text) {
  const auto character = [](int low) {
    return std::string{'\xEE', static_cast<char>(0x80 + low / 64), static_cast<char>(0x80 + low % 64)};
  };
  std::vector<std::string> free;
  for (int low = 0; low < 64 * 64 && free.size() < 2; ++low)
    if (std::string one = character(low); text.find(one) == std::string::npos) free.push_back(std::move(one));
  if (free.size() < 2) return std::nullopt;
  return Marks{free[0], free[1]};
}

// Of each pair of marks the bytes between them in the text without marks; nullopt: they are not in pairs, or it is not `plain`.
std::optional<std::vector<ByteRange>> between(const std::string& text, const Marks& marks, const std::string& plain) {
  std::vector<ByteRange> ranges;
  std::string without;
  size_t at = 0;
  for (;;) {
    const size_t begin = text.find(marks.begin, at), end = text.find(marks.end, at);
    if (begin == std::string::npos && end == std::string::npos) break;
    if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
    without += text.substr(at, begin - at);
    const size_t first = without.size();
    without += text.substr(begin + marks.begin.size(), end - begin - marks.begin.size());
    ranges.push_back({first, without.size()});
    at = end + marks.end.size();
  }
  without += text.substr(at);
  return without == plain ? std::optional(std::move(ranges)) : std::nullopt;
}

// What asks for message `i`, in front of it.
std::optional<std::string> prompt_of(const PartRenderer& renderer, size_t i) {
  const Result<Rendered> without = renderer.first(i, false), with = renderer.first(i, true);
  if (!without.ok() || !with.ok() || !with->text.starts_with(without->text)) return std::nullopt;
  return with->text.substr(without->text.size());
}

// What follows message `i` where it is the last one.
std::optional<std::string> ending_of(const PartRenderer& renderer, size_t i, const Marks& marks) {
  const Result<Rendered> plain = renderer.first(i + 1, false), marked = renderer.marked(i + 1, i, marks);
  if (!plain.ok() || !marked.ok()) return std::nullopt;
  const auto ranges = between(marked->text, marks, plain->text);
  if (!ranges || ranges->size() != 1) return std::nullopt;
  return plain->text.substr(ranges->front().end);
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(shorter), b.begin()).first - a.begin());
}

// "<|im_start|>assistant\n<think>" of "…<think>\n" and "…<think></think>": they differ behind a tag, not within one.
bool ends_a_tag(std::string_view text) {
  return !text.empty() && std::string_view(">]\n").find(text.back()) != std::string_view::npos;
}

// A message in the whole: what it says, and where what the message before it says ends (0: none is before it).
struct SpokenMessage {
  size_t message = 0;
  ByteRange said;
  size_t before = 0;
};

// From behind what asks for the message to the end of what ends it.
Result<ByteRange> with_its_ends(const PartRenderer& renderer, const SpokenMessage& place, std::string_view whole, const Marks& marks) {
  const size_t i = place.message;
  const std::string which = fmt::format("message {}, of the assistant", i + 1);
  const std::optional<std::string> prompt = prompt_of(renderer, i), ending = ending_of(renderer, i, marks),
                                   ending_before = i == 0 ? "" : ending_of(renderer, i - 1, marks);
  if (!prompt || !ending || !ending_before)
    return refused(renderer, which + ": the template does not render the conversation up to it, so its bytes are not known");
  std::string_view gap = whole.substr(place.before, place.said.begin - place.before);
  if (!gap.starts_with(*ending_before))
    return refused(renderer, which + ": the template ends what is in front of it differently, so its bytes are not known");
  gap.remove_prefix(ending_before->size());
  const size_t asked = common_prefix(gap, *prompt);
  if (asked < prompt->size() && asked < gap.size() && !ends_a_tag(gap.substr(0, asked)))
    return refused(renderer, which + ": what asks for it is not in front of it, so its bytes are not known");
  if (whole.substr(place.said.end, ending->size()) != *ending)
    return refused(renderer, which + ": the template ends it differently once other messages follow, so its bytes are not known");
  return ByteRange{place.said.begin - gap.size() + asked, place.said.end + ending->size()};
}

}  // namespace

Result<std::vector<ByteRange>> marked_ranges(const PartRenderer& renderer, const std::string& whole) {
  const nlohmann::ordered_json& messages = renderer.request.messages;
  const std::optional<Marks> marks = marks_for(whole + messages.dump());
  if (!marks) return refused(renderer, "the conversation has every character for private use, so none is left to mark messages with");
  const Result<Rendered> text = renderer.marked(messages.size(), 0, *marks);
  const auto said = text.ok() ? between(text->text, *marks, whole) : std::nullopt;
  std::vector<size_t> speaking;
  for (size_t i = 0; i < messages.size(); ++i)
    if (says_something(messages[i])) speaking.push_back(i);
  if (!said || said->size() != speaking.size())
    return refused(renderer,
                   "the template does not write each message as it is, so the bytes of those of the assistant are not known");
  std::vector<ByteRange> ranges;
  for (size_t i = 0, k = 0; i < messages.size(); ++i) {
    const bool speaks = k < speaking.size() && speaking[k] == i;
    if (is_assistant(messages[i])) {
      if (!speaks)
        return refused(renderer, fmt::format("message {}, of the assistant, says nothing, so its bytes are not known", i + 1));
      if (i > 0 && (k == 0 || speaking[k - 1] != i - 1))
        return refused(renderer, fmt::format("message {} says nothing, so the bytes of the assistant's behind it are not known", i));
      const SpokenMessage place = {i, (*said)[k], k == 0 ? 0 : (*said)[k - 1].end};
      Result<ByteRange> range = with_its_ends(renderer, place, whole, *marks);
      if (!range.ok()) return range.diagnostics;
      ranges.push_back(*range);
    }
    k += speaks ? 1 : 0;
  }
  return ranges;
}

}  // namespace distsetup
