#include "plan/native_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/value_yaml.h"
#include "model/condition.h"
#include "model/geometry_fields.h"
#include "plan/kernel_table.h"
#include "plan/native_parameters.h"
#include "plan/native_program.h"
#include "plan/tensor_parallel.h"

namespace distsetup {
namespace {

constexpr std::array<std::pair<std::string_view, ParameterDecl::Init>, 4> kInits = {{{"normal", ParameterDecl::Init::kNormal},
                                                                                     {"ones", ParameterDecl::Init::kOnes},
                                                                                     {"zeros", ParameterDecl::Init::kZeros},
                                                                                     {"scaled", ParameterDecl::Init::kScaledNormal}}};

constexpr std::array<std::pair<std::string_view, RowOrder>, 3> kOrders = {
    {{"plain", RowOrder::kPlain}, {"grouped", RowOrder::kGrouped}, {"pairs", RowOrder::kPairs}}};

class FileReading {
 public:
  explicit FileReading(Diagnostics& said) : said_(said) {}

  void read(const Value& value, NativeFile& file, std::string (*read_base)(std::string_view)) {
    MapReader reader(value, "native program", said_);
    std::string base;
    if (reader.get("base", base)) read_over(base, value, file, read_base);
    if (const Value* needs = reader.child("needs")) file.needs = conditions_of(needs);
    if (const Value* missing = reader.child("missing")) {
      file.missing.clear();
      for (const Value& item : missing->items) read_missing(item, file);
    }
    reader.get("buffers", file.buffers);
    reader.get("layer_classes", file.layer_classes);
    if (const Value* attributes = reader.child("attributes"))
      for (const auto& [kernel, values] : attributes->entries) read_attributes(values, file.attributes[kernel]);
    if (const Value* unit = reader.child("embedding")) read_unit(*unit, file.embedding);
    if (const Value* unit = reader.child("block")) read_unit(*unit, file.block);
    if (const Value* unit = reader.child("head")) read_unit(*unit, file.head);
    reader.finish();
  }

 private:
  void read_over(const std::string& base, const Value& value, NativeFile& file, std::string (*read_base)(std::string_view)) {
    const std::string text = read_base(base);
    if (text.empty()) return say(value.find("base")->location, fmt::format("found no native program '{}' to be based on", base));
    const Result<Value> below = parse_yaml(text, base + ".yaml");
    append(said_, below.diagnostics);
    if (below.ok()) read(*below, file, read_base);
  }

  void say(const Location& at, std::string message) { said_.push_back(error(code::kUnknownValue, at, std::move(message))); }

  // A condition, or a list of them.
  std::vector<std::string> conditions_of(const Value* value) {
    std::vector<std::string> conditions;
    const auto add = [&](const Value& one) {
      const std::string_view subject = condition_subject(one.text);
      if (!is_subject(subject))
        say(one.location,
            fmt::format("found '{}', expected a field of a model, {}, {}, {} or {}", subject, kLocal, kExperts, kRotated, kTied));
      conditions.push_back(one.text);
    };
    if (value != nullptr && value->kind == Value::Kind::kScalar) add(*value);
    if (value != nullptr)
      for (const Value& item : value->items) add(item);
    return conditions;
  }

  void read_missing(const Value& value, NativeFile& file) {
    MissingKernel missing;
    MapReader reader(value, "missing", said_);
    reader.require("kernel");
    reader.get("kernel", missing.kernel);
    missing.when = conditions_of(reader.child("when"));
    reader.get("beyond", missing.beyond);
    if (!missing.beyond.empty() && find_geometry_field(missing.beyond) == nullptr)
      said_.push_back(error(code::kUnknownValue, reader.child("beyond")->location,
                            fmt::format("'beyond' is '{}', expected a size of models (a key of presets/families)", missing.beyond)));
    reader.finish();
    file.missing.push_back(std::move(missing));
  }

  void read_attributes(const Value& values, std::map<std::string, std::string>& out) {
    for (const Value::Entry& entry : values.entries) {
      const Location& at = entry.second.location;
      const auto is_it = [&](const AttributeField& a) { return a.name == entry.first; };
      if (std::ranges::none_of(attribute_fields(), is_it))
        say(at, fmt::format("found attribute '{}', which no kernel has", entry.first));
      if (!number_of(entry.second.text, Geometry(), {}))
        say(at, fmt::format(
                    "found '{}', expected a number, a field of a model with a number, sqrt(field), 1/field, 1/sqrt(field), {} or {}",
                    entry.second.text, kLayerWindow, kScoreScale));
      out[entry.first] = entry.second.text;
    }
  }

  // What a file says of a unit takes the place of what its base says: weights, forward and selective each as a whole.
  void read_unit(const Value& value, NativeFile::Unit& unit) {
    MapReader reader(value, "unit", said_);
    reader.get("prefix", unit.prefix);
    reader.get("selective", unit.selective);
    if (const Value* weights = reader.child("weights")) {
      unit.weights.clear();
      for (const Value& item : weights->items) read_weight(item, unit);
    }
    if (const Value* forward = reader.child("forward")) {
      unit.forward.clear();
      for (const Value& item : forward->items) read_op(item, unit);
    }
    reader.finish();
  }

  void read_weight(const Value& value, NativeFile::Unit& unit) {
    NativeFile::Weight w;
    std::string init = "normal", order = "plain";
    MapReader reader(value, "weight", said_);
    for (const char* key : {"name", "slot", "shape"}) reader.require(key);
    reader.get("name", w.decl.name);
    reader.get("slot", w.decl.slot);
    reader.get("shape", w.decl.shape);
    w.when = conditions_of(reader.child("when"));
    reader.get("init", init);
    reader.get("order", order);
    reader.get("parts", w.decl.parts);
    reader.get("transposed", w.decl.transposed);
    reader.get("stacked", w.decl.stacked);
    reader.get("published_rows", w.decl.published_rows);
    reader.get("balances", w.decl.balances);
    w.decl.trains = !w.decl.balances;
    reader.finish();
    w.decl.decay = w.decl.shape.size() > 1;  // matrices, not norms and biases
    std::vector<std::string> rows;
    if (!w.decl.published_rows.empty()) rows.push_back(w.decl.published_rows);
    w.decl.expert = w.decl.name.find(kExpertNumber) == std::string::npos ? -1 : 0;
    if (w.decl.expert == 0 && w.decl.shape.size() != 2)
      say(value.location, fmt::format("found a shape of {} sizes of a weight that each expert has, expected 2", w.decl.shape.size()));
    if (w.decl.stacked && w.decl.expert != 0)
      say(value.location, fmt::format("found 'stacked' of a weight without {} in its name", kExpertNumber));
    if (!rows.empty() && w.decl.shape.size() != 1) say(value.location, "published_rows is of a weight with one size");
    if (w.decl.shape.empty() || w.decl.shape.size() > 2)
      say(value.location, fmt::format("found a shape of {} sizes, expected 1 or 2", w.decl.shape.size()));
    for (const std::vector<std::string>* sizes : {&w.decl.shape, &w.decl.parts, &rows})
      for (const std::string& size : *sizes)
        if (const std::string problem = expression_problem(size, symbols_); !problem.empty())
          say(value.location, fmt::format("size '{}': {}", size, problem));
    w.decl.split = split_dimension(w.decl.shape);
    if (!w.decl.parts.empty() && w.decl.split != 0)
      say(value.location, "parts are of a first size that counts heads, feed-forward elements or tokens of the vocabulary");
    const auto known = std::find_if(kInits.begin(), kInits.end(), [&](const auto& i) { return i.first == init; });
    if (known == kInits.end())
      say(value.location, fmt::format("init is '{}', expected normal, ones, zeros or scaled", init));
    else
      w.decl.init = known->second;
    const auto ordered = std::find_if(kOrders.begin(), kOrders.end(), [&](const auto& o) { return o.first == order; });
    if (ordered == kOrders.end())
      say(value.location, fmt::format("order is '{}', expected plain, grouped or pairs", order));
    else
      w.decl.order = ordered->second;
    unit.weights.push_back(std::move(w));
  }

  void read_op(const Value& value, NativeFile::Unit& unit) {
    NativeFile::Operation o;
    MapReader reader(value, "op", said_);
    for (const char* key : {"op", "kernel", "reads", "writes"}) reader.require(key);
    reader.get("op", o.op.name);
    reader.get("kernel", o.op.kernel);
    o.op.reads = names_of(reader.child("reads"));
    o.op.writes = names_of(reader.child("writes"));
    o.when = conditions_of(reader.child("when"));
    if (const Value* attributes = reader.child("attributes")) read_attributes(*attributes, o.attributes);
    reader.finish();
    unit.forward.push_back(std::move(o));
  }

  // A list as it is written: of operands, 'y' is one.
  static std::vector<std::string> names_of(const Value* list) {
    std::vector<std::string> names;
    if (list != nullptr)
      for (const Value& item : list->items) names.push_back(item.text);
    return names;
  }

  Diagnostics& said_;
  const Symbols symbols_ = native_symbols(Geometry(), 1, 1);  // for their names
};

}  // namespace

Result<NativeFile> read_native_file(std::string_view text, const std::string& path, std::string (*read_base)(std::string_view)) {
  Result<Value> value = parse_yaml(text, path);
  if (!value.ok()) return value.diagnostics;
  NativeFile file;
  Diagnostics said;
  FileReading(said).read(*value, file, read_base);
  if (has_error(said)) return said;
  return file;
}

}  // namespace distsetup
