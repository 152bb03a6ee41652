#include "data/set_json.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

constexpr std::string_view kFormat = "distsetup data set";
constexpr int64_t kVersion = 1;

Json counts_json(const SplitCounts& c) { return {{"samples", c.samples}, {"tokens", c.tokens}, {"trained_tokens", c.trained_tokens}}; }

// Takes values out of JSON; the first that is missing or of another type is remembered.
class Taking {
 public:
  explicit Taking(std::string_view where) : where_(where) {}

  template <class T>
  void take(const Json& from, const char* key, T& to) {
    if (!problem_.empty()) return;
    const auto found = from.find(key);
    if (found == from.end()) {
      problem_ = fmt::format("{}'{}' is missing", where_, key);
      return;
    }
    if constexpr (std::is_same_v<T, Json>)
      to = *found;
    else if (std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer())
      to = found->get<T>();
    else
      problem_ = fmt::format("{}'{}' is {}, expected {}", where_, key, found->dump(),
                             std::is_same_v<T, std::string> ? "a text" : "a whole number");
  }
  Json object(const Json& from, const char* key) { return nested(from, key, Json::value_t::object, "an object"); }
  Json array(const Json& from, const char* key) { return nested(from, key, Json::value_t::array, "a list"); }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  const std::string& problem() const { return problem_; }

 private:
  Json nested(const Json& from, const char* key, Json::value_t type, std::string_view expected) {
    Json found;
    take(from, key, found);
    if (problem_.empty() && found.type() != type) problem_ = fmt::format("'{}' is no {}", key, expected);
    return found.type() == type ? found : Json(type);
  }
  std::string where_, problem_;
};

SplitCounts take_counts(Taking& t, const Json& json) {
  SplitCounts c;
  t.take(json, "samples", c.samples);
  t.take(json, "tokens", c.tokens);
  t.take(json, "trained_tokens", c.trained_tokens);
  return c;
}
SetSource take_source(Taking& t, const Json& json) {
  SetSource s;
  if (!json.is_object()) return t.fail("a source is no object"), s;
  t.take(json, "path", s.path);
  t.take(json, "sha256", s.sha256);
  t.take(json, "format", s.format);
  t.take(json, "rows", s.rows);
  const Json dropped = t.object(json, "dropped");
  for (const auto& [reason, count] : dropped.items()) {
    if (!count.is_number_integer())
      t.fail("'dropped' counts rows by reason");
    else
      s.dropped[reason] = count.get<int64_t>();
  }
  return s;
}

}  // namespace

std::string format_set_description(const SetDescription& set) {
  Json sources = Json::array(), files = Json::array();
  for (const SetSource& s : set.sources)
    sources.push_back({{"path", s.path}, {"sha256", s.sha256}, {"format", s.format}, {"rows", s.rows}, {"dropped", Json(s.dropped)}});
  for (const SetFile& f : set.files) files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}});
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"tokenizer", {{"file", set.tokenizer}, {"sha256", set.tokenizer_digest}}},
               {"template_sha256", set.template_digest},
               {"vocabulary_size", set.vocabulary_size},
               {"longest", set.longest},
               {"training", counts_json(set.training)},
               {"held_out", counts_json(set.held_out)},
               {"lengths", set.lengths},
               {"sources", std::move(sources)},
               {"files", std::move(files)}};
  if (set.holds_pairs) json["pairs"] = true;
  for (const SetPart& p : set.mixture) json["mixture"].push_back({{"path", p.path}, {"weight", p.weight}, {"sources", p.num_sources}});
  return dump_json(json);
}

namespace {

// Parts with weights above 0, of which all sources are.
std::vector<SetPart> take_mixture(Taking& t, const Json& json, size_t num_sources) {
  std::vector<SetPart> mixture;
  if (!json.contains("mixture")) return mixture;
  int64_t sum = 0;
  for (const Json& part : t.array(json, "mixture")) {
    SetPart p;
    const Json weight = part.is_object() && part.contains("weight") ? part["weight"] : Json();
    if (!weight.is_number() || !(weight.get<double>() > 0)) t.fail("a part of 'mixture' has no weight above 0");
    if (!t.problem().empty()) break;
    p.weight = weight.get<double>();
    t.take(part, "path", p.path);
    t.take(part, "sources", p.num_sources);
    if (p.num_sources < 1 || p.num_sources > static_cast<int64_t>(num_sources)) t.fail("a part of 'mixture' has no sources");
    sum += p.num_sources;
    mixture.push_back(std::move(p));
  }
  if (sum != static_cast<int64_t>(num_sources)) t.fail(fmt::format("'mixture' has {} of {} sources", sum, num_sources));
  return mixture;
}

}  // namespace

Result<SetDescription> parse_set_description(std::string_view text, const std::string& path) {
  constexpr const char* kHelp = "a prepared data set is a folder that distsetup data prepare wrote";
  const Json json = json_from_text(text);
  if (!json.is_object()) return error(code::kData, {path}, "this is no JSON object", kHelp);
  Taking t("");
  std::string format;
  int64_t version = 0;
  t.take(json, "format", format);
  t.take(json, "version", version);
  if (t.problem().empty() && (format != kFormat || version != kVersion))
    t.fail(fmt::format("found '{}', version {}, expected '{}', version {}", format, version, kFormat, kVersion));
  SetDescription set;
  const Json tokenizer = t.object(json, "tokenizer");
  t.take(tokenizer, "file", set.tokenizer);
  t.take(tokenizer, "sha256", set.tokenizer_digest);
  t.take(json, "template_sha256", set.template_digest);
  t.take(json, "vocabulary_size", set.vocabulary_size);
  t.take(json, "longest", set.longest);
  const auto pairs = json.find("pairs");  // sets of other samples do not say
  set.holds_pairs = pairs != json.end() && *pairs == true;
  if (pairs != json.end() && !pairs->is_boolean()) t.fail("'pairs' is neither true nor false");
  set.training = take_counts(t, t.object(json, "training"));
  set.held_out = take_counts(t, t.object(json, "held_out"));
  for (const Json& count : t.array(json, "lengths")) {
    if (!count.is_number_integer())
      t.fail("'lengths' counts samples");
    else
      set.lengths.push_back(count.get<int64_t>());
  }
  for (const Json& source : t.array(json, "sources")) set.sources.push_back(take_source(t, source));
  set.mixture = take_mixture(t, json, set.sources.size());
  for (const Json& file : t.array(json, "files")) {
    SetFile f;
    if (!file.is_object())
      t.fail("a file is no object");
    else
      t.take(file, "path", f.path), t.take(file, "bytes", f.bytes), t.take(file, "sha256", f.sha256);
    set.files.push_back(std::move(f));
  }
  if (!t.problem().empty()) return error(code::kData, {path}, t.problem(), kHelp);
  return set;
}

}  // namespace distsetup
