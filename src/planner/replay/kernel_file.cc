// Reads presets/kernels/: what each kernel allocates, frees and saves, in the order of its steps.
#include "planner/replay/kernel_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "planner/replay/program_file.h"
#include "planner/replay/program_words.h"

namespace distsetup::replay {

namespace {

constexpr std::array<std::string_view, 10> kKernelKinds = {"gemm", "attention", "norm",       "elementwise",    "embedding",
                                                           "loss", "copy",      "all_gather", "reduce_scatter", "all_to_all"};

struct KernelReader {
  Kernel& kernel;
  Diagnostics& said;

  int local(std::string_view name) const {
    for (size_t i = 0; i < kernel.locals.size(); ++i) {
      if (kernel.locals[i] == name) return static_cast<int>(i);
    }
    return -1;
  }
  int size_index(std::string_view name) const {
    const int index = local(name);
    return index >= 0 ? kFirstLocal + index : symbol_index(name);
  }
  int8_t known(std::string_view name, const Location& at) {
    const int index = local(name);
    if (index < 0) {
      said.push_back(
          error(code::kUnknownValue, at,
                fmt::format("kernel '{}' names '{}', expected one of {}", kernel.name, name, fmt::join(kernel.locals, ", "))));
    }
    return static_cast<int8_t>(std::max(index, 0));
  }
  int8_t bind(std::string_view name, const Location& at) {
    if (const int index = local(name); index >= 0) return static_cast<int8_t>(index);
    if (kernel.locals.size() == kMaxLocals) {
      said.push_back(error(code::kOutOfRange, at, fmt::format("kernel '{}' has more than {} tensors", kernel.name, kMaxLocals)));
      return 0;
    }
    kernel.locals.emplace_back(name);
    return static_cast<int8_t>(kernel.locals.size() - 1);
  }
  void names(const Value* value, std::vector<int8_t>& into) {
    for (const std::string& name : texts_of(value, said)) into.push_back(known(name, value->location));
  }

  // "+x32=2*x +y -x32 weight x<dx x<=g rebuild rebuilt n( +a -a )"
  void steps(const Value* value, std::vector<KernelStep>& into) {
    if (value == nullptr) return;
    std::vector<int16_t> open;
    for (const std::string& text : texts_of(value, said)) {
      for (std::string_view word : words_of(text)) {
        KernelStep step;
        const auto find = [this](std::string_view name) { return size_index(name); };
        if (word.starts_with('?')) {
          step.when_trained = true;
          word.remove_prefix(1);
        }
        const size_t arrow = word.find('<');
        if (word == "weight") {
          step.kind = KernelStep::Kind::kWeight;
        } else if (word == "weight_b") {
          step.kind = KernelStep::Kind::kSecondWeight;
          kernel.has_second_weight = true;
        } else if (word == "rebuild" || word == "rebuilt") {
          step.kind = word == "rebuild" ? KernelStep::Kind::kRebuild : KernelStep::Kind::kRebuilt;
        } else if (word == ")") {
          step.kind = KernelStep::Kind::kEnd;
          if (open.empty()) {
            said.push_back(error(code::kSyntax, value->location, "found ')', expected it only after 'count('"));
            continue;
          }
          step.partner = open.back();
          into[static_cast<size_t>(open.back())].partner = static_cast<int16_t>(into.size());
          open.pop_back();
        } else if (word.ends_with('(')) {
          step.kind = KernelStep::Kind::kRepeat;
          word.remove_suffix(1);
          step.size = size_of(word, find, value->location, said);
          open.push_back(static_cast<int16_t>(into.size()));
        } else if (word.starts_with('+')) {
          const size_t equals = std::min(word.find('='), word.size());
          if (equals < word.size()) step.size = size_of(word.substr(equals + 1), find, value->location, said);
          step.name = bind(word.substr(1, equals - 1), value->location);
        } else if (word.starts_with('-')) {
          step.kind = KernelStep::Kind::kFree;
          step.name = known(word.substr(1), value->location);
        } else if (arrow != std::string_view::npos) {
          const bool shared = word.substr(arrow).starts_with("<=");
          step.kind = shared ? KernelStep::Kind::kSharedGradient : KernelStep::Kind::kGradient;
          step.name = known(word.substr(0, arrow), value->location);
          step.other = known(word.substr(arrow + (shared ? 2 : 1)), value->location);
        } else {
          said.push_back(
              error(code::kUnknownValue, value->location,
                    fmt::format("found step '{}', expected +name=size, -name, read<gradient, weight, weight_b, rebuild, rebuilt, "
                                "count( or )",
                                word)));
          continue;
        }
        into.push_back(std::move(step));
      }
    }
    if (!open.empty()) said.push_back(error(code::kSyntax, value->location, "found no ')' for 'count('"));
  }
};

Kernel kernel_from_value(const std::string& name, const Value& value, Diagnostics& said) {
  Kernel kernel;
  kernel.name = name;
  KernelReader reader{kernel, said};
  MapReader map(value, fmt::format("kernel '{}'", name), said);
  map.get("kind", kernel.kind);
  if (std::find(kKernelKinds.begin(), kKernelKinds.end(), kernel.kind) == kKernelKinds.end()) {
    said.push_back(error(code::kUnknownValue, value.location,
                         fmt::format("found kind '{}', expected one of {}", kernel.kind, fmt::join(kKernelKinds, ", "))));
  }
  kernel.locals.emplace_back("g");
  for (const std::string& read : texts_of(map.child("reads"), said)) reader.bind(read, value.location);
  kernel.num_reads = static_cast<int>(kernel.locals.size()) - 1;
  for (const std::string& written : texts_of(map.child("writes"), said)) reader.bind(written, value.location);
  kernel.num_writes = static_cast<int>(kernel.locals.size()) - 1 - kernel.num_reads;
  map.get("weight", kernel.weight);
  reader.steps(map.child("forward"), kernel.forward);
  reader.steps(map.child("backward"), kernel.backward);
  reader.names(map.child("saves"), kernel.saves);
  reader.names(map.child("saves_for_weight"), kernel.saves_for_weight);
  map.finish();
  return kernel;
}

}  // namespace

Result<KernelFile> kernels_from_value(const Value& value) {
  KernelFile file;
  Diagnostics said;
  MapReader map(value, "kernels", said);
  std::string ignored;
  int64_t version = 0;
  map.get("version", version);
  map.get("source", ignored);
  map.get("date", ignored);
  if (const Value* kernels = map.child("kernels")) {
    for (const Value::Entry& entry : kernels->entries)
      file.kernels.emplace(entry.first, kernel_from_value(entry.first, entry.second, said));
  }
  if (const Value* losses = map.child("losses")) file.losses = *losses;
  map.finish();
  if (has_error(said)) return said;
  return {std::move(file), std::move(said)};
}

}  // namespace distsetup::replay
