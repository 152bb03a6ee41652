// IPython's own rules (IPython 9, core/inputtransformer2.py): a cell magic is the first line of its cell, a line that begins with '!'
// goes to a shell of its own, and {name} in it is a variable of Python.
#include "codegen/read/notebook.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup::foreign {
namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(first);
  const size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// "!python t.py --lr {lr}": the shell gets what Python has.
std::string with_variables(std::string_view line) {
  std::string out;
  for (size_t at = 0; at < line.size(); ++at) {
    const size_t close = line[at] == '{' ? line.find('}', at) : std::string_view::npos;
    const std::string_view name = close == std::string_view::npos ? "" : line.substr(at + 1, close - at - 1);
    const bool is_name =
        !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; });
    if (is_name && (at == 0 || line[at - 1] != '$')) out += '$';
    out += line[at];
  }
  return out;
}

// "!export A=1", "!cd out": gone with the shell that the line had for itself.
bool acts_on_nothing(std::string_view command) {
  const std::string_view word = command.substr(0, command.find_first_of(" \t"));
  const bool is_of_shell = word == "export" || word == "cd" || word == "source" || word == ".";
  return is_of_shell && command.find_first_of(";&|") == std::string_view::npos;
}

// A line of a cell.
struct CellLine {
  std::string_view text;
  LinePlace at;
  int indent = 0;  // where the line's text begins in the file
};

std::vector<CellLine> lines_of(const Value& source) {
  std::vector<CellLine> out;
  const auto add = [&out](const Value& value, bool is_list) {
    const bool is_line = is_list && value.text.find('\n') >= value.text.size() - std::min<size_t>(value.text.size(), 1);
    for (size_t begin = 0; begin < value.text.size();) {
      const size_t end = std::min(value.text.find('\n', begin), value.text.size());
      out.push_back({std::string_view(value.text).substr(begin, end - begin),
                     {std::max(value.location.line, 1), is_line ? 0 : std::max(value.location.column, 1)}});
      out.back().indent = is_line ? std::max(value.location.column, 0) : 0;
      begin = end + 1;
    }
  };
  for (const Value& one : source.items) add(one, true);
  if (source.kind == Value::Kind::kScalar) add(source, false);
  return out;
}

class ShellLines {
 public:
  void cell(const Value& source) {
    const std::vector<CellLine> lines = lines_of(source);
    if (lines.empty()) return;
    const std::string_view magic = without_blanks(lines[0].text);
    const std::string_view word = magic.substr(0, magic.find_first_of(" \t"));
    const bool is_shell = word == "%%bash" || word == "%%sh" || word == "%%shell" || word == "%%system" || word == "%%!" ||
                          magic == "%%script bash" || magic == "%%script sh";
    if (is_shell) return whole(lines);
    if (word == "%%writefile" || word == "%%file") return written(magic.substr(word.size()), lines);
    if (word.starts_with("%%") && word != "%%capture" && word != "%%time") return;  // a program in another language
    python(lines);
  }

  std::optional<NotebookShell> take() {
    if (!has_command_) return std::nullopt;
    return std::move(out_);
  }

 private:
  void put(const CellLine& at, std::string_view text, bool is_indented = true) {
    while (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (is_indented) out_.text.append(static_cast<size_t>(at.indent), ' ');
    out_.text.append(text).push_back('\n');
    out_.places.push_back(at.at);
  }

  void whole(const std::vector<CellLine>& lines) {
    for (size_t i = 1; i < lines.size(); ++i) put(lines[i], lines[i].text);
    has_command_ = has_command_ || lines.size() > 1;
  }

  // As a document in the script.
  void written(std::string_view name, const std::vector<CellLine>& lines) {
    if (lines.size() < 2 || name.find_first_of("-{$") != std::string_view::npos) return;
    put(lines[0], "cat > " + std::string(without_blanks(name)) + " <<'END_OF_CELL'");
    for (size_t i = 1; i < lines.size(); ++i) put(lines[i], lines[i].text, false);
    put(lines.back(), "END_OF_CELL", false);
  }

  void python(const std::vector<CellLine>& lines) {
    bool is_continued = false, is_dropped = false;
    for (const CellLine& one : lines) {
      const std::string_view text = without_blanks(one.text);
      if (!is_continued && text.starts_with("%env ") && text.find_first_of("{$") == std::string_view::npos) {
        const std::string setting(without_blanks(text.substr(5)));
        const size_t equals = setting.find_first_of("= ");
        if (equals == std::string::npos) continue;
        put(one, "export " + setting.substr(0, equals) + "='" + setting.substr(equals + 1) + "'");
        continue;
      }
      if (!is_continued && !text.starts_with('!')) continue;
      std::string_view command = text;
      while (!is_continued && command.starts_with('!')) command.remove_prefix(1);
      command = without_blanks(command);
      if (!is_continued) is_dropped = acts_on_nothing(command);
      is_continued = command.ends_with('\\');
      if (is_dropped) continue;
      put(one, with_variables(command));
      has_command_ = true;
    }
    if (is_continued && !is_dropped) put(lines.back(), "");  // the next cell is another command
  }

  NotebookShell out_;
  bool has_command_ = false;
};

}  // namespace

std::optional<NotebookShell> shell_of_notebook(const Value& root) {
  const Value* cells = root.find("cells");
  if (cells == nullptr) return std::nullopt;
  ShellLines out;
  for (const Value& cell : cells->items) {
    const Value *type = cell.find("cell_type"), *source = cell.find("source");
    if (type != nullptr && source != nullptr && type->text == "code") out.cell(*source);
  }
  return out.take();
}

}  // namespace distsetup::foreign
