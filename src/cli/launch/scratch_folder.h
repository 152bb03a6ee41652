// A folder below the system's one for temporary files, away from the user's, that goes when its owner does.
#pragma once
#include <string>

namespace distsetup {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& purpose);  // part of its name
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }  // "": it could not be made
  void remove();                                     // now: a process that is killed later leaves nothing behind

 private:
  std::string path_;
};

}  // namespace distsetup
