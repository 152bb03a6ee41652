// Quantities with units, as people write them. A bare number is refused, because its unit would be a guess; so is a spelling that
// could be bits or bytes. Sizes and times are computed in integers from the digits, rates through one correctly rounded conversion.
#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

__extension__ using Wide = __int128;

constexpr std::string_view kPrefixes = "KMGTPE";
constexpr Wide kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr size_t kMaxFractionDigits = 12;

// "1.5 GiB" → "1.5", "GiB". The number is empty when the text does not start with one.
struct Split {
  std::string_view number;
  std::string_view unit;
};

Split split(std::string_view text) {
  text = trim(text);
  size_t n = 0;
  bool has_point = false;
  while (n < text.size() && (is_digit(text[n]) || (text[n] == '.' && !has_point && n > 0))) has_point |= text[n++] == '.';
  if (n > 0 && text[n - 1] == '.') --n;
  return {text.substr(0, n), trim(text.substr(n))};
}

// One kind of quantity in messages.
struct Measure {
  const char* what;      // "a size"
  const char* examples;  // right spellings
};

constexpr Measure kSize = {"a size with its unit", "80GiB, 512MB, 1.5TB"};
constexpr Measure kCount = {"a count", "4000000, 4M, 15T, 4Mi (powers of 1024)"};
constexpr Measure kDuration = {"a duration with its unit", "4h, 30m, 90s, 2d, 1h30m, 48:00:00"};
constexpr Measure kRate = {"a data rate with its unit", "400Gb/s (bits), 50GB/s (bytes), 3.35TB/s"};
constexpr Measure kFlops = {"a computing rate with its unit", "989TFLOP/s, 1.98PFLOP/s"};

struct UnitReader {
  std::string_view text;
  const Location& at;
  const Measure& measure;

  Diagnostic mistake(const char* code, std::string_view why, std::string help = "") const {
    const std::string reason = why.empty() ? "" : fmt::format(" ({})", why);
    if (help.empty()) help = fmt::format("write it like {}", measure.examples);
    Diagnostic d = error(code, at, fmt::format("found '{}'{}, expected {}", text, reason, measure.what), std::move(help));
    d.length = std::max(static_cast<int>(text.size()), 1);
    return d;
  }
  Diagnostic no_number() const {
    const std::string_view trimmed = trim(text);
    if (!trimmed.empty() && trimmed[0] == '-') return mistake(code::kOutOfRange, "it is negative");
    return mistake(code::kWrongType, "");
  }
  Diagnostic no_unit() const { return mistake(code::kUnitMissing, "it has no unit"); }
  Diagnostic unknown_unit(std::string_view unit, std::string help = "") const {
    return mistake(code::kUnknownUnit, fmt::format("the unit '{}' is not known", unit), std::move(help));
  }
  Diagnostic too_large() const { return mistake(code::kOutOfRange, "it is too large"); }
};

// number × unit, rounded to the nearest whole; nothing when it does not fit.
std::optional<int64_t> scaled(std::string_view number, Wide unit) {
  Wide digits = 0, divisor = 1;
  bool behind_point = false;
  size_t num_behind = 0;
  for (const char c : number) {
    if (c == '.') {
      behind_point = true;
      continue;
    }
    if (behind_point && ++num_behind > kMaxFractionDigits) break;  // below any unit's resolution
    digits = digits * 10 + (c - '0');
    if (behind_point) divisor *= 10;
    if (digits / divisor > kMaxInt64) return std::nullopt;
  }
  const Wide whole = digits / divisor, rest = digits % divisor;
  if (whole > kMaxInt64 / unit) return std::nullopt;
  const Wide sum = whole * unit + (rest * unit + divisor / 2) / divisor;
  if (sum > kMaxInt64) return std::nullopt;
  return static_cast<int64_t>(sum);
}

Wide power(Wide base, int exponent) {
  Wide out = 1;
  for (int i = 0; i < exponent; ++i) out *= base;
  return out;
}

// Position of a prefix letter: K 1, M 2, …; 0 = none.
int prefix_power(char letter) {
  const char upper = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  const size_t i = kPrefixes.find(upper);
  return i == std::string_view::npos ? 0 : static_cast<int>(i) + 1;
}

// number × 10^exponent, as one conversion, so that "3.35T" is the double nearest to 3.35e12.
std::optional<double> scaled_double(std::string_view number, int exponent) {
  const std::string text = fmt::format("{}e{}", number, exponent);
  double out = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), out).ec != std::errc()) return std::nullopt;
  return out;
}

// h:m:s or d-h:m:s, as SLURM prints times. Nothing when it is not of that form.
std::optional<int64_t> clock_seconds(std::string_view text) {
  int64_t days = 0;
  const size_t dash = text.find('-');
  const auto number = [](std::string_view s) -> int64_t {
    int64_t out = 0;
    const bool all_digits = !s.empty() && s.size() <= 9 && s.find_first_not_of("0123456789") == std::string_view::npos;
    if (all_digits) std::from_chars(s.data(), s.data() + s.size(), out);
    return all_digits ? out : -1;
  };
  if (dash != std::string_view::npos) {
    days = number(text.substr(0, dash));
    text.remove_prefix(dash + 1);
  }
  const size_t first = text.find(':');
  const size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const int64_t hours = number(text.substr(0, first));
  const int64_t minutes = number(text.substr(first + 1, second - first - 1));
  const int64_t seconds = number(text.substr(second + 1));
  const bool in_range = days >= 0 && hours >= 0 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 60;
  if (!in_range || (dash != std::string_view::npos && hours >= 24)) return std::nullopt;
  return ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
}

struct TimeUnit {
  const char* name;
  int64_t seconds;
};
constexpr std::array<TimeUnit, 4> kTimeUnits = {{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}}};

// Groups of three digits.
std::string grouped(std::string digits) {
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text, const Location& at, BareSuffix suffix) {
  const UnitReader reader{text, at, kSize};
  const auto [number, unit] = split(text);
  if (number.empty()) return reader.no_number();
  if (unit.empty()) return reader.no_unit();
  int prefix = prefix_power(unit[0]);
  std::string_view rest = unit.substr(prefix > 0 ? 1 : 0);
  Wide base = 1000;
  if (prefix > 0 && !rest.empty() && (rest[0] == 'i' || rest[0] == 'I')) base = 1024, rest.remove_prefix(1);
  if (rest.empty() && prefix > 0 && (base == 1024 || suffix == BareSuffix::kBinary)) {
    base = 1024;
  } else if (rest.empty()) {
    return reader.unknown_unit(
        unit, fmt::format("write {0}{1}iB (1024s) or {0}{1}B (1000s)", number, kPrefixes[static_cast<size_t>(prefix) - 1]));
  } else if (rest == "b" && unit != lower(unit)) {
    return reader.unknown_unit(unit, fmt::format("'b' means bits; for bytes write {}{}B", number, unit.substr(0, unit.size() - 1)));
  } else if (rest != "B" && rest != "b") {
    return reader.unknown_unit(unit);
  }
  const std::optional<int64_t> bytes = scaled(number, power(base, prefix));
  if (!bytes) return reader.too_large();
  return *bytes;
}

bool is_short_count(std::string_view text) {
  const auto [number, unit] = split(text);
  constexpr std::string_view kEndings = "KMBGT";
  const bool is_ending = !unit.empty() && kEndings.find(static_cast<char>(unit[0] & ~0x20)) != std::string_view::npos;
  return !number.empty() && is_ending && (unit.size() == 1 || unit.substr(1) == "i");
}

Result<int64_t> parse_count(std::string_view text, const Location& at) {
  const UnitReader reader{text, at, kCount};
  const auto [number, unit] = split(text);
  if (number.empty() || !is_short_count(text)) return reader.mistake(code::kWrongType, "");
  const char letter = lower(unit)[0];
  const int prefix = letter == 'b' ? 3 : prefix_power(letter);
  const std::optional<int64_t> count = scaled(number, power(unit.size() == 2 ? 1024 : 1000, prefix));
  if (!count) return reader.too_large();
  return *count;
}

Result<int64_t> parse_duration_s(std::string_view text, const Location& at) {
  const UnitReader reader{text, at, kDuration};
  std::string_view rest = trim(text);
  if (rest.empty() || !is_digit(rest[0])) return reader.no_number();
  if (rest.find(':') != std::string_view::npos || rest.find('-') != std::string_view::npos) {
    if (const std::optional<int64_t> seconds = clock_seconds(rest)) return *seconds;
    return reader.mistake(code::kAmbiguousSpelling, "as a clock time it is not hours:minutes:seconds",
                          "write it like 48:00:00, 1-12:00:00 (days first) or 1h30m");
  }
  int64_t total_s = 0;
  size_t next_unit = 0;  // units go down: 1h30m, not 30m1h
  while (!rest.empty()) {
    const std::string_view number = split(rest).number;
    if (number.empty()) return reader.mistake(code::kWrongType, "");
    rest = trim(rest.substr(number.size()));
    const size_t unit_size = std::min(rest.find_first_of("0123456789 \t"), rest.size());
    const std::string unit = lower(rest.substr(0, unit_size));
    if (unit.empty()) return reader.no_unit();
    size_t i = next_unit;
    while (i < kTimeUnits.size() && unit != kTimeUnits[i].name) ++i;
    const bool is_known = unit == "d" || unit == "h" || unit == "m" || unit == "s";
    if (!is_known) return reader.unknown_unit(rest.substr(0, unit_size));
    if (i == kTimeUnits.size()) return reader.mistake(code::kWrongType, "its units do not go from large to small");
    const std::optional<int64_t> part = scaled(number, kTimeUnits[i].seconds);
    if (!part || __builtin_add_overflow(total_s, *part, &total_s)) return reader.too_large();
    next_unit = i + 1;
    rest = trim(rest.substr(unit_size));
  }
  return total_s;
}

Result<double> parse_bytes_per_s(std::string_view text, const Location& at) {
  const UnitReader reader{text, at, kRate};
  const auto [number, unit] = split(text);
  if (number.empty()) return reader.no_number();
  if (unit.empty()) return reader.no_unit();
  const int prefix = prefix_power(unit[0]);
  std::string_view rest = unit.substr(prefix > 0 ? 1 : 0);
  const bool binary = prefix > 0 && !rest.empty() && rest[0] == 'i';
  if (binary) rest.remove_prefix(1);
  const bool is_bits = rest == "b/s" || rest == "bps" || rest == "bit/s" || rest == "bits/s";
  const bool is_bytes = rest == "B/s" || rest == "Bps";
  if (rest == "B" || rest == "b") {
    return reader.mistake(code::kUnitMissing, "it has no '/s'", fmt::format("write {}{}/s", number, unit));
  }
  const bool small_prefix = prefix > 1 && unit[0] >= 'a';  // 'gb/s' could be either; 'kb/s' is regular
  if ((!is_bits && !is_bytes) || small_prefix) {
    const bool is_near = lower(rest) == "b/s" || lower(rest) == "bps";
    const char letter = kPrefixes[static_cast<size_t>(std::max(prefix, 1)) - 1];
    return reader.unknown_unit(unit,
                               is_near ? fmt::format("write {}{}b/s (bits) or {}{}B/s (bytes)", number, letter, number, letter) : "");
  }
  std::optional<double> rate = scaled_double(number, binary ? 0 : 3 * prefix);
  if (rate && binary) rate = std::ldexp(*rate, 10 * prefix);
  if (!rate || !std::isfinite(*rate)) return reader.too_large();
  if (*rate <= 0) return reader.mistake(code::kOutOfRange, "it is not above zero");
  return is_bits ? *rate / 8 : *rate;
}

Result<double> parse_flops_per_s(std::string_view text, const Location& at) {
  const UnitReader reader{text, at, kFlops};
  const auto [number, unit] = split(text);
  if (number.empty()) return reader.no_number();
  if (unit.empty()) return reader.no_unit();
  const int prefix = prefix_power(unit[0]);
  const std::string rest = lower(unit.substr(prefix > 0 ? 1 : 0));
  if (rest == "flop") {
    return reader.mistake(code::kUnitMissing, "it has no '/s'", fmt::format("write {}{}/s", number, unit));
  }
  if (rest != "flop/s" && rest != "flops" && rest != "flops/s") return reader.unknown_unit(unit);
  const std::optional<double> rate = scaled_double(number, 3 * prefix);
  if (!rate || !std::isfinite(*rate)) return reader.too_large();
  if (*rate <= 0) return reader.mistake(code::kOutOfRange, "it is not above zero");
  return *rate;
}

std::string format_gib(int64_t bytes, int decimals) {
  return fmt::format("{:.{}f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB), decimals);
}

std::string format_bytes(int64_t bytes) {
  const double size = std::fabs(static_cast<double>(bytes));
  if (size < 1024) return fmt::format("{} B", bytes);
  double shown = size;
  int prefix = 0;
  while (shown >= 1023.95 && prefix < static_cast<int>(kPrefixes.size())) shown /= 1024, ++prefix;  // never "1024.0 MiB"
  return fmt::format("{}{:.1f} {}iB", bytes < 0 ? "-" : "", shown, kPrefixes[static_cast<size_t>(prefix) - 1]);
}

std::string format_count(int64_t n) {
  const uint64_t size = n < 0 ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  return (n < 0 ? "-" : "") + grouped(std::to_string(size));
}

std::string format_short_count(double n) {
  if (!std::isfinite(n)) return "unknown";
  constexpr std::string_view kLetters = "KMBT";
  double shown = std::fabs(n);
  const char* sign = n < 0 ? "-" : "";
  if (shown < 999.95) return shown == std::floor(shown) ? fmt::format("{}{:.0f}", sign, shown) : fmt::format("{}{:.1f}", sign, shown);
  size_t letter = 0;
  for (shown /= 1000; shown >= 999.95 && letter + 1 < kLetters.size(); ++letter) shown /= 1000;
  return fmt::format("{}{:.1f}{}", sign, shown, kLetters[letter]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 999.95e-6) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 999.95e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e15) return fmt::format("{:.3g} d", seconds / 86400);
  const int64_t s = std::llround(seconds);
  if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
  const int64_t minutes = (s + 30) / 60;
  if (minutes < 48 * 60) return fmt::format("{} h {:02} m", minutes / 60, minutes % 60);
  const int64_t hours = (minutes + 30) / 60;
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

std::string format_slurm_time(int64_t seconds) {
  CHECK(seconds >= 0, "{} seconds", seconds);
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

}  // namespace distsetup
