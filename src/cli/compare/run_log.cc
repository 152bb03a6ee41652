#include "cli/compare/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// How trainers call what they log, compared in lower case. Of several names in one line the first of the table counts.
struct LogName {
  const char* name;
  double unit = 1;  // what the number is multiplied by
};
// Megatron-LM; OpenRLHF (gpt_loss is the step's, loss_mean a moving mean); litgpt; Lightning and W&B exports; NeMo; torchtitan and
// most
constexpr std::array kLossNames = {LogName{"lm loss"},
                                   LogName{"gpt_loss"},
                                   LogName{"loss train"},
                                   LogName{"train loss"},
                                   LogName{"train/loss"},
                                   LogName{"train_loss"},
                                   LogName{"train_loss_step"},
                                   LogName{"reduced_train_loss"},
                                   LogName{"train/ce loss"},
                                   LogName{"training_loss"},
                                   LogName{"loss"},
                                   LogName{"loss_mean"}};
constexpr std::array kStepNames = {
    LogName{"global_step"}, LogName{"train/global_step"}, LogName{"step"}, LogName{"iteration"}, LogName{"iter"}, LogName{"steps"}};
constexpr std::array kNormNames = {LogName{"grad norm"},       LogName{"grad_norm"},       LogName{"gradient_norm"},
                                   LogName{"train/grad_norm"}, LogName{"total grad norm"}, LogName{"norm"}};
constexpr std::array kTimeNames = {LogName{"elapsed time per iteration (ms)", 1e-3}, LogName{"step_s"}, LogName{"step_time"},
                                   LogName{"iter_time"}, LogName{"train_step_timing in s"}};
constexpr std::array kRateNames = {LogName{"tokens_per_s"}, LogName{"tokens_per_second_per_gpu"}, LogName{"tps"}, LogName{"tokens/s"},
                                   LogName{"tokens_per_sec"}};
constexpr std::array kMemoryNames = {LogName{"memory", 1.0 * kGiB}, LogName{"peak_memory_active", 1.0 * kGiB},
                                     LogName{"max_memory_allocated", 1.0}, LogName{"peak_memory_alloc", 1.0 * kGiB}};
// A loss behind one of these words is another one.
constexpr std::array<std::string_view, 12> kOtherLosses = {"val",      "valid", "validation", "eval",   "evaluation", "test",
                                                           "held-out", "aux",   "z",          "router", "balancing",  "mtp_1"};

bool is_log_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '/' || c == '-' || c == '.'; }

// A number at `at`: "1,234.5", "6.3E+00", "nan". Sets `at` behind it.
std::optional<double> number_at(std::string_view line, size_t& at) {
  const std::string_view rest = line.substr(at);
  for (const std::string_view word : {"nan", "inf", "-inf", "-nan"}) {
    if (rest.substr(0, word.size()) != word) continue;
    at += word.size();
    return kNaN;
  }
  std::string digits;
  size_t i = 0;
  for (; i < rest.size(); ++i) {
    const char c = rest[i];
    const auto digit_at = [&rest](size_t at) { return at < rest.size() && is_digit(rest[at]); };
    if (c == ',' && i > 0 && digit_at(i + 1) && digit_at(i + 2) && digit_at(i + 3) && !digit_at(i + 4)) continue;  // "1,234"
    const bool is_sign = (c == '-' || c == '+') && (i == 0 || rest[i - 1] == 'e');
    const bool is_exponent = c == 'e' && i > 0 && (is_digit(rest[i - 1]) || rest[i - 1] == '.');
    if (!is_digit(c) && c != '.' && !is_sign && !is_exponent) break;
    if (c != '+') digits += c;
  }
  while (!digits.empty() && (digits.back() == '.' || digits.back() == 'e')) digits.pop_back(), --i;  // "loss: 2.3." ends a sentence
  double value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failed != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  at += i;
  return value;
}

std::string_view word_before(std::string_view line, size_t at) {
  while (at > 0 && line[at - 1] == ' ') --at;
  const size_t end = at;
  while (at > 0 && is_log_word(line[at - 1])) --at;
  return line.substr(at, end - at);
}

// The number that follows a name: "loss: 2.1", "'loss': 2.1", "loss=2.1", "loss 2.1", "iteration        1/     500".
std::optional<double> value_of(std::string_view line, std::string_view name) {
  for (size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    if (at > 0 && is_log_word(line[at - 1])) continue;
    size_t behind = at + name.size();
    if (behind < line.size() && (line[behind] == '\'' || line[behind] == '"')) ++behind;
    const size_t name_end = behind;
    while (behind < line.size() && line[behind] == ' ') ++behind;
    if (behind < line.size() && (line[behind] == ':' || line[behind] == '=')) ++behind;
    while (behind < line.size() && (line[behind] == ' ' || line[behind] == '\'' || line[behind] == '"')) ++behind;
    if (behind == name_end) continue;  // "loss2.1"
    const std::string_view before = word_before(line, at);
    if (std::find(kOtherLosses.begin(), kOtherLosses.end(), before) != kOtherLosses.end()) continue;
    if (const std::optional<double> value = number_at(line, behind)) return value;
  }
  return std::nullopt;
}

template <size_t kNum>
std::optional<double> first_of(std::string_view line, const std::array<LogName, kNum>& names, std::string* which = nullptr) {
  for (const LogName& one : names) {
    if (const std::optional<double> value = value_of(line, one.name)) {
      if (which != nullptr) *which = one.name;
      return *value * one.unit;
    }
  }
  return std::nullopt;
}

// The position of tqdm's bar: " 10/100 [".
std::optional<double> bar_position(std::string_view line) {
  const size_t bracket = line.find(" [");
  const size_t slash = bracket == std::string_view::npos ? bracket : line.rfind('/', bracket);
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  size_t begin = slash;
  while (begin > 0 && is_digit(line[begin - 1])) --begin;
  if (begin == slash || bracket - slash > 12) return std::nullopt;
  return number_at(line, begin);
}

// Terminal colours out, everything in lower case.
std::string uncoloured(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      while (i < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0) ++i;
      continue;
    }
    out += line[i];
  }
  return lower(out);
}

class CurveBuilder {
 public:
  explicit CurveBuilder(std::string path, std::string format) { log_.path = std::move(path), log_.format = std::move(format); }

  // `step`: nothing: the line before was the one before.
  void add(LoggedStep at, std::optional<double> step, const std::string& loss_name) {
    if (log_.loss_name.empty()) log_.loss_name = loss_name;
    if (loss_name != log_.loss_name) return;  // one curve, not two
    counted_ += step ? 1 : 0;
    ++num_;
    at.step = step ? static_cast<int64_t>(*step) : next_;
    next_ = at.step + 1;
    steps_.erase(steps_.lower_bound(at.step), steps_.end());  // a resumed or repeated run takes the place of what it does again
    steps_[at.step] = at;
  }
  Result<RunLog> finish() {
    if (steps_.empty()) {
      return error(code::kUnreadableFile, {log_.path, 0, 0}, fmt::format("no loss stands in '{}'", log_.path),
                   "expected metrics.jsonl, trainer_state.json, a CSV, or lines with a number behind 'loss', 'lm loss', 'train_loss'");
    }
    log_.counts_steps = counted_ * 2 > num_;
    for (const auto& [step, one] : steps_) log_.steps.push_back(one);
    return std::move(log_);
  }

 private:
  RunLog log_;
  std::map<int64_t, LoggedStep> steps_;
  int64_t next_ = 1, counted_ = 0, num_ = 0;
};

// --- lines

Result<RunLog> parse_lines(const std::string& path, std::string_view text) {
  CurveBuilder curve(path, "text");
  std::optional<double> step_before;  // "[step=10/100]" on a line of its own, the loss below it
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of("\n\r", begin), text.size());
    const std::string line = uncoloured(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.find("train_runtime") != std::string::npos) continue;  // the Trainer's summary: a mean
    std::optional<double> step = first_of(line, kStepNames);
    if (!step) step = bar_position(line);
    std::string name;
    const std::optional<double> loss = first_of(line, kLossNames, &name);
    if (!loss) {
      if (step) step_before = step;
      continue;
    }
    LoggedStep at;
    at.loss = *loss;
    at.gradient_norm = first_of(line, kNormNames);
    at.step_s = first_of(line, kTimeNames);
    at.tokens_per_s = first_of(line, kRateNames);
    at.memory_bytes = first_of(line, kMemoryNames);
    curve.add(at, step ? step : std::exchange(step_before, std::nullopt), name);
  }
  return curve.finish();
}

// --- JSON

std::optional<double> number_in(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  if (found == object.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (!found->is_string()) return std::nullopt;
  size_t at = 0;
  const std::string text = uncoloured(found->get<std::string>());
  return number_at(text, at);
}

template <size_t kNum>
std::optional<double> first_in(const Json& object, const std::array<LogName, kNum>& names, std::string* which = nullptr) {
  for (const LogName& one : names) {
    if (const std::optional<double> value = number_in(object, one.name)) {
      if (which != nullptr) *which = one.name;
      return *value * one.unit;
    }
  }
  return std::nullopt;
}

void add_record(const Json& record, CurveBuilder& curve) {
  if (!record.is_object() || record.contains("train_runtime")) return;
  if (record.contains("kind") && record["kind"] != "step") return;  // ours: evaluation
  std::string name;
  const std::optional<double> loss = first_in(record, kLossNames, &name);
  if (!loss) return;
  LoggedStep at;
  at.loss = *loss;
  at.gradient_norm = first_in(record, kNormNames);
  at.step_s = first_in(record, kTimeNames);
  at.tokens_per_s = first_in(record, kRateNames);
  curve.add(at, first_in(record, kStepNames), name);
}

Json parse_or_null(std::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
}

Result<RunLog> parse_json_lines(const std::string& path, std::string_view text) {
  CurveBuilder curve(path, "JSON lines");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Json record = parse_or_null(text.substr(begin, end - begin));
    if (!record.is_discarded()) add_record(record, curve);
    begin = end + 1;
  }
  return curve.finish();
}

// --- CSV

std::vector<std::string> cells_of(std::string_view line) {
  std::string text = uncoloured(line);
  std::erase_if(text, [](char c) { return c == '"' || c == '\r'; });
  return split(text, text.find('\t') != std::string::npos ? '\t' : ',');
}

Result<RunLog> parse_csv(const std::string& path, std::string_view text) {
  CurveBuilder curve(path, "CSV");
  std::vector<std::string> header;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<std::string> cells = cells_of(text.substr(begin, end - begin));
    begin = end + 1;
    if (header.empty()) {
      header = cells;
      continue;
    }
    Json record = Json::object();
    for (size_t i = 0; i < std::min(cells.size(), header.size()); ++i) {
      if (!cells[i].empty()) record[header[i]] = cells[i];
    }
    add_record(record, curve);
  }
  return curve.finish();
}

bool looks_like_csv(std::string_view text) {
  const std::vector<std::string> cells = cells_of(text.substr(0, text.find('\n')));
  return cells.size() > 1 && std::any_of(cells.begin(), cells.end(), [](const std::string& cell) {
           return std::any_of(kLossNames.begin(), kLossNames.end(), [&cell](const LogName& one) { return cell == one.name; });
         });
}

// The file of a run's folder that holds its curve; empty: none.
std::string curve_file(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"metrics.jsonl", "trainer_state.json", "trainer_log.jsonl", "metrics.csv"}) {
    if (fs::exists(folder / name, ignored)) return (folder / name).string();
  }
  int64_t newest = -1;
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("checkpoint-", 0) != 0 || !fs::exists(entry.path() / "trainer_state.json", ignored)) continue;
    const int64_t step = std::strtoll(name.c_str() + 11, nullptr, 10);
    if (step > newest) newest = step, found = (entry.path() / "trainer_state.json").string();
  }
  return found;
}

}  // namespace

Result<RunLog> parse_run_log(const std::string& path, std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    const Json whole = parse_or_null(text);
    if (whole.is_object() && whole.contains("log_history")) {
      CurveBuilder curve(path, "trainer_state.json");
      for (const Json& record : whole["log_history"]) add_record(record, curve);
      return curve.finish();
    }
    if (!parse_or_null(text.substr(first, text.find('\n', first) - first)).is_discarded()) return parse_json_lines(path, text);
  }
  if (looks_like_csv(text)) return parse_csv(path, text);
  return parse_lines(path, text);
}

Result<RunLog> read_run_log(const std::string& path) {
  std::error_code ignored;
  std::string file = path;
  if (fs::is_directory(path, ignored)) {
    file = curve_file(path);
    if (file.empty()) {
      return error(code::kUnreadableFile, {path, 0, 0}, fmt::format("no curve of a run lies in the folder '{}'", path),
                   "expected metrics.jsonl, trainer_state.json or metrics.csv in it, or name a log file");
    }
  }
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.diagnostics;
  return parse_run_log(file, *text);
}

}  // namespace distsetup
