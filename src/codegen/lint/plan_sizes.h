// The sizes that a file states under their usual names, whatever its format. Internal to lint.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

struct Sized {
  double n = 0;
  TextSpan span;
};

// tp, pp, cp, ep, dp_replicate, dp_shard, micro, global, accumulation, heads, kv_heads, layers, sequence, experts, hidden
class Sizes {
 public:
  Sizes(const Document& d, std::string format) : d(d), format(std::move(format)) {}
  const Document& d;
  std::string format;  // megatron, torchtitan, plan, accelerate, automodel
  // What would have to be so for a contradiction to be an error, of the sizes themselves and of the number of ranks; empty: it is so.
  std::string doubt, doubt_of_ranks;

  void put(std::string_view name, double n, TextSpan span) { known_[std::string(name)] = {n, span}; }
  const Sized* find(std::string_view name) const {
    const auto at = known_.find(name);
    return at == known_.end() ? nullptr : &at->second;
  }
  double get(std::string_view name, double absent = 1) const {
    const Sized* found = find(name);
    return found == nullptr ? absent : found->n;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool empty() const { return known_.empty(); }
  const std::map<std::string, Sized, std::less<>>& all() const { return known_; }

 private:
  std::map<std::string, Sized, std::less<>> known_;
};

// Of every part of the file that states some: a script may start more than one trainer.
std::vector<Sizes> sizes_of(const Document& d);

}  // namespace distsetup::lint
