#include "codegen/read/value_search.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/names.h"

namespace distsetup {
namespace {

class ValueSearch {
 public:
  explicit ValueSearch(Explainer& explainer)
      : explainer_(explainer), variables_(explainer.variables()), keys_(explainer.keys()), chosen_(explainer.chosen()) {}

  std::vector<SettledField> run() {
    std::vector<size_t> met;
    for (const FileKey& key : keys_) met.insert(met.end(), key.variables.begin(), key.variables.end());
    std::sort(met.begin(), met.end());
    met.erase(std::unique(met.begin(), met.end()), met.end());
    for (const std::vector<size_t>& group : groups(met, {})) settle_group(group);
    return std::move(settled_);
  }

 private:
  // Groups of variables that meet at a key of `keys` or depend on each other; those in `apart` count as known.
  std::vector<std::vector<size_t>> groups(const std::vector<size_t>& among, const std::set<size_t>& apart) const {
    std::vector<std::vector<size_t>> links;
    for (const FileKey& key : keys_) links.push_back(key.variables);
    for (const auto& [one, other] : dependent_fields()) links.push_back({explainer_.variable(one), explainer_.variable(other)});
    std::map<size_t, size_t> group_of;
    for (const size_t v : among) {
      if (apart.count(v) == 0) group_of.emplace(v, v);
    }
    const auto root = [&group_of](size_t v) {
      while (group_of[v] != v) v = group_of[v];
      return v;
    };
    for (const std::vector<size_t>& link : links) {
      size_t first = variables_.size();
      for (const size_t v : link) {
        if (group_of.count(v) == 0) continue;
        if (first == variables_.size()) {
          first = v;
        } else {
          group_of[root(v)] = root(first);
        }
      }
    }
    std::map<size_t, std::vector<size_t>> by_root;
    for (const auto& entry : group_of) by_root[root(entry.first)].push_back(entry.first);
    std::vector<std::vector<size_t>> out;
    for (auto& entry : by_root) out.push_back(std::move(entry.second));
    return out;
  }

  size_t num_combinations(const std::vector<size_t>& variables) const {
    size_t product = 1;
    for (const size_t v : variables) product *= variables_[v].domain.size();
    return product;
  }

  // The variables of most keys, until what is left falls into groups of at most kFew combinations.
  std::vector<size_t> hubs_of(const std::vector<size_t>& group) const {
    constexpr size_t kFew = 64;
    std::set<size_t> hubs;
    while (true) {
      std::vector<size_t> largest;
      for (std::vector<size_t>& part : groups(group, hubs)) {
        if (num_combinations(part) > std::max(kFew, num_combinations(largest))) largest = std::move(part);
      }
      if (largest.empty()) return {hubs.begin(), hubs.end()};
      const auto num_keys = [this](size_t v) {
        return std::count_if(keys_.begin(), keys_.end(), [v](const FileKey& key) {
          return std::find(key.variables.begin(), key.variables.end(), v) != key.variables.end();
        });
      };
      hubs.insert(*std::max_element(largest.begin(), largest.end(), [&](size_t a, size_t b) { return num_keys(a) < num_keys(b); }));
    }
  }

  // Calls `visit` for every combination of the variables' values that some plan has; the first variable varies slowest.
  template <class Visit>
  void for_each_combination(const std::vector<size_t>& variables, const Visit& visit) {
    const size_t combinations = num_combinations(variables);
    CHECK(combinations <= (size_t{1} << 16), "{} combinations to read {} with", combinations, explainer_.table().name);
    for (size_t step = 0; step < combinations; ++step) {
      size_t rest = step;
      for (size_t i = variables.size(); i-- > 0;) {
        const std::vector<std::string>& domain = variables_[variables[i]].domain;
        chosen_[variables[i]] = domain[rest % domain.size()];
        rest /= domain.size();
      }
      if (is_possible([this](std::string_view field) { return explainer_.text_of(field); })) visit();
    }
    for (const size_t v : variables) chosen_[v].clear();
  }

  // What the target refuses to write it can still be read as, where nothing else accounts for a key.
  static constexpr int kRefused = 50;

  // A key that only a `drop` row accounts for says something that would be lost: better than nothing, worse than being read.
  int cost_of(const std::vector<const FileKey*>& keys) {
    int cost = 0;
    for (const FileKey* key : keys) cost += cost_of(*key);
    return cost;
  }
  // It follows from the variables that the key asks about: counted once for each of their values.
  int cost_of(const FileKey& key) {
    constexpr int kUnexplained = 100, kLost = 1;
    std::string tried;
    for (const size_t v : key.variables) {
      if (v < chosen_.size()) tried += chosen_[v];
      tried += '\n';
    }
    const auto [it, is_new] = costs_[&key].try_emplace(std::move(tried), 0);
    if (is_new) {
      const KeyReading reading = explainer_.explain(key);
      const KeyReading::How how = reading.how;
      const bool is_read = how == KeyReading::How::kConstant || how == KeyReading::How::kField || reading.is_settled;
      const bool is_unexplained = how == KeyReading::How::kNone || (how == KeyReading::How::kDropped && is_known_by_section(key));
      it->second = is_unexplained ? kUnexplained : is_read ? 0 : kLost;
    }
    return it->second;
  }

  // A name that only "fsdp.*" has a row for, where FSDP is off: it does not speak for that.
  static bool is_known_by_section(const FileKey& key) {
    return key.rows.empty() && std::all_of(key.reads.begin(), key.reads.end(), [](const ReadRow* row) {
             return row->key.ends_with(".*") && (!row->when.empty() || !row->unless.empty());
           });
  }

  // The least cost, by variable and value.
  using Least = std::map<size_t, std::map<std::string, int>>;
  static void lower(Least& least, size_t variable, const std::string& value, int cost) {
    const auto [it, is_new] = least[variable].emplace(value, cost);
    if (!is_new) it->second = std::min(it->second, cost);
  }

  struct Best {
    int cost = kMany;
    std::map<size_t, std::string> values;
  };
  static constexpr int kMany = 1 << 30;

  // Of one part, given what is chosen for the hubs.
  Best best_of(const std::vector<size_t>& part, const std::vector<const FileKey*>& keys, Least& least) {
    Best best;
    for_each_combination(part, [&] {
      const int cost = cost_of(keys) + kRefused * explainer_.num_refusals(part);
      for (const size_t v : part) lower(least, v, chosen_[v], cost);
      if (cost >= best.cost) return;
      best.cost = cost;
      for (const size_t v : part) best.values[v] = chosen_[v];
    });
    return best;
  }

  void settle_group(const std::vector<size_t>& group) {
    const std::vector<size_t> hubs = hubs_of(group);
    const std::vector<std::vector<size_t>> parts = groups(group, {hubs.begin(), hubs.end()});
    std::vector<const FileKey*> all, of_hubs;
    std::vector<std::vector<const FileKey*>> of_parts(parts.size());
    for (const FileKey& key : keys_) {
      const auto meets = [&key](const std::vector<size_t>& some) {
        return std::any_of(some.begin(), some.end(), [&key](size_t v) {
          return std::find(key.variables.begin(), key.variables.end(), v) != key.variables.end();
        });
      };
      if (!meets(group)) continue;
      all.push_back(&key);
      const auto part = std::find_if(parts.begin(), parts.end(), meets);
      (part == parts.end() ? of_hubs : of_parts[static_cast<size_t>(part - parts.begin())]).push_back(&key);
    }
    Least least;
    Best best;
    for_each_combination(hubs, [&] {
      Best here;
      here.cost = cost_of(of_hubs) + kRefused * explainer_.num_refusals(hubs);
      for (const size_t v : hubs) here.values[v] = chosen_[v];
      std::vector<std::pair<Least, int>> inner(parts.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const Best part = best_of(parts[i], of_parts[i], inner[i].first);
        if (part.cost == kMany) return;
        inner[i].second = part.cost;
        here.cost += part.cost;
        here.values.insert(part.values.begin(), part.values.end());
      }
      for (const size_t v : hubs) lower(least, v, chosen_[v], here.cost);
      for (const auto& [of_part, cost] : inner) {
        for (const auto& [v, values] : of_part) {
          for (const auto& [value, with] : values) lower(least, v, value, here.cost - cost + with);
        }
      }
      if (here.cost < best.cost) best = std::move(here);
    });
    CHECK(best.cost < kMany, "no plan is possible in {}", explainer_.table().name);
    for (const auto& [v, value] : best.values) chosen_[v] = value;
    for (const size_t v : group) {
      const bool is_constrained =
          std::any_of(least[v].begin(), least[v].end(), [&best](const auto& one) { return one.second > best.cost; });
      if (!is_constrained || chosen_[v] == kAnyOther || chosen_[v] == "null") continue;
      const auto num_best =
          std::count_if(least[v].begin(), least[v].end(), [&best](const auto& one) { return one.second == best.cost; });
      if ((num_best > 1 && is_left_open(v, all)) || is_said_auto(v, all)) continue;
      if (const FoundKey* evidence = evidence_for(v, all)) settled_.push_back({v, evidence, num_best > 1});
    }
  }

  // One of the keys that ask about the variable says "auto", or is given in a branch: what is left of its values is nobody's choice.
  bool is_left_open(size_t v, const std::vector<const FileKey*>& keys) const {
    return std::any_of(keys.begin(), keys.end(), [&](const FileKey* key) {
      return (key->found->is_maybe || explainer_.leaves_open(*key)) &&
             std::find(key->variables.begin(), key->variables.end(), v) != key->variables.end();
    });
  }

  // The variable's own key says "auto" (offload_optimizer.device): what keys beside it leave out is no answer.
  bool is_said_auto(size_t v, const std::vector<const FileKey*>& keys) const {
    return std::any_of(keys.begin(), keys.end(), [&](const FileKey* key) {
      const bool is_auto = key->found->unknown.empty() && same_name(key->found->text, "auto");
      return is_auto && explainer_.explain(*key).how == KeyReading::How::kDropped &&
             std::any_of(key->rows.begin(), key->rows.end(), [&](const KeyRow* row) { return row->field == variables_[v].field; });
    });
  }

  // The key that speaks for a value: the first that another value would leave unexplained; a key that is in the file before one that
  // is assumed.
  const FoundKey* evidence_for(size_t v, const std::vector<const FileKey*>& keys) {
    const std::string kept = chosen_[v];
    const FoundKey* out = nullptr;
    for (const bool assumed : {false, true}) {
      for (const FileKey* key : keys) {
        const int kept_cost = cost_of({key});
        if (key->found->is_assumed != assumed || explainer_.explain(*key).how == KeyReading::How::kNone) continue;
        for (const std::string& other : variables_[v].domain) {
          chosen_[v] = other;
          const bool is_lost = cost_of({key}) > kept_cost;
          chosen_[v] = kept;
          if (is_lost) return key->found;
        }
        if (out == nullptr) out = key->found;
      }
    }
    return out;
  }

  Explainer& explainer_;
  const std::vector<ReadVariable>& variables_;
  const std::vector<FileKey>& keys_;
  std::vector<std::string>& chosen_;
  std::vector<SettledField> settled_;
  std::unordered_map<const FileKey*, std::unordered_map<std::string, int>> costs_;
};

}  // namespace

std::vector<SettledField> search_values(Explainer& explainer) { return ValueSearch(explainer).run(); }

}  // namespace distsetup
