// What a script's variables are behind patterns, functions, loops and exits, as bash 5.2 makes them (each line was run by it).
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

// The micro-batch of a training that is given $V behind `lines`; "": not known.
std::string value_behind(const std::string& lines) {
  return told_of(
             "a.sh",
             lines + "\ntorchrun --nproc_per_node 8 t.py --model_name_or_path a/b --output_dir x --per_device_train_batch_size $V\n")
      .text("micro_batch");
}

}  // namespace

TEST_CASE("flow of a script: quoted parts of a pattern mean themselves", "[shell]") {
  const auto chosen = [](const std::string& test) { return value_behind("M=a-lora-b\nif " + test + "; then V=2; else V=1; fi"); };
  CHECK(chosen("[[ $M == *\"lora\"* ]]") == "2");
  CHECK(chosen("[[ \"$M\" == \"a-\"* ]]") == "2");
  CHECK(chosen("[[ $M != *\",\"* ]]") == "2");
  CHECK(chosen("[[ $M == *\"qlora\"* ]]") == "1");
  CHECK(chosen("[[ $M == \"*lora*\" ]]") == "1");
  CHECK(chosen("[[ $M == a-lora* ]]") == "2");
}

TEST_CASE("flow of a script: what a function calls local stays in it", "[shell]") {
  CHECK(value_behind("f() { local V=5; }\nV=1\nf") == "1");
  CHECK(value_behind("f() { declare V=5; }\nV=1\nf") == "1");
  CHECK(value_behind("f() { V=5; }\nV=1\nf") == "5");
  CHECK(value_behind("f() { local W=5; V=$W; }\nV=1\nf") == "5");
}

TEST_CASE("flow of a script: a function returns", "[shell]") {
  const std::string function = "f() { if [ -z \"$1\" ]; then V=3; return; fi; V=2; }\n";
  CHECK(value_behind(function + "f") == "3");
  CHECK(value_behind(function + "f x") == "2");
  CHECK(value_behind("f() { V=2; return 0; V=4; }\nf") == "2");
}

TEST_CASE("flow of a script: a function in the background or in a pipe changes nothing", "[shell]") {
  CHECK(value_behind("f() { V=2; }\nV=1\nf &\nwait") == "1");
  CHECK(value_behind("f() { V=2; }\nV=1\nf | cat") == "1");
}

TEST_CASE("flow of a script: what a loop over a list sets is not what stood before it", "[shell]") {
  CHECK(value_behind("V=1\nfor h in a b c; do V=$h; done") != "1");
  CHECK(value_behind("V=0\nfor i in 1 2 3; do V=$((V + i)); done") != "0");
  CHECK(value_behind("V=0\nfor i in 1 2 3; do V=$((V + 1)); W=$V; done\nV=$W").empty());
  CHECK(value_behind("V=1\nfor h in a b; do for g in 4; do W=$g; done; V=$h; done") != "1");
  CHECK(value_behind("V=1\nfor h in 4; do V=$h; done") == "4");
  CHECK(value_behind("V=1\nwhile [ $# -gt 0 ]; do V=$1; shift; done") == "1");  // it is started without any
}

TEST_CASE("flow of a script: behind exit nothing is started", "[shell]") {
  const std::string second =
      "torchrun --nproc_per_node 8 t.py --model_name_or_path a/b --output_dir y --per_device_train_batch_size 9\n";
  const std::string first =
      "torchrun --nproc_per_node 8 t.py --model_name_or_path a/b --output_dir x --per_device_train_batch_size 2\n";
  CHECK(told_of("a.sh", first + "exit 0\n" + second).text("micro_batch") == "2");
  CHECK(told_of("a.sh", "exec " + first + second).text("micro_batch") == "2");
  CHECK(told_of("a.sh", "cd /w || exit 1\n" + second).text("micro_batch") == "9");
  CHECK(told_of("a.sh", "M=\nif [ -z \"$M\" ]; then exit 1; fi\n" + second).text("micro_batch") == "9");
}

TEST_CASE("flow of a script: what only a loop over arguments sets is the default behind it", "[shell]") {
  const std::string behind = "V=${V:-7}";
  CHECK(value_behind("while [ $# -gt 0 ]; do case $1 in --v) V=$2; shift 2;; esac; done\n" + behind) == "7");
  CHECK(value_behind("while (( \"$#\" )); do case \"$1\" in --v) V=\"$2\"; shift 2;; esac; done\n" + behind) == "7");
  CHECK(value_behind("for a in \"$@\"; do case $a in --v=*) V=${a#*=};; esac; done\n" + behind) == "7");
  CHECK(value_behind("while getopts v: o; do case $o in v) V=$OPTARG;; esac; done\n" + behind) == "7");
  // A loop over something else sets it to what nobody knows.
  CHECK(value_behind("for h in $(cat hosts); do V=$(count $h); done\n" + behind).empty());
}
