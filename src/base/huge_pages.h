// Large blocks of memory of the host: the first touch of a page of 4 KiB costs some microseconds on a virtual machine, of which
// gigabytes have many.
#pragma once
#include <cstdint>

namespace distsetup {

// Asks the kernel for pages of 2 MiB, where it gives them only on request (madvise(2), MADV_HUGEPAGE). Changes no byte; what the
// kernel does not have it leaves out.
void ask_for_huge_pages(void* data, int64_t num_bytes);

}  // namespace distsetup
