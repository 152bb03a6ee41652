#include "planner/resolve/releases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <span>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "planner/resolve/setup_words.h"
#include "planner/time/constants.h"

namespace distsetup {
namespace {

constexpr std::string_view kFolder = "releases", kLoss = "loss", kImplementation = "optimizer_implementation", kWrapping = "wrapping";

// What `when` can ask of a run, one bit each.
constexpr std::string_view kConditions[] = {"compiled", "nvidia", "blackwell", "torchtitan_program", "qk_norm", "mistral"};

uint32_t conditions_of(const Setup& s) {
  const bool holds[] = {s.compiled,
                        s.gpu.vendor == "nvidia",
                        gpu_generation(s.gpu) == GpuGeneration::kBlackwell,
                        s.program.starts_with("torchtitan"),
                        s.model.qk_norm_present(),
                        s.model.family == "mistral"};
  static_assert(std::size(holds) == std::size(kConditions));
  uint32_t bits = 0;
  for (size_t i = 0; i < std::size(holds); ++i) bits |= holds[i] ? 1u << i : 0u;
  return bits;
}

const Named<bool Software::*>* find_flag(std::string_view field) {
  const auto* found =
      std::find_if(std::begin(kSoftwareFlags), std::end(kSoftwareFlags), [&](const auto& f) { return f.text == field; });
  return found == std::end(kSoftwareFlags) ? nullptr : found;
}

struct Version {
  int major = 0;
  std::optional<int> minor;
};

// "4", "4.46", "4.46.1", "v4.46.0.dev0".
std::optional<Version> version_of(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  Version version;
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc{}) return std::nullopt;
  if (major.ptr == end) return version;
  int minor = 0;
  if (*major.ptr != '.') return std::nullopt;
  const auto read = std::from_chars(major.ptr + 1, end, minor);
  if (read.ec != std::errc{} || (read.ptr != end && *read.ptr != '.')) return std::nullopt;
  version.minor = minor;
  return version;
}

class ReleaseReader {
 public:
  explicit ReleaseReader(Diagnostics& said) : said_(said) {}

  void table(const Value& map, ReleaseTable& into) {
    MapReader top(map, "", said_);
    std::string note;
    int64_t version = 0;
    top.get("version", version);
    top.require("changes");
    top.get("source", note);
    top.get("date", note);
    if (const Value* list = top.child("changes")) {
      for (const Value& entry : list->items) into.changes.push_back(change(entry));
    }
    if (const Value* named = top.child("named")) {
      for (const Value::Entry& entry : named->entries) into.named.push_back(named_release(entry.first, entry.second));
    }
    top.finish();
  }

 private:
  NamedRelease named_release(const std::string& version, const Value& day) {
    NamedRelease one;
    const std::optional<Version> read = version_of(version);
    const char* end = day.text.data() + day.text.size();
    if (!read.has_value() || !read->minor.has_value() || std::from_chars(day.text.data(), end, one.day).ptr != end) unknown(day);
    if (read.has_value()) one.major = read->major, one.minor = read->minor.value_or(0);
    return one;
  }

  ReleaseChange change(const Value& entry) {
    ReleaseChange c;
    MapReader reader(entry, "changes", said_);
    std::string why;
    reader.require("set");
    reader.get("since", c.since);
    reader.get("until", c.until);
    reader.get("why", why);
    const Value *field = reader.child("set"), *to = reader.child("to");
    if (field != nullptr) set(*field, to, c);
    if (const Value* when = reader.child("when")) {
      for (const Value& item : when->items) condition(item, c);
    }
    reader.finish();
    return c;
  }

  void set(const Value& field, const Value* to, ReleaseChange& c) {
    if (field.text == kLoss) return word(kLoss, to, field, std::span(kLossHeads), c);
    if (field.text == kImplementation) return word(kImplementation, to, field, std::span(kImplementations), c);
    if (field.text == kWrapping) return word(kWrapping, to, field, std::span(kWrappings), c);
    const Named<bool Software::*>* flag = find_flag(field.text);
    if (flag == nullptr) return unknown(field);
    c.field = flag->text;
    if (to != nullptr && to->text != "true" && to->text != "false") return unknown(*to);
    c.value = to == nullptr || to->text == "true" ? 1 : 0;
  }

  template <class E, size_t n>
  void word(std::string_view field, const Value* to, const Value& at, std::span<const Named<E>, n> words, ReleaseChange& c) {
    c.field = field;
    for (const Named<E>& one : words) {
      if (to == nullptr || one.text != to->text) continue;
      c.value = static_cast<int>(one.value);
      return;
    }
    unknown(to == nullptr ? at : *to);
  }

  void condition(const Value& item, ReleaseChange& c) {
    constexpr std::string_view kNot = "not ";
    const std::string_view text = item.text;
    const bool negated = text.starts_with(kNot);
    const std::string_view wanted = negated ? text.substr(kNot.size()) : text;
    const auto* found = std::find(std::begin(kConditions), std::end(kConditions), wanted);
    if (found == std::end(kConditions)) return unknown(item);
    (negated ? c.none : c.all) |= 1u << (found - std::begin(kConditions));
  }

  void unknown(const Value& value) {
    said_.push_back(error(code::kUnknownValue, value.location, fmt::format("unknown value '{}'", value.text)));
  }

  Diagnostics& said_;
};

bool holds(const ReleaseChange& c, int64_t day, uint32_t conditions) {
  return c.since <= day && day < c.until && (conditions & c.all) == c.all && (conditions & c.none) == 0;
}

}  // namespace

Result<std::shared_ptr<const ReleaseTable>> find_releases(const Presets& presets, std::string_view stack, const Location& at) {
  const PresetFile* file = find_preset(presets, kFolder, stack);
  if (file == nullptr)
    return error(code::kUnknownValue, at, fmt::format("no releases of '{}' are known", stack),
                 suggest(stack, preset_ids(presets, kFolder)));
  const Result<Value> value = read_preset(*file);
  if (!value.ok()) return value.diagnostics;
  ReleaseTable table;
  table.stack = file->id;
  Diagnostics said;
  ReleaseReader(said).table(*value, table);
  if (has_error(said)) return said;
  return {std::make_shared<const ReleaseTable>(std::move(table)), std::move(said)};
}

const ReleaseTable& built_in_releases(std::string_view stack) {
  static const std::map<std::string, std::shared_ptr<const ReleaseTable>, std::less<>> all = [] {
    std::map<std::string, std::shared_ptr<const ReleaseTable>, std::less<>> tables;
    const Result<Presets> presets = load_presets();
    CHECK(presets.ok());
    for (const std::string& id : preset_ids(*presets, kFolder)) {
      Result<std::shared_ptr<const ReleaseTable>> table = find_releases(*presets, id);
      CHECK(table.ok(), "{}", format_diagnostics(table.diagnostics));
      tables.emplace(id, std::move(*table));
    }
    return tables;
  }();
  const auto found = all.find(stack);
  CHECK(found != all.end(), "no releases of", stack);
  return *found->second;
}

const NamedRelease* find_named_release(const ReleaseTable& releases, std::string_view version) {
  const std::optional<Version> asked = version_of(version);
  if (!asked.has_value()) return nullptr;
  const auto is_it = [&](const NamedRelease& one) {
    return one.major == asked->major && (!asked->minor.has_value() || one.minor == *asked->minor);
  };
  const auto found = std::find_if(releases.named.rbegin(), releases.named.rend(), is_it);
  return found == releases.named.rend() ? nullptr : &*found;
}

void set_release(Setup& s, const ReleaseTable& releases, int64_t day) {
  const uint32_t conditions = conditions_of(s);
  const Software defaults;
  Software& w = s.software;
  w.released = static_cast<int>(day / 100);
  for (const ReleaseChange& c : releases.changes)
    if (const auto* flag = find_flag(c.field)) w.*flag->value = defaults.*flag->value;
  for (const ReleaseChange& c : releases.changes) {
    if (!holds(c, day, conditions)) continue;
    if (const auto* flag = find_flag(c.field)) w.*flag->value = c.value != 0;
    if (c.field == kWrapping) w.wrapping = static_cast<UnitWrapping>(c.value);
    if (c.field == kImplementation) s.optimizer_implementation = static_cast<OptimizerImplementation>(c.value);
    if (c.field == kLoss) s.loss = static_cast<LossHead>(c.value);
  }
}

std::optional<LossHead> loss_of_release(const Setup& s, const ReleaseTable& releases, int64_t day) {
  const uint32_t conditions = conditions_of(s);
  std::optional<LossHead> loss;
  for (const ReleaseChange& c : releases.changes)
    if (c.field == kLoss && holds(c, day, conditions)) loss = static_cast<LossHead>(c.value);
  return loss;
}

}  // namespace distsetup
