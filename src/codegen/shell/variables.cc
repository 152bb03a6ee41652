#include "codegen/shell/variables.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace distsetup::foreign {
const ShellValue* ShellVariables::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

void ShellVariables::remember(std::string_view name) {
  if (before_.empty() || before_.back().find(name) != before_.back().end()) return;
  const ShellValue* now = find(name);
  before_.back().emplace(name, now == nullptr ? std::nullopt : std::optional<ShellValue>(*now));
}

std::optional<ShellValue> ShellVariables::take(std::string_view name) {
  remember(name);
  const auto it = values_.find(name);
  if (it == values_.end()) return std::nullopt;
  return std::move(it->second);
}

void ShellVariables::set(std::string_view name, ShellValue value) {
  if (value.text.size() > kMaxValueBytes || value.words.size() > kMaxValueWords) {
    value = {};
    value.is_known = false;
  }
  remember(name);
  const auto it = values_.find(name);
  if (it == values_.end()) {
    values_.emplace(name, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

void ShellVariables::set_unknown(std::string_view name) {
  ShellValue value;
  value.is_known = false;
  set(name, std::move(value));
}

bool ShellVariables::doubt_empty(bool doubts) { return std::exchange(doubts_empty_, doubts); }

void ShellVariables::begin() { before_.emplace_back(); }

ShellVariables::Changes ShellVariables::end() {
  Changes out;
  for (auto& [name, value] : before_.back()) {
    const auto it = values_.find(name);
    out.emplace(name, std::move(it->second));
    if (value) {
      it->second = std::move(*value);
    } else {
      values_.erase(it);
    }
  }
  before_.pop_back();
  return out;
}

namespace {

using Words = std::vector<ShellWord>;

bool is_option(const ShellWord& word) {
  return word.text.size() > 1 && word.text[0] == '-' && (word.text[1] < '0' || word.text[1] > '9');
}

bool are_same(const Words& a, const Words& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ShellWord& x, const ShellWord& y) { return x.text == y.text; });
}

std::string_view option_name(const ShellWord& word) { return std::string_view(word.text).substr(0, word.text.find('=')); }

// An option with the words behind it.
struct Option {
  Words::const_iterator begin, end;
  std::string text;  // all of them, a line each

  std::string_view name() const { return option_name(*begin); }
};

using Names = std::set<std::string, std::less<>>;

// What a list says from `at` on.
struct Options {
  std::vector<Option> all;
  Names texts, names, maybe;  // maybe: names that not every branch before gave

  Options(const Words& words, size_t at) {
    for (auto it = words.begin() + static_cast<std::ptrdiff_t>(at); it != words.end(); ++it) {
      if (all.empty() || is_option(*it)) all.push_back({it, it, ""});
      all.back().end = it + 1;
      all.back().text += it->text + '\n';
    }
    for (const Option& one : all) {
      texts.insert(one.text);
      names.emplace(one.name());
      if (one.begin->text.ends_with(":+}")) maybe.emplace(one.name());
    }
  }

  bool gives(std::string_view name) const { return names.find(name) != names.end() && maybe.find(name) == maybe.end(); }
};

// Options that have other values there: "--lr=$ARGS", which only the running script knows; and that the others lack:
// "--lr=${ARGS:+}", which nobody knows to be given. `there` are the names that `out` has.
void add_unknown(const Options& these, const Options& others, std::string_view name, Words& out, Names& there) {
  for (const Option& one : these.all) {
    if (others.texts.count(one.text) != 0 || !there.emplace(one.name()).second) continue;
    const bool is_in_both = these.gives(one.name()) && others.gives(one.name());
    ShellWord word = *one.begin;
    word.text = std::string(one.name()) + (is_in_both ? "=$" + std::string(name) : "=${" + std::string(name) + ":+}");
    word.parts = {{ShellQuote::kDouble, word.text, word.span}};
    out.push_back(std::move(word));
  }
}

// What both lists say: the words they begin with alike, and the options that both have.
Words agreed_words(const Words& a, const Words& b, std::string_view name) {
  constexpr size_t kMostOptions = 100;  // a list that grows from branch to branch is read again at each
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[same].text == b[same].text) ++same;
  const auto is_value = [&same](const Words& words) { return same < words.size() && !is_option(words[same]); };
  // "--lr 1" and "--lr 2"; "--lr=1" has its value
  const bool may_take = same > 0 && is_option(a[same - 1]) && a[same - 1].text.find('=') == std::string::npos;
  if (may_take && (is_value(a) || is_value(b))) --same;
  Words out(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(same));
  const Options of_a(a, same), of_b(b, same);
  if (is_value(a) || is_value(b) || of_a.all.size() > kMostOptions || of_b.all.size() > kMostOptions) return out;
  for (const Option& one : of_a.all) {
    if (of_b.texts.count(one.text) != 0) out.insert(out.end(), one.begin, one.end);
  }
  Names there;
  for (const ShellWord& word : out) there.emplace(option_name(word));
  add_unknown(of_a, of_b, name, out, there);
  add_unknown(of_b, of_a, name, out, there);
  return out;
}

// A word that a program begins with; behind "-m" stands a module.
bool begins_program(const ShellWord& word) {
  static constexpr std::string_view kLaunchers[] = {"srun", "torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec", "-m"};
  const std::string_view base = std::string_view(word.text).substr(word.text.rfind('/') + 1);
  return base.ends_with(".py") || base.starts_with("python") ||
         std::find(std::begin(kLaunchers), std::end(kLaunchers), base) != std::end(kLaunchers);
}

constexpr size_t kMostLineWords = 200, kMostPrograms = 20, kMostSplits = 6;  // of a launch line; a longer list is one of arguments

// Where programs begin.
std::vector<size_t> programs_in(const Words& words) {
  std::vector<size_t> out;
  for (size_t i = 0; i < words.size() && out.size() < kMostPrograms; ++i) {
    if (begins_program(words[i])) out.push_back(i);
  }
  return out;
}

// The first program that both lists start: its place in either of them.
std::optional<std::pair<size_t, size_t>> common_program(const Words& a, const Words& b) {
  std::optional<std::pair<size_t, size_t>> best;
  const std::vector<size_t> of_b = programs_in(b);
  for (const size_t i : programs_in(a)) {
    for (const size_t j : of_b) {
      const bool is_nearer = !best || i + j < best->first + best->second;
      if (is_nearer && a[i].text == b[j].text) best = {i, j};
    }
  }
  return best;
}

Words part_of(const Words& words, size_t begin, size_t end) {
  return {words.begin() + static_cast<std::ptrdiff_t>(begin), words.begin() + static_cast<std::ptrdiff_t>(end)};
}

// What two launch lines agree on, program by program, so that an option stays with the one it is of. What stands in front of the first
// program that both start ("srun" of one branch) is no part of it.
Words agreed_lines(const Words& first, const Words& second, std::string_view name) {
  if (first.size() > kMostLineWords || second.size() > kMostLineWords) return agreed_words(first, second, name);
  Words out, a = first, b = second;
  for (size_t i = 0; i < kMostSplits; ++i) {
    const auto both = common_program(a, b);
    if (!both) break;
    if (i > 0) {
      const Words options = agreed_words(part_of(a, 0, both->first), part_of(b, 0, both->second), name);
      out.insert(out.end(), options.begin(), options.end());
    }
    out.push_back(a[both->first]);
    a = part_of(a, both->first + 1, a.size());
    b = part_of(b, both->second + 1, b.size());
  }
  const Words options = agreed_words(a, b, name);
  out.insert(out.end(), options.begin(), options.end());
  return out;
}

// No word of it says an option either.
bool is_unknown(const ShellValue& value) {
  return !value.is_known && (value.words.empty() || (value.words.size() == 1 && !is_option(value.words[0])));
}

// N=$(nvidia-smi -L | wc -l): the running script finds it out, and N=1 behind it is for machines that have none.
bool is_found_out(const ShellValue& value) {
  return is_unknown(value) && ((value.text.starts_with("$(") && !value.text.starts_with("$((")) || value.text.starts_with("`"));
}

// The GPUs of the machine that it runs on, which a branch for machines without nvidia-smi does not say.
bool counts_devices(const ShellValue& value) {
  return is_found_out(value) && (value.text.find("-smi") != std::string::npos || value.text.find("device_count") != std::string::npos);
}

bool is_empty(const ShellValue& value) { return value.is_known && !value.is_array && value.text.empty(); }

// Options alone, and none that names a value: EXTRA="--fp16". What a branch gives values to is what the run is meant to have.
bool says_switches(const ShellValue& value) {
  return value.is_known && !value.words.empty() && std::all_of(value.words.begin(), value.words.end(), [](const ShellWord& word) {
           return is_option(word) && word.text.find('=') == std::string::npos;
         });
}

ShellValue nothing() {
  ShellValue value;
  value.is_known = true;
  return value;
}

// What both say, or the one that is known at all.
ShellValue agreed(const ShellValue& a, const ShellValue& b, std::string_view name, bool doubts_empty) {
  ShellValue out = is_unknown(a) ? b : a;
  if (counts_devices(a) || counts_devices(b)) return counts_devices(a) ? a : b;
  const bool is_doubted = doubts_empty && ((is_unknown(a) && is_empty(b)) || (is_unknown(b) && is_empty(a)));
  if (is_doubted) return is_unknown(a) ? a : b;
  if (a.text == b.text && a.is_known == b.is_known && a.words.size() == b.words.size()) {
    out.is_certain = a.is_certain && b.is_certain;
    return out;
  }
  out.is_certain = false;
  if (is_unknown(a) || is_unknown(b)) return is_unknown(b) ? a : out;
  const ShellValue& shorter = a.words.size() <= b.words.size() ? a : b;
  Words words = agreed_lines(a.words, b.words, name);
  const bool is_shorter = are_same(words, shorter.words);
  const auto is_launch = [](const ShellValue& one) { return one.differs || (!one.words.empty() && begins_program(one.words[0])); };
  const bool differs = is_launch(a) || is_launch(b);
  out = is_shorter ? shorter : ShellValue();
  out.is_certain = false;
  out.differs = differs;
  if (is_shorter) return out;
  out.is_known = false;
  out.is_array = a.is_array;
  out.words = std::move(words);
  return out;
}

}  // namespace

void ShellVariables::merge(const std::vector<Changes>& parts, bool may_be_none) {
  Changes all;
  std::map<std::string, size_t, std::less<>> num_changes;
  for (const Changes& part : parts) {
    for (const auto& [name, value] : part) {
      const auto [it, is_new] = all.try_emplace(name, value);
      if (!is_new) it->second = agreed(it->second, value, name, doubts_empty_);
      ++num_changes[name];
    }
  }
  for (auto& [name, value] : all) {
    const ShellValue* before = find(name);
    const bool is_everywhere = !may_be_none && num_changes[name] == parts.size();
    if (before != nullptr && !is_everywhere) {
      set(name, is_found_out(*before) ? *before : agreed(*before, value, name, doubts_empty_));
    } else if (!is_everywhere && before == nullptr && parts.size() == 1 && says_switches(value)) {
      set(name, agreed(nothing(), value, name, doubts_empty_));  // [ -n "$X" ] && EXTRA="--fp16": with nothing, perhaps
    } else {
      value.is_certain = value.is_certain && is_everywhere;
      set(name, std::move(value));
    }
  }
}

}  // namespace distsetup::foreign
