// A model of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, native backend, 2.x): what a sequence of allocations and
// frees makes the process reserve from the driver. Rules:
//   - sizes round up to 512 B; requests up to 1 MiB are small (2 MiB segments), below 10 MiB share 20 MiB segments, larger ones get a
//     segment of their own, rounded up to 2 MiB
//   - one pool per stream and size class; best fit by (size, address); the rest of a block is split off when it is at least 512 B
//     (small, or expandable segments), or more than 1 MiB (large); free neighbours of one segment merge
//   - when the driver has no more, every segment that is free as a whole goes back to it, and the request is tried once more
//   - expandable segments: one growing segment per pool, mapped in pages of 2 MiB (small) and 20 MiB (large)
// Left out: garbage collection thresholds, max_split_size, CUDA graphs' private pools, and events of record_stream (callers delay
// their frees instead).
// Everything is intrusive: a free block is a link of its bin's list, ordered by (size, address); no node is allocated per request.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

namespace distsetup::replay {

enum class AllocatorStream : uint8_t { kCompute, kGather, kReduce, kCast, kCount };

struct Pool;
struct Block {
  int64_t size = 0, address = 0;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* bin_previous = nullptr;  // neighbours in the list of the bin, or of unmapped blocks
  Block* bin_next = nullptr;
  Pool* pool = nullptr;
  uint8_t tag = 0;  // the caller's
  bool free = false, mapped = true;
};

// Free blocks of one stream and size class.
struct Pool {
  static constexpr int kBins = 64 * 8;  // three bits below the leading one
  AllocatorStream stream = AllocatorStream::kCompute;
  bool small = false;
  std::array<uint64_t, kBins / 64> used{};
  std::array<Block*, kBins> bins{}, recent{};  // first of each list, and the one that was inserted last
  Block* unmapped = nullptr;                   // expandable segments: by address; the last is endless
  int64_t base = 0;                            // where the expandable segment begins

  void insert(Block* block);
  void remove(Block* block);
  Block* best_fit(int64_t size) const;
};

struct AllocatorRules {
  int64_t capacity_bytes = std::numeric_limits<int64_t>::max();  // what the driver can hand out
  bool expandable_segments = false;
  bool one_pool = false;  // a traced graph's collectives write into tensors of the stream that computes
};

class Allocator {
 public:
  explicit Allocator(const AllocatorRules& rules);
  // nullptr: out of memory also after cached segments were returned. bytes <= 0: an empty tensor, which takes nothing; also nullptr.
  Block* allocate(int64_t bytes, AllocatorStream stream);
  void free(Block* block);  // of nullptr: nothing
  // A free that record_stream delays: the bytes stop counting as allocated now, the block comes back to its pool later.
  void retire(Block* block);
  void free_retired(Block* block);

  int64_t allocated_bytes() const { return allocated_bytes_; }
  int64_t reserved_bytes() const { return reserved_bytes_; }
  int64_t peak_allocated_bytes() const { return peak_allocated_bytes_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_bytes_; }
  int64_t num_releases() const { return num_releases_; }  // times cached segments went back because the driver had no more
  int64_t num_allocations() const { return num_allocations_; }
  int64_t stream_reserved_bytes(AllocatorStream stream) const { return stream_reserved_bytes_[static_cast<std::size_t>(stream)]; }

 private:
  Block* new_block();
  void recycle(Block* block);
  Pool& pool_of(AllocatorStream stream, bool small);
  Block* new_segment(Pool& pool, int64_t size);
  Block* expand(Pool& pool, int64_t size);
  bool map(Pool& pool, Block* block, int64_t size);
  void release_cached();
  void unmap_free_pages(Pool& pool, Block* block);
  bool fits(int64_t bytes) const { return reserved_bytes_ <= rules_.capacity_bytes - bytes; }
  void reserve(const Pool& pool, int64_t bytes);
  Block* merge_free_neighbours(Block* block);

  AllocatorRules rules_;
  std::deque<Block> storage_;
  std::vector<Block*> recycled_;
  std::vector<Pool> pools_;
  std::array<int64_t, static_cast<std::size_t>(AllocatorStream::kCount)> stream_reserved_bytes_{};
  int64_t allocated_bytes_ = 0, reserved_bytes_ = 0, peak_allocated_bytes_ = 0, peak_reserved_bytes_ = 0;
  int64_t num_releases_ = 0, num_allocations_ = 0, next_address_ = 0;
};

inline constexpr int64_t kRound = 512;
inline int64_t rounded_size(int64_t bytes) { return bytes <= 0 ? 0 : (bytes + kRound - 1) / kRound * kRound; }

}  // namespace distsetup::replay
