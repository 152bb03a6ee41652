// plan.json: written from and read into the one list of fields in plan_fields.h.
#include "plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_json.h"
#include "model/count.h"
#include "plan/plan_fields.h"

namespace distsetup {
namespace {

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};

struct PlanWriter {
  Json json = Json::object();
  // A setting that earlier plans do not have is left out where it is as usual: they are still read, and read like new ones.
  template <class T>
  void operator()(const char* key, T& value, const T& usual) {
    if (!(value == usual)) (*this)(key, value);
  }
  template <class T>
  void operator()(const char* key, T& value) {
    json[key] = encode(value);
  }

  template <class T>
  static Json encode(T& value) {
    if constexpr (std::is_enum_v<T>) {
      return Json(std::string(spelling_of(value)));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return Json(value);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      Json list = Json::array();
      for (const bool item : value) list.push_back(item);
      return list;
    } else if constexpr (is_vector<T>::value) {
      Json list = Json::array();
      for (auto& item : value) list.push_back(encode(item));
      return list;
    } else {
      PlanWriter inner;
      visit(inner, value);
      if constexpr (std::is_same_v<T, Geometry>) {
        const ParameterCount count = count_parameters(value);
        inner.json["parameters"] = count.total;
        inner.json["active_parameters"] = count.active;
      }
      return std::move(inner.json);
    }
  }
};

class PlanReader {
 public:
  PlanReader(const Value& map, std::string path, Diagnostics& out) : map_(map), path_(std::move(path)), out_(out) {
    if (map.kind != Value::Kind::kMap) corrupt(map.location, fmt::format("'{}' is not an object", path_));
  }

  template <class T>
  void operator()(const char* key, T& value) {
    known_.push_back(key);
    const Value* found = map_.find(key);
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (found == nullptr) return corrupt(map_.location, fmt::format("key '{}' is missing", path));
    decode(*found, path, value);
  }

  template <class T>
  void operator()(const char* key, T& value, const T& usual) {
    value = usual;
    if (map_.find(key) != nullptr) return (*this)(key, value);
    known_.push_back(key);
  }

  void finish() {
    for (size_t i = 0; i < map_.entries.size(); ++i) {
      const std::string& key = map_.entries[i].first;
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      out_.push_back(error(code::kPlanCorrupt, map_.key_locations[i],
                           fmt::format("unknown key '{}'", path_.empty() ? key : path_ + "." + key), suggest(key, known_)));
    }
  }

  void known(const char* key) { known_.push_back(key); }

 private:
  void corrupt(const Location& at, std::string message) {
    out_.push_back(error(code::kPlanCorrupt, at, std::move(message), "make the plan again: distsetup plan --output plan.json"));
  }

  template <class T>
  void take(Result<T> result, T& value, const std::string& path) {
    if (result.ok()) {
      value = std::move(*result);
      return;
    }
    for (const Diagnostic& d : result.diagnostics) corrupt(d.location, fmt::format("'{}': {}", path, d.message));
  }

  template <class T>
  void decode(const Value& found, const std::string& path, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::string allowed;
      for (const auto& s : spellings<T>()) {
        if (s.text == found.text && found.quoted) {
          value = s.value;
          return;
        }
        allowed += (allowed.empty() ? "" : ", ") + std::string(s.text);
      }
      corrupt(found.location, fmt::format("'{}' is '{}', expected one of {}", path, found.text, allowed));
    } else if constexpr (std::is_same_v<T, bool>) {
      take(as_bool(found), value, path);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      take(as_int(found), value, path);
    } else if constexpr (std::is_same_v<T, int>) {
      int64_t wide = 0;
      const size_t before = out_.size();
      take(as_int(found), wide, path);
      if (out_.size() == before && (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()))
        corrupt(found.location, fmt::format("'{}' is {}, which is out of range", path, wide));
      value = static_cast<int>(wide);
    } else if constexpr (std::is_same_v<T, double>) {
      take(as_double(found), value, path);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (found.kind != Value::Kind::kScalar || !found.quoted) return corrupt(found.location, fmt::format("'{}' is not text", path));
      value = found.text;
    } else if constexpr (is_vector<T>::value) {
      if (found.kind != Value::Kind::kList) return corrupt(found.location, fmt::format("'{}' is not a list", path));
      value.clear();
      for (size_t i = 0; i < found.items.size(); ++i) {
        typename T::value_type item{};
        decode(found.items[i], fmt::format("{}[{}]", path, i), item);
        value.push_back(std::move(item));
      }
    } else {
      PlanReader inner(found, path, out_);
      visit(inner, value);
      if constexpr (std::is_same_v<T, Geometry>) {  // counted from the rest, for who reads the file
        inner.known("parameters");
        inner.known("active_parameters");
      }
      inner.finish();
    }
  }

  const Value& map_;
  const std::string path_;
  Diagnostics& out_;
  std::vector<std::string> known_;
};

}  // namespace

Json to_json(const Plan& plan) {
  Plan copy = plan;
  Json json = PlanWriter::encode(copy);
  json["schema_version"] = kPlanSchemaVersion;
  return json;
}

Json to_json(const Diagnostics& diagnostics) {
  Diagnostics copy = diagnostics;
  return PlanWriter::encode(copy);
}

Json failed_plan_json(const Diagnostics& diagnostics) {
  return {{"schema_version", kPlanSchemaVersion}, {"verdict", nullptr}, {"diagnostics", to_json(diagnostics)}};
}

Result<Plan> plan_from_json(std::string_view text, std::string_view file_name) {
  const std::string help = "make the plan again: distsetup plan --output plan.json";
  Result<Value> tree = parse_json(text, file_name);
  if (!tree.ok()) {
    for (Diagnostic& d : tree.diagnostics) d.code = code::kPlanCorrupt, d.help = help;
    return std::move(tree.diagnostics);
  }
  const Location at{std::string(file_name), 1, 1};
  if (tree->kind != Value::Kind::kMap) return error(code::kPlanCorrupt, at, "a plan is a JSON object", help);
  const Value* version = tree->find("schema_version");
  if (version == nullptr) return error(code::kPlanCorrupt, at, "key 'schema_version' is missing, so this is not a plan", help);
  if (version->text != std::to_string(kPlanSchemaVersion))
    return error(code::kPlanVersion, version->location,
                 fmt::format("this plan has schema_version {}, this distsetup reads {}", version->text, kPlanSchemaVersion), help);
  Plan plan;
  Diagnostics out;
  const Value* verdict = tree->find("verdict");
  if (verdict != nullptr && verdict->kind == Value::Kind::kNull)
    return error(code::kPlanCorrupt, verdict->location, "this plan failed (verdict null), there is nothing to run", help);
  PlanReader reader(*tree, "", out);
  visit(reader, plan);
  reader.known("schema_version");
  reader.finish();
  if (out.empty()) {
    for (Diagnostic& d : validate(plan)) {
      if (d.severity != Severity::kError) continue;
      d.code = code::kPlanCorrupt;
      d.location = at;
      out.push_back(std::move(d));
    }
  }
  if (!out.empty()) return out;
  return plan;
}

}  // namespace distsetup
