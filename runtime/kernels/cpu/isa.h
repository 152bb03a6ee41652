// A function with DISTSETUP_KERNEL before it is compiled for AVX-512, AVX2 and the baseline of x86-64, and the loader takes the best
// that the CPU has: one program for all machines of a cluster. Helpers of kernels are DISTSETUP_KERNEL_INLINE, so that they become
// part of each copy. With another compiler than g++, on another architecture, or with DISTSETUP_NATIVE_ARCH there is one copy, for
// what the compiler was told.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DISTSETUP_ONE_INSTRUCTION_SET)
#define DISTSETUP_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define DISTSETUP_KERNEL_INLINE __attribute__((always_inline)) inline
#else
#define DISTSETUP_KERNEL
#define DISTSETUP_KERNEL_INLINE inline
#endif
