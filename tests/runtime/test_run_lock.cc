// One run at a time in a directory of checkpoints.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "runtime/run_lock.h"
#include "support/temporary_directory.h"

using namespace distsetup;

TEST_CASE("a second run in a directory is refused until the first has ended") {
  const TemporaryDirectory folder;
  std::optional<RunLock> first(std::in_place);
  REQUIRE(first->take(folder.path()).empty());
  RunLock second;
  const Diagnostics refused = second.take(folder.path());
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].severity == Severity::kError);
  CHECK(refused[0].message.find("another run writes its checkpoints into '" + folder.path() + "': process ") == 0);
  first.reset();
  RunLock third;
  CHECK(third.take(folder.path()).empty());
}

TEST_CASE("a run of another host is waited for before it is refused") {
  const TemporaryDirectory folder;
  RunLock first;
  REQUIRE(first.take(folder.path()).empty());
  std::ofstream(folder.path() + "/.lock") << "process 7 of elsewhere\n";
  RunLock second;
  const Diagnostics refused = second.take(folder.path(), 0.1);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].message.ends_with(": process 7 of elsewhere"));
  RunLock nowhere;
  CHECK(nowhere.take(folder.path() + "/none")[0].severity == Severity::kError);
}
