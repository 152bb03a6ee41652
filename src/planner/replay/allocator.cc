// The rules of allocator.h. Constants are those of CUDACachingAllocator.cpp (kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer,
// kMinLargeAlloc, kRoundLarge).
#include "planner/replay/allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace distsetup::replay {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSmallRequest = kMiB, kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB, kOwnSegment = 10 * kMiB;
constexpr int64_t kSegmentRound = 2 * kMiB;
constexpr int64_t kEndless = int64_t{1} << 50;  // address space of an expandable segment

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Sizes in multiples of 512 B: eight bins per power of two, so that a list holds what differs by less than an eighth.
int bin_of(int64_t size) {
  const uint64_t units = static_cast<uint64_t>(size) / kRound;
  if (units < 8) return static_cast<int>(units);
  const int top = std::bit_width(units) - 1;
  return (top - 2) * 8 + static_cast<int>((units >> (top - 3)) & 7);
}

bool before(const Block& a, const Block& b) { return a.size != b.size ? a.size < b.size : a.address < b.address; }

}  // namespace

void Pool::insert(Block* block) {
  const auto bin = static_cast<size_t>(bin_of(block->size));
  block->free = true;
  // Blocks come in the order of their addresses more often than not: the place is looked for from where the last one went.
  Block* after = recent[bin];
  Block* ahead = after != nullptr ? after->bin_previous : nullptr;
  if (after != nullptr && before(*after, *block)) {
    while (after != nullptr && before(*after, *block)) {
      ahead = after;
      after = after->bin_next;
    }
  } else {
    while (ahead != nullptr && before(*block, *ahead)) {
      after = ahead;
      ahead = ahead->bin_previous;
    }
  }
  block->bin_previous = ahead;
  block->bin_next = after;
  if (after != nullptr) after->bin_previous = block;
  (ahead != nullptr ? ahead->bin_next : bins[bin]) = block;
  recent[bin] = block;
  used[bin / 64] |= uint64_t{1} << (bin % 64);
}

void Pool::remove(Block* block) {
  block->free = false;
  const auto bin = static_cast<size_t>(bin_of(block->size));
  if (block->bin_next != nullptr) block->bin_next->bin_previous = block->bin_previous;
  (block->bin_previous != nullptr ? block->bin_previous->bin_next : bins[bin]) = block->bin_next;
  if (recent[bin] == block) recent[bin] = block->bin_previous != nullptr ? block->bin_previous : block->bin_next;
  if (bins[bin] == nullptr) used[bin / 64] &= ~(uint64_t{1} << (bin % 64));
}

Block* Pool::best_fit(int64_t size) const {
  auto bin = static_cast<size_t>(bin_of(size));
  for (Block* block = bins[bin]; block != nullptr; block = block->bin_next) {
    if (block->size >= size) return block;
  }
  ++bin;
  for (size_t word = bin / 64; word < used.size(); ++word) {
    const uint64_t later = word == bin / 64 ? used[word] & (~uint64_t{0} << (bin % 64)) : used[word];
    if (later != 0) return bins[word * 64 + static_cast<size_t>(std::countr_zero(later))];
  }
  return nullptr;
}

Allocator::Allocator(const AllocatorRules& rules) : rules_(rules), pools_(2 * static_cast<size_t>(AllocatorStream::kCount)) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    pools_[i].stream = static_cast<AllocatorStream>(i / 2);
    pools_[i].small = i % 2 == 1;
  }
}

Block* Allocator::new_block() {
  if (recycled_.empty()) return &storage_.emplace_back();
  Block* block = recycled_.back();
  recycled_.pop_back();
  *block = {};
  return block;
}

void Allocator::recycle(Block* block) { recycled_.push_back(block); }

Pool& Allocator::pool_of(AllocatorStream stream, bool small) {
  if (rules_.one_pool) stream = AllocatorStream::kCompute;
  return pools_[2 * static_cast<size_t>(stream) + (small ? 1 : 0)];
}

void Allocator::reserve(const Pool& pool, int64_t bytes) {
  reserved_bytes_ += bytes;
  peak_reserved_bytes_ = std::max(peak_reserved_bytes_, reserved_bytes_);
  stream_reserved_bytes_[static_cast<size_t>(pool.stream)] += bytes;
}

Block* Allocator::new_segment(Pool& pool, int64_t size) {
  const int64_t bytes = pool.small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : round_up(size, kSegmentRound);
  if (!fits(bytes)) release_cached();
  if (!fits(bytes)) return nullptr;
  reserve(pool, bytes);
  Block* block = new_block();
  block->size = bytes;
  block->address = next_address_;
  block->pool = &pool;
  next_address_ += bytes + kSegmentRound;  // segments never touch
  return block;
}

Block* Allocator::allocate(int64_t bytes, AllocatorStream stream) {
  if (bytes <= 0) return nullptr;
  const int64_t size = rounded_size(bytes);
  Pool& pool = pool_of(stream, size <= kSmallRequest);
  Block* block = pool.best_fit(size);
  if (block != nullptr) {
    pool.remove(block);
  } else {
    block = rules_.expandable_segments ? expand(pool, size) : new_segment(pool, size);
    if (block == nullptr) return nullptr;
  }
  const int64_t rest = block->size - size;
  if (pool.small || rules_.expandable_segments ? rest >= kRound : rest > kSmallRequest) {
    Block* after = new_block();
    after->size = rest;
    after->address = block->address + size;
    after->pool = &pool;
    after->previous = block;
    after->next = block->next;
    if (block->next != nullptr) block->next->previous = after;
    block->next = after;
    block->size = size;
    pool.insert(after);
  }
  allocated_bytes_ += block->size;
  peak_allocated_bytes_ = std::max(peak_allocated_bytes_, allocated_bytes_);
  ++num_allocations_;
  return block;
}

// Takes free mapped neighbours into the block; the result is in no list.
Block* Allocator::merge_free_neighbours(Block* block) {
  Pool& pool = *block->pool;
  if (Block* left = block->previous; left != nullptr && left->free && left->mapped) {
    pool.remove(left);
    left->size += block->size;
    left->next = block->next;
    if (block->next != nullptr) block->next->previous = left;
    recycle(block);
    block = left;
  }
  if (Block* right = block->next; right != nullptr && right->free && right->mapped) {
    pool.remove(right);
    block->size += right->size;
    block->next = right->next;
    if (right->next != nullptr) right->next->previous = block;
    recycle(right);
  }
  return block;
}

void Allocator::free(Block* block) {
  retire(block);
  free_retired(block);
}

void Allocator::retire(Block* block) {
  if (block != nullptr) allocated_bytes_ -= block->size;
}

void Allocator::free_retired(Block* block) {
  if (block == nullptr) return;
  block = merge_free_neighbours(block);
  block->pool->insert(block);
}

// Backs the first `size` bytes (whole pages) of an unmapped block with memory; the rest stays unmapped behind it.
bool Allocator::map(Pool& pool, Block* block, int64_t size) {
  const int64_t page = pool.small ? kSmallSegment : kLargeSegment;
  const int64_t bytes = std::min(round_up(size, page), block->size);
  if (!fits(bytes)) return false;
  reserve(pool, bytes);
  Block* rest = nullptr;
  if (block->size > bytes) {
    rest = new_block();
    rest->size = block->size - bytes;
    rest->address = block->address + bytes;
    rest->pool = &pool;
    rest->free = true;
    rest->mapped = false;
    rest->previous = block;
    rest->next = block->next;
    if (block->next != nullptr) block->next->previous = rest;
    block->next = rest;
    rest->bin_previous = block->bin_previous;
    rest->bin_next = block->bin_next;
  }
  Block* replacement = rest != nullptr ? rest : block->bin_next;
  (block->bin_previous != nullptr ? block->bin_previous->bin_next : pool.unmapped) = replacement;
  if (block->bin_next != nullptr) block->bin_next->bin_previous = rest != nullptr ? rest : block->bin_previous;
  block->size = bytes;
  block->mapped = true;
  block->free = false;
  return true;
}

// The first unmapped range that together with the free blocks around it holds `size`; maps what it lacks.
Block* Allocator::expand(Pool& pool, int64_t size) {
  if (pool.unmapped == nullptr) {
    Block* all = new_block();
    all->size = kEndless;
    all->address = next_address_;
    all->pool = &pool;
    all->free = true;
    all->mapped = false;
    next_address_ += 2 * kEndless;
    pool.unmapped = all;
    pool.base = all->address;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    Block* first = nullptr;
    for (Block* hole = pool.unmapped; hole != nullptr && first == nullptr; hole = hole->bin_next) {
      Block* start = hole->previous != nullptr && hole->previous->free && hole->previous->mapped ? hole->previous : hole;
      int64_t room = 0;
      for (Block* block = start; block != nullptr && block->free && room < size; block = block->next) room += block->size;
      if (room >= size) first = start;
    }
    CHECK(first != nullptr, "an expandable segment has no end");
    bool mapped = true;
    if (first->mapped) {
      pool.remove(first);
    } else {
      mapped = map(pool, first, size);
    }
    while (mapped && first->size < size) {
      Block* next = first->next;
      if (next->mapped) {
        pool.remove(next);
      } else if (!map(pool, next, size - first->size)) {
        mapped = false;
        break;
      }
      first->size += next->size;
      first->next = next->next;
      if (next->next != nullptr) next->next->previous = first;
      recycle(next);
    }
    if (mapped) return merge_free_neighbours(first);
    if (first->mapped && !first->free) {
      first = merge_free_neighbours(first);
      pool.insert(first);
    }
    release_cached();
  }
  return nullptr;
}

// Gives the whole pages inside a free block back to the driver: the block becomes up to three, the middle one without memory.
void Allocator::unmap_free_pages(Pool& pool, Block* block) {
  const int64_t page = pool.small ? kSmallSegment : kLargeSegment;
  const int64_t base = pool.base;
  const int64_t begin = base + round_up(block->address - base, page);
  const int64_t end = base + (block->address + block->size - base) / page * page;
  if (end <= begin) return;
  pool.remove(block);
  const auto cut = [&](Block* whole, int64_t address) {  // the part from `address` on
    Block* after = new_block();
    after->size = whole->address + whole->size - address;
    after->address = address;
    after->pool = &pool;
    after->previous = whole;
    after->next = whole->next;
    if (whole->next != nullptr) whole->next->previous = after;
    whole->next = after;
    whole->size = address - whole->address;
    return after;
  };
  Block* middle = block;
  if (begin > block->address) {
    middle = cut(block, begin);
    pool.insert(block);
  }
  if (end < middle->address + middle->size) pool.insert(cut(middle, end));
  reserve(pool, -middle->size);
  middle->free = true;
  middle->mapped = false;
  if (Block* right = middle->next; right != nullptr && !right->mapped) {  // joins the hole behind it
    middle->size += right->size;
    middle->next = right->next;
    if (right->next != nullptr) right->next->previous = middle;
    middle->bin_previous = right->bin_previous;
    middle->bin_next = right->bin_next;
    (right->bin_previous != nullptr ? right->bin_previous->bin_next : pool.unmapped) = middle;
    if (right->bin_next != nullptr) right->bin_next->bin_previous = middle;
    recycle(right);
  } else {
    Block* last = nullptr;
    Block* at = pool.unmapped;
    while (at != nullptr && at->address < middle->address) {
      last = at;
      at = at->bin_next;
    }
    middle->bin_previous = last;
    middle->bin_next = at;
    (last != nullptr ? last->bin_next : pool.unmapped) = middle;
    if (at != nullptr) at->bin_previous = middle;
  }
  if (Block* left = middle->previous; left != nullptr && !left->mapped) {
    left->size += middle->size;
    left->next = middle->next;
    if (middle->next != nullptr) middle->next->previous = left;
    left->bin_next = middle->bin_next;
    if (middle->bin_next != nullptr) middle->bin_next->bin_previous = left;
    recycle(middle);
  }
}

void Allocator::release_cached() {
  ++num_releases_;
  for (Pool& pool : pools_) {
    // What gives a page or a segment back is at least as large as one: bins from there on that are not empty.
    const int64_t least = pool.small ? kSmallSegment : rules_.expandable_segments ? kLargeSegment : kOwnSegment;
    const auto first = static_cast<size_t>(bin_of(least));
    for (size_t word = first / 64; word < pool.used.size(); ++word) {
      uint64_t bits = word == first / 64 ? pool.used[word] & (~uint64_t{0} << (first % 64)) : pool.used[word];
      for (; bits != 0; bits &= bits - 1) {
        Block* next = nullptr;
        for (Block* block = pool.bins[word * 64 + static_cast<size_t>(std::countr_zero(bits))]; block != nullptr; block = next) {
          next = block->bin_next;
          if (rules_.expandable_segments) {
            unmap_free_pages(pool, block);
          } else if (block->previous == nullptr && block->next == nullptr) {
            pool.remove(block);
            reserve(pool, -block->size);
            recycle(block);
          }
        }
      }
    }
  }
}

}  // namespace distsetup::replay
