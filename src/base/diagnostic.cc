// How a diagnostic looks on a screen. Order: notes and warnings by position, then errors by position, so that the line that
// matters is the last one above the prompt. The source line is cut to a window when it is long (config.json on one line), tabs keep
// their width, and control characters are masked: text from a file must not drive the user's terminal.
#include "base/diagnostic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "base/names.h"

template class std::vector<distsetup::Diagnostic>;

namespace distsetup {
namespace {

constexpr size_t kMaxShownColumns = 120;
constexpr std::uintmax_t kMaxSourceBytes = 16 << 20;  // a larger file is data; reading it again for one line is not worth it

Diagnostic make(Severity severity, std::string_view code, Location location, std::string message, std::string help) {
  Diagnostic d;
  d.code = code;
  d.severity = severity;
  d.location = std::move(location);
  d.message = std::move(message);
  d.help = std::move(help);
  return d;
}

// Control characters of ASCII and Latin-1 (in UTF-8: C2 80 … C2 9F) as '?'. Line breaks stay where several lines are wanted.
enum class LineBreaks { kMask, kKeep };
std::string masked(std::string_view text, LineBreaks breaks = LineBreaks::kMask) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    const bool is_kept = text[i] == '\t' || (text[i] == '\n' && breaks == LineBreaks::kKeep);
    const bool is_masked = is_c1 || byte == 0x7f || (byte < 0x20 && !is_kept);
    out += is_masked ? '?' : text[i];
    if (is_c1) ++i;
  }
  return out;
}

// Code points, since columns count characters; broken UTF-8 gives one piece per byte.
std::vector<std::string> characters(std::string_view line) {
  std::vector<std::string> out;
  for (const char c : line) {
    const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    if (continues && !out.empty()) {
      out.back() += c;
    } else {
      out.emplace_back(1, c);
    }
  }
  return out;
}

class SourceLines {
 public:
  // Lines of `file`, empty when it is not a readable regular file ("command line", a pipe).
  const std::vector<std::string>& of(const std::string& file) {
    auto [it, is_new] = lines_.try_emplace(file);
    std::error_code failure;
    const bool is_source = is_new && std::filesystem::is_regular_file(file, failure) &&
                           std::filesystem::file_size(file, failure) <= kMaxSourceBytes && !failure;
    if (is_source) {
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        it->second.push_back(line);
      }
    }
    return it->second;
  }

 private:
  std::map<std::string, std::vector<std::string>> lines_;
};

struct Paint {
  Colour colour;
  std::string operator()(std::string_view sgr, std::string_view text) const {
    return colour == Colour::kOn ? fmt::format("\033[{}m{}\033[0m", sgr, text) : std::string(text);
  }
};

struct Look {
  const char* word;
  const char* sgr;
};

Look look_of(Severity severity) {
  switch (severity) {
    case Severity::kError: return {"error", "1;31"};
    case Severity::kWarning: return {"warning", "1;33"};
    case Severity::kNote: return {"note", "1;36"};
  }
  return {"error", "1;31"};
}

std::string place(const Location& at) {
  std::string text = masked(at.file);
  if (at.line > 0) text += fmt::format(":{}", at.line);
  if (at.line > 0 && at.column > 0) text += fmt::format(":{}", at.column);
  return text;
}

// The source line and the carets below it, without the gutter.
struct Excerpt {
  std::string source;
  std::string carets;
};

Excerpt excerpt(const std::string& line, int column, int length) {
  const std::vector<std::string> chars = characters(line);
  const size_t target = std::min(static_cast<size_t>(std::max(column - 1, 0)), chars.size());
  size_t begin = 0;
  if (chars.size() > kMaxShownColumns && target > kMaxShownColumns / 2) {
    begin = std::min(target - kMaxShownColumns / 2, chars.size() - kMaxShownColumns);
  }
  const size_t end = std::min(chars.size(), begin + kMaxShownColumns);
  Excerpt out;
  std::string indent;
  if (begin > 0) out.source = "...", indent = "   ";
  for (size_t i = begin; i < end; ++i) {
    out.source += is_utf8(chars[i]) ? chars[i] : "?";  // a binary file
    if (i < target) indent += chars[i] == "\t" ? '\t' : ' ';
  }
  if (end < chars.size()) out.source += "...";
  const size_t room = std::max<size_t>(end - target, 1);  // one caret even past the end of the line
  out.carets = indent + std::string(std::min(static_cast<size_t>(std::max(length, 1)), room), '^');
  out.source = masked(out.source);
  return out;
}

std::string format_one(const Diagnostic& d, SourceLines& sources, Paint paint) {
  const Look look = look_of(d.severity);
  const std::string head = d.code.empty() ? look.word : fmt::format("{}[{}]", look.word, d.code);
  std::string text = fmt::format("{}: {}\n", paint(look.sgr, head), paint("1", masked(d.message)));
  const int line = d.location.line;
  const std::string number = line > 0 ? std::to_string(line) : "";
  const std::string gutter(std::max<size_t>(number.size(), 1), ' ');
  if (!d.location.file.empty()) text += fmt::format("{}{} {}\n", gutter, paint("34", "-->"), place(d.location));
  if (line > 0 && !d.location.file.empty()) {
    const std::vector<std::string>& lines = sources.of(d.location.file);
    if (static_cast<size_t>(line) <= lines.size()) {
      const Excerpt shown = excerpt(lines[line - 1], d.location.column, d.length);
      text += fmt::format("{} {}\n", gutter, paint("34", "|"));
      text += fmt::format("{} {}\n", paint("34", number + " |"), shown.source);
      if (d.location.column > 0) text += fmt::format("{} {} {}\n", gutter, paint("34", "|"), paint(look.sgr, shown.carets));
    }
  }
  if (!d.help.empty()) text += fmt::format("  {} {}\n", paint("32", "help:"), masked(d.help, LineBreaks::kKeep));
  return text;
}

}  // namespace

Diagnostic::Diagnostic() = default;
Diagnostic::Diagnostic(const Diagnostic&) = default;
Diagnostic::Diagnostic(Diagnostic&&) noexcept = default;
Diagnostic& Diagnostic::operator=(const Diagnostic&) = default;
Diagnostic& Diagnostic::operator=(Diagnostic&&) noexcept = default;
Diagnostic::~Diagnostic() = default;

Diagnostic error(std::string_view code, Location location, std::string message, std::string help) {
  return make(Severity::kError, code, std::move(location), std::move(message), std::move(help));
}

Diagnostic warning(std::string_view code, Location location, std::string message, std::string help) {
  return make(Severity::kWarning, code, std::move(location), std::move(message), std::move(help));
}

Diagnostic note(std::string_view code, Location location, std::string message, std::string help) {
  return make(Severity::kNote, code, std::move(location), std::move(message), std::move(help));
}

bool has_error(const Diagnostics& diagnostics) {
  return std::any_of(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& d) { return d.severity == Severity::kError; });
}

std::string format_diagnostics(const Diagnostics& diagnostics, Colour colour) {
  std::vector<const Diagnostic*> order;
  for (const Diagnostic& d : diagnostics) order.push_back(&d);
  std::stable_sort(order.begin(), order.end(), [](const Diagnostic* a, const Diagnostic* b) {
    const auto key = [](const Diagnostic* d) {
      return std::make_tuple(d->severity == Severity::kError, std::string_view(d->location.file), d->location.line,
                             d->location.column);
    };
    return key(a) < key(b);
  });
  SourceLines sources;
  std::string text;
  for (const Diagnostic* d : order) text += (text.empty() ? "" : "\n") + format_one(*d, sources, Paint{colour});
  return text;
}

void append(Diagnostics& to, Diagnostics from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace distsetup
