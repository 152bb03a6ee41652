// One run at a time in a directory of checkpoints: rank 0 holds the lock for as long as its process lives, however that ends.
#pragma once
#include <string>

#include "base/diagnostic.h"

namespace distsetup {

class RunLock {
 public:
  RunLock() = default;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();
  // Errors (kUnwritableFile): another run has it, named by host and process. One of another host is waited for first, `patience_s`
  // seconds: a file server keeps the locks of a host that went away for a while. A warning: this file system has no locks.
  Diagnostics take(const std::string& directory, double patience_s = 100);

 private:
  int fd_ = -1;
};

}  // namespace distsetup
