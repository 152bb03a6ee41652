// Each rule of the model of PyTorch's caching allocator, one by one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "planner/replay/allocator.h"

using namespace distsetup::replay;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Allocator make(int64_t capacity = std::numeric_limits<int64_t>::max(), bool expandable = false) {
  return Allocator(AllocatorRules{capacity, expandable});
}

}  // namespace

TEST_CASE("replay allocator: sizes round up to 512 bytes") {
  Allocator a = make();
  a.allocate(1, AllocatorStream::kCompute);
  CHECK(a.allocated_bytes() == 512);
  a.allocate(513, AllocatorStream::kCompute);
  CHECK(a.allocated_bytes() == 512 + 1024);
  CHECK(a.allocate(0, AllocatorStream::kCompute) == nullptr);
}

TEST_CASE("replay allocator: segments are 2 MiB, 20 MiB, or the request rounded to 2 MiB") {
  Allocator a = make();
  a.allocate(1 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 2 * kMiB);
  a.allocate(1 * kMiB + 1, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 22 * kMiB);
  a.allocate(9 * kMiB, AllocatorStream::kCompute);  // what is left of the 20 MiB
  CHECK(a.reserved_bytes() == 22 * kMiB);
  a.allocate(11 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 34 * kMiB);
}

TEST_CASE("replay allocator: a large block is split only when more than 1 MiB is left") {
  Allocator a = make();
  Block* block = a.allocate(30 * kMiB, AllocatorStream::kCompute);
  a.free(block);
  Block* whole = a.allocate(29 * kMiB, AllocatorStream::kCompute);
  CHECK(whole->size == 30 * kMiB);  // the MiB stays with it and counts as allocated
  CHECK(a.allocated_bytes() == 30 * kMiB);
  a.free(whole);
  CHECK(a.allocate(29 * kMiB - 512, AllocatorStream::kCompute)->size == 29 * kMiB - 512);
  CHECK(a.reserved_bytes() == 30 * kMiB);
}

TEST_CASE("replay allocator: best fit takes the smallest block that holds the request and the lowest address of equals") {
  Allocator a = make();
  Block* big = a.allocate(64 * kMiB, AllocatorStream::kCompute);
  Block* first = a.allocate(32 * kMiB, AllocatorStream::kCompute);
  Block* second = a.allocate(32 * kMiB, AllocatorStream::kCompute);
  const int64_t lowest = first->address;
  a.free(second);
  a.free(big);
  a.free(first);
  Block* taken = a.allocate(31 * kMiB + 512, AllocatorStream::kCompute);
  CHECK(taken->address == lowest);
  CHECK(a.reserved_bytes() == 128 * kMiB);
}

TEST_CASE("replay allocator: of equal blocks the lowest comes first, in whatever order they were given back") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Allocator a = make();
    std::vector<Block*> blocks;
    std::vector<std::pair<int64_t, int64_t>> expected;  // size and address
    for (int i = 0; i < 60; ++i) {
      blocks.push_back(a.allocate((30 + 2 * static_cast<int64_t>(random() % 3)) * kMiB, AllocatorStream::kCompute));
      expected.emplace_back(blocks.back()->size, blocks.back()->address);
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (Block* block : blocks) a.free(block);
    std::sort(expected.begin(), expected.end());
    for (const auto& [size, address] : expected) {
      const Block* block = a.allocate(30 * kMiB - 512 * static_cast<int64_t>(random() % 9), AllocatorStream::kCompute);
      REQUIRE(block->address == address);
      REQUIRE(a.reserved_bytes() == a.peak_reserved_bytes());
    }
  }
}

TEST_CASE("replay allocator: free neighbours merge") {
  Allocator a = make();
  Block* whole = a.allocate(60 * kMiB, AllocatorStream::kCompute);
  a.free(whole);
  Block* left = a.allocate(20 * kMiB, AllocatorStream::kCompute);
  Block* middle = a.allocate(20 * kMiB, AllocatorStream::kCompute);
  Block* right = a.allocate(20 * kMiB, AllocatorStream::kCompute);
  a.free(left);
  a.free(right);
  a.free(middle);
  a.allocate(60 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 60 * kMiB);
}

TEST_CASE("replay allocator: streams do not share blocks") {
  Allocator a = make();
  a.free(a.allocate(40 * kMiB, AllocatorStream::kGather));
  a.allocate(40 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 80 * kMiB);
  CHECK(a.stream_reserved_bytes(AllocatorStream::kGather) == 40 * kMiB);
}

TEST_CASE("replay allocator: at capacity whole free segments go back and the request is tried once more") {
  Allocator a = make(100 * kMiB);
  Block* kept = a.allocate(30 * kMiB, AllocatorStream::kCompute);
  a.free(a.allocate(60 * kMiB, AllocatorStream::kGather));
  CHECK(a.allocate(50 * kMiB, AllocatorStream::kCompute) != nullptr);
  CHECK(a.num_releases() == 1);
  CHECK(a.reserved_bytes() == 80 * kMiB);
  CHECK(a.peak_reserved_bytes() == 90 * kMiB);
  CHECK(a.allocate(30 * kMiB, AllocatorStream::kCompute) == nullptr);
  a.free(kept);
  CHECK(a.allocate(30 * kMiB, AllocatorStream::kCompute) != nullptr);
}

TEST_CASE("replay allocator: a segment that is partly used does not go back") {
  Allocator a = make(100 * kMiB);
  Block* whole = a.allocate(60 * kMiB, AllocatorStream::kCompute);
  a.free(whole);
  a.allocate(10 * kMiB, AllocatorStream::kCompute);  // splits it
  CHECK(a.allocate(60 * kMiB, AllocatorStream::kGather) == nullptr);
  CHECK(a.reserved_bytes() == 60 * kMiB);
}

TEST_CASE("replay allocator: expandable segments grow instead of opening new ones") {
  Allocator a = make(std::numeric_limits<int64_t>::max(), true);
  Block* first = a.allocate(30 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 40 * kMiB);  // pages of 20 MiB
  a.free(first);
  a.allocate(50 * kMiB, AllocatorStream::kCompute);  // the free 40 MiB and one page more
  CHECK(a.reserved_bytes() == 60 * kMiB);
  a.allocate(10 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 60 * kMiB);
}

TEST_CASE("replay allocator: expandable segments give free pages back at capacity and map them again") {
  Allocator a = make(100 * kMiB, true);
  Block* low = a.allocate(40 * kMiB, AllocatorStream::kCompute);
  Block* high = a.allocate(20 * kMiB, AllocatorStream::kCompute);
  a.free(low);
  CHECK(a.allocate(80 * kMiB, AllocatorStream::kGather) != nullptr);
  CHECK(a.reserved_bytes() == 100 * kMiB);
  CHECK(a.allocate(20 * kMiB, AllocatorStream::kCompute) == nullptr);
  a.free(high);
  Block* again = a.allocate(20 * kMiB, AllocatorStream::kCompute);
  REQUIRE(again != nullptr);
  CHECK(a.reserved_bytes() == 100 * kMiB);
}

TEST_CASE("replay allocator: a retired block stops counting and comes back later") {
  Allocator a = make();
  Block* block = a.allocate(40 * kMiB, AllocatorStream::kCompute);
  a.retire(block);
  CHECK(a.allocated_bytes() == 0);
  a.allocate(40 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 80 * kMiB);
  a.free_retired(block);
  a.allocate(40 * kMiB, AllocatorStream::kCompute);
  CHECK(a.reserved_bytes() == 80 * kMiB);
}

// Whatever happens: allocated never above reserved, blocks never overlap, and when all is free one request takes all of a segment.
TEST_CASE("replay allocator: random requests never overlap") {
  for (const bool expandable : {false, true}) {
    std::mt19937_64 random(expandable ? 7 : 3);
    Allocator a = make(4096 * kMiB, expandable);
    std::vector<Block*> live;
    for (int i = 0; i < 4000; ++i) {
      if (live.empty() || random() % 5 < 3) {
        const int64_t bytes = static_cast<int64_t>(random() % (uint64_t{1} << (9 + random() % 19))) + 1;
        if (Block* block = a.allocate(bytes, static_cast<AllocatorStream>(random() % 3))) {
          CHECK(block->size >= bytes);
          for (const Block* other : live) {
            const bool apart = block->address + block->size <= other->address || other->address + other->size <= block->address;
            if (!apart) FAIL("blocks overlap");
          }
          live.push_back(block);
        }
      } else {
        const size_t at = random() % live.size();
        a.free(live[at]);
        live[at] = live.back();
        live.pop_back();
      }
      REQUIRE(a.allocated_bytes() <= a.reserved_bytes());
      REQUIRE(a.reserved_bytes() <= 4096 * kMiB);
    }
    for (Block* block : live) a.free(block);
    CHECK(a.allocated_bytes() == 0);
  }
}
