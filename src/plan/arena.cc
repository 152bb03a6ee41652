// Packing lifetimes into one arena: the lowest hole among buffers whose lifetimes overlap, in several orders; the best arena is kept.
// No single order wins (best of these was 1.000-1.023 × the live peak over many step shapes), and packing is NP-hard in general
// (dynamic storage allocation, Garey & Johnson SR2), so the result is a bound known to the byte, not an optimum.
#include "plan/arena.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/check.h"

namespace distsetup {
namespace {

struct ArenaItem {
  int buffer = 0;
  int first = 0, last = 0;
  int64_t bytes = 0, offset = 0;
  int group = 0;  // of a pipeline: the action it lives in, -1 when it crosses; items of different actions never overlap in time
};

class Packer {
 public:
  explicit Packer(std::vector<ArenaItem> items) : items_(std::move(items)) {
    std::map<int, int64_t> change;
    for (const ArenaItem& i : items_) change[i.first] += i.bytes, change[i.last + 1] -= i.bytes;
    int64_t now = 0;
    for (const auto& [step, delta] : change) {
      now += delta;
      if (now > live_peak_) live_peak_ = now, peak_step_ = step;
      num_steps_ = std::max(num_steps_, step);
    }
  }

  int64_t run() {
    const auto at_peak = [this](const ArenaItem& i) { return i.first <= peak_step_ && peak_step_ <= i.last ? int64_t{1} << 50 : 0; };
    const auto span = [](const ArenaItem& i) { return int64_t{i.last} - i.first + 1; };
    // Keys: larger first. Buffers live at the peak first stack to exactly the lower bound there.
    const std::vector<std::function<int64_t(const ArenaItem&)>> keys = {[&](const ArenaItem& i) { return at_peak(i) + span(i); },
                                                                        [&](const ArenaItem& i) { return at_peak(i) + i.bytes; },
                                                                        [&](const ArenaItem& i) { return i.bytes; },
                                                                        [&](const ArenaItem& i) { return -int64_t{i.first}; },
                                                                        [&](const ArenaItem& i) { return span(i); },
                                                                        [&](const ArenaItem& i) { return i.bytes / 64 * span(i); }};
    int64_t best = -1;
    std::vector<int64_t> offsets(items_.size());
    // Small lists: whatever sticks out of the arena is moved to the front and placed again.
    const int rounds = items_.size() <= 1000 ? 20 : items_.size() <= 4000 ? 2 : 1;
    for (const auto& key : keys) {
      std::vector<int> order(items_.size());
      std::vector<int64_t> keys_of_items;
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      for (const ArenaItem& item : items_) keys_of_items.push_back(key(item));
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys_of_items[a] > keys_of_items[b]; });
      for (int round = 0; round < rounds && best != live_peak_; ++round) {
        const bool last = round + 1 == rounds;  // nothing is learnt from where it ends when it is not the best
        const int64_t arena = place(order, last && best >= 0 ? best : INT64_MAX);
        if (best < 0 || arena < best) {
          best = arena;
          for (size_t i = 0; i < items_.size(); ++i) offsets[i] = items_[i].offset;
        }
        const auto top = std::find_if(order.begin(), order.end(), [&](int i) { return items_[i].offset + items_[i].bytes == arena; });
        if (top != order.end()) std::rotate(order.begin(), top, top + 1);
      }
    }
    for (size_t i = 0; i < items_.size(); ++i) items_[i].offset = offsets[i];
    return std::max<int64_t>(best, 0);
  }

  const std::vector<ArenaItem>& items() const { return items_; }

 private:
  struct Placed {
    int64_t offset, end;
    int first, last;
  };
  using PlacedList = std::vector<Placed>;  // by offset

  static bool by_offset(const Placed& a, const Placed& b) { return a.offset < b.offset; }

  // Time in stretches of equal length, each with what lives in it: most buffers live shortly, and meet few others there.
  struct Placements {
    int stretch_steps = 1;
    std::vector<PlacedList> stretches;
    PlacedList lasting;  // what lives in more than kMostStretches of them
    PlacedList all;      // those before num_sorted by offset
    size_t num_sorted = 0;

    // All of them by offset: few ask.
    const PlacedList& sorted() {
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(num_sorted);
      std::sort(middle, all.end(), by_offset);
      std::inplace_merge(all.begin(), middle, all.end(), by_offset);
      num_sorted = all.size();
      return all;
    }
  };
  static constexpr int kMostStretches = 4, kItemsPerStretch = 16;

  static void insert(PlacedList& list, const Placed& item) {
    list.insert(std::upper_bound(list.begin(), list.end(), item, by_offset), item);
  }

  // The lowest hole beside what lives at the same time, in two lists by offset, which may share members.
  static int64_t lowest_hole(const ArenaItem& item, const PlacedList& one, const PlacedList& other) {
    int64_t at = 0;
    size_t i = 0, j = 0;
    while (i < one.size() || j < other.size()) {
      const bool from_one = j == other.size() || (i < one.size() && one[i].offset <= other[j].offset);
      const Placed& next = from_one ? one[i++] : other[j++];
      if (next.first > item.last || item.first > next.last) continue;
      if (next.offset - at >= item.bytes) break;
      at = std::max(at, next.end);
    }
    return at;
  }

  // Gives up where the arena is no smaller than `enough`.
  int64_t place(const std::vector<int>& order, int64_t enough) {
    int64_t top = 0;
    Placements placed;
    placed.stretch_steps = 1 + num_steps_ * kItemsPerStretch / static_cast<int>(items_.size() + 1);
    placed.stretches.resize(static_cast<size_t>(num_steps_ / placed.stretch_steps) + 1);
    PlacedList beside;  // what lives at the same time as one of several stretches
    for (const int index : order) {
      ArenaItem& item = items_[index];
      const auto begin = static_cast<size_t>(item.first / placed.stretch_steps),
                 end = static_cast<size_t>(item.last / placed.stretch_steps);
      const bool lasts = end - begin >= kMostStretches;
      if (lasts) {
        item.offset = lowest_hole(item, placed.sorted(), {});
      } else if (begin == end) {
        item.offset = lowest_hole(item, placed.lasting, placed.stretches[begin]);
      } else {
        beside.clear();
        for (size_t n = begin; n <= end; ++n)
          for (const Placed& other : placed.stretches[n])
            if (other.first <= item.last && item.first <= other.last) beside.push_back(other);
        std::sort(beside.begin(), beside.end(), by_offset);
        item.offset = lowest_hole(item, placed.lasting, beside);
      }
      const Placed now{item.offset, item.offset + item.bytes, item.first, item.last};
      top = std::max(top, now.end);
      if (top >= enough) return top;
      placed.all.push_back(now);
      if (lasts) insert(placed.lasting, now);
      for (size_t n = begin; !lasts && n <= end; ++n) insert(placed.stretches[n], now);
    }
    return top;
  }

  std::vector<ArenaItem> items_;
  int64_t live_peak_ = 0;
  int peak_step_ = -1, num_steps_ = 0;
};

// Which action of a pipeline each buffer lives in alone; -1: it outlives its action.
std::vector<int> action_groups(const std::vector<Buffer>& buffers, const std::vector<int>& action_steps) {
  const auto action_of = [&](int step) {
    return static_cast<int>(std::upper_bound(action_steps.begin(), action_steps.end(), step) - action_steps.begin());
  };
  std::vector<int> groups;
  for (const Buffer& b : buffers) {
    const int action = action_of(b.first_step);
    groups.push_back(action == action_of(b.last_step) ? action : -1);
  }
  return groups;
}

// Most actions of a pipeline are alike: one of each kind is packed, the others lie where it lies. Two are alike when the same bytes
// are born and die at the same of their steps, beside the same buffers that outlive them.
class AlikeActions {
 public:
  explicit AlikeActions(const std::vector<ArenaItem>& items) {
    std::map<int, std::vector<ArenaItem>> by_group;
    for (const ArenaItem& item : items) (item.group < 0 ? packed_ : by_group[item.group]).push_back(item);
    const std::vector<ArenaItem> crossing = packed_;
    std::map<std::vector<int64_t>, int> known;  // signature → first group
    for (auto& [group, members] : by_group) {
      const auto [first, fresh] = known.try_emplace(signature(members, crossing), group);
      if (fresh) packed_.insert(packed_.end(), members.begin(), members.end());
      same_as_[group] = first->second;
    }
    by_group_ = std::move(by_group);
  }

  const std::vector<ArenaItem>& to_pack() const { return packed_; }

  // All items, with the offsets of those that were packed.
  std::vector<ArenaItem> spread(const std::vector<ArenaItem>& packed) const {
    std::vector<ArenaItem> all;
    std::map<int, std::vector<int64_t>> offsets;  // by group
    for (const ArenaItem& item : packed) {
      if (item.group < 0) all.push_back(item);
      offsets[item.group].push_back(item.offset);
    }
    for (const auto& [group, members] : by_group_) {
      const std::vector<int64_t>& from = offsets.at(same_as_.at(group));
      for (size_t i = 0; i < members.size(); ++i) {
        all.push_back(members[i]);
        all.back().offset = from[i];
      }
    }
    return all;
  }

 private:
  static std::vector<int64_t> signature(const std::vector<ArenaItem>& members, const std::vector<ArenaItem>& crossing) {
    int begin = members.front().first, end = members.front().last;
    for (const ArenaItem& item : members) begin = std::min(begin, item.first), end = std::max(end, item.last);
    std::vector<int64_t> out;
    for (const ArenaItem& item : members) out.insert(out.end(), {item.first - begin, item.last - begin, item.bytes});
    for (const ArenaItem& item : crossing) {
      if (item.first > end || item.last < begin) continue;
      out.insert(out.end(), {-1, item.buffer, std::max(item.first, begin) - begin, std::min(item.last, end) - begin});
    }
    return out;
  }

  std::vector<ArenaItem> packed_;
  std::map<int, std::vector<ArenaItem>> by_group_;
  std::map<int, int> same_as_;
};

}  // namespace

int64_t pack_arena(std::vector<Buffer>& buffers, const std::vector<int>& action_steps, ArenaPlace where) {
  const bool is_pipeline = !action_steps.empty();
  const std::vector<int> groups = is_pipeline ? action_groups(buffers, action_steps) : std::vector<int>(buffers.size(), -1);
  int64_t step_bytes = 0;  // of buffers that live as long as the step: at the bottom, one after the other
  std::vector<ArenaItem> items;
  for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
    Buffer& b = buffers[i];
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || is_on_device(b) != (where == ArenaPlace::kDevice)) continue;
    if (b.lifetime == BufferLifetime::kStep) {
      b.offset_bytes = step_bytes;
      step_bytes += aligned(b.bytes);
      continue;
    }
    items.push_back({i, b.first_step, b.last_step, aligned(b.bytes), 0, groups[i]});
  }
  const AlikeActions actions(is_pipeline ? items : std::vector<ArenaItem>{});
  Packer packer(is_pipeline ? actions.to_pack() : std::move(items));
  const int64_t arena = step_bytes + packer.run();
  for (const ArenaItem& item : is_pipeline ? actions.spread(packer.items()) : packer.items())
    buffers[item.buffer].offset_bytes = step_bytes + item.offset;
  for (int b = 0; b < static_cast<int>(buffers.size()); ++b) buffers[b].offset_bytes = buffers[root_buffer(buffers, b)].offset_bytes;
  return arena;
}

}  // namespace distsetup
