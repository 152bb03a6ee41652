// The command line of distsetup-train: what is its own, what goes to the planner, what is refused.
#include "runtime/train_flags.h"

#include <catch2/catch.hpp>

using namespace distsetup;

namespace {

std::string mistake(const std::vector<std::string>& words) { return read_train_flags(words).mistake; }

}  // namespace

TEST_CASE("distsetup-train: its own flags are read in either spelling", "[flags]") {
  const TrainCommand command = read_train_flags({"--plan", "p.json", "--output=out", "--stop_after", "3", "--logging-steps=7",
                                                 "--dry-run", "--poison", "--trace", "t", "--threads", "2", "--profile", "10:12"});
  CHECK(command.mistake == "");
  CHECK(command.what == TrainCommand::What::kTrain);
  const TrainOptions& options = command.options;
  CHECK(options.plan_path == "p.json");
  CHECK(options.output_dir == "out");
  CHECK(options.stop_after == 3);
  CHECK(options.log_every == 7);
  CHECK((options.dry_run && options.poison));
  CHECK(options.trace_path == "t");
  CHECK(options.num_threads == 2);
  CHECK((options.first_profiled_step == 10 && options.last_profiled_step == 12));
  for (const char* wrong : {"10", "0:3", "4:3", "a:b", "1:"}) CHECK(mistake({"--plan", "p", "--profile", wrong}) != "");
}

TEST_CASE("distsetup-train: flags of a run go to the planner as they stand", "[flags]") {
  const TrainCommand command = read_train_flags({"--from-scratch", "--batch_size=4", "--threads", "1", "--data", "corpus"});
  CHECK(command.mistake == "");
  CHECK(command.options.flags == std::vector<std::string>{"--from-scratch", "--batch_size=4", "--data", "corpus"});
  CHECK(command.options.num_threads == 1);
}

TEST_CASE("distsetup-train: help, version and probe", "[flags]") {
  CHECK(read_train_flags({"--help"}).what == TrainCommand::What::kHelp);
  CHECK(read_train_flags({"--plan", "p", "-h", "--nonsense"}).what == TrainCommand::What::kHelp);
  CHECK(read_train_flags({"--version"}).what == TrainCommand::What::kVersion);
  CHECK(read_train_flags({"--probe"}).probe_s == 3);
  CHECK(read_train_flags({"--probe", "9"}).probe_s == 9);
  CHECK(read_train_flags({"--probe=4"}).what == TrainCommand::What::kProbe);
  CHECK(mistake({"--probe", "soon"}) == "--probe 'soon', expected a number of seconds");
}

TEST_CASE("distsetup-train: a wrong line says what is wrong", "[flags]") {
  CHECK(mistake({}) == "neither --plan nor flags of a run");
  CHECK(mistake({"--plan"}) == "--plan needs a value");
  CHECK(mistake({"--plan="}) == "--plan needs a value");
  CHECK(mistake({"--plan", "p", "--stop-after", "0"}) == "--stop-after '0', expected a number of steps, at least 1");
  CHECK(mistake({"--plan", "p", "--threads", "2x"}) == "--threads '2x', expected at least 1");
  CHECK(mistake({"--plan", "p", "--dry-run=yes"}) == "--dry-run takes no value, found 'yes'");
  CHECK(mistake({"--plan", "p", "--stop-aftr", "3"}) == "unknown argument '--stop-aftr' beside --plan: a plan is complete");
}
