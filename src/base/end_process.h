// How a program that loads libtorch ends: without what libtorch does at exit, which takes itself out of its tables again operator by
// operator (a quarter of the instructions of `distsetup-train --version`). What was printed is written; whatever else has to end in
// order (files, devices, threads) has to have ended before. In a build with sanitizers everything ends as usual, since they look for
// leaks then.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <iostream>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DISTSETUP_ENDS_AS_USUAL
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DISTSETUP_ENDS_AS_USUAL
#endif
#endif

namespace distsetup {

// The last thing that main() does: `return end_process(code);`.
inline int end_process(int code) {
#ifndef DISTSETUP_ENDS_AS_USUAL
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
#endif
  return code;
}

}  // namespace distsetup
