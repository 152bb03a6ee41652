#include "base/huge_pages.h"

#include <sys/mman.h>

namespace distsetup {

void ask_for_huge_pages(void* data, int64_t num_bytes) {
  constexpr uintptr_t kPage = 2 << 20;
  const auto begin = reinterpret_cast<uintptr_t>(data), first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + static_cast<uintptr_t>(num_bytes)) / kPage * kPage;
  if (first < last) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace distsetup
