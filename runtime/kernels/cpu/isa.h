// KERNEL before a function: it is compiled for AVX-512, AVX2 and the baseline of x86-64, and the loader takes the best that the CPU it
// runs on has: one program for all machines of a cluster. Helpers of kernels are KERNEL_INLINE, so that they become part of each copy.
// Another compiler than g++, another architecture, or DISTSETUP_NATIVE_ARCH: one copy, for what the compiler was told.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DISTSETUP_ONE_INSTRUCTION_SET)
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define KERNEL_INLINE __attribute__((always_inline)) inline
#else
#define KERNEL
#define KERNEL_INLINE inline
#endif
