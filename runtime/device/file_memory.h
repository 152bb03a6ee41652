// Memory of the host that lies in a file of a local disk: the kernel reads pages when they are touched and writes them back, so that
// more of it can be in use than the host has memory. The file has no name: it is gone when the process is, however that ends.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/device/device.h"

namespace distsetup {

class OffloadFolderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class FileMemory : public DeviceMemory {
 public:
  // Zeros. Throws OffloadFolderError: the folder is not there or cannot be written, its file system is memory, or has too little room.
  FileMemory(const std::string& folder, int64_t num_bytes);
  ~FileMemory() override;
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Hints, which change no value: a stretch that is needed next is read ahead; one that is not needed for a while is written back now
  // instead of when memory runs out.
  void will_need(int64_t offset, int64_t num_bytes) const;
  void is_done(int64_t offset, int64_t num_bytes) const;

 private:
  int file_ = -1;
};

// Where it lies unless told otherwise: $TMPDIR, else /tmp.
std::string usual_offload_folder();

}  // namespace distsetup
