// Words of a launch line that come from somewhere else: arguments of functions, texts for another shell, sums, and words that only the
// running script knows. Each beside a near miss.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

const std::string kStart = "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --output_dir o ";
const std::string kBatch = "--per_device_train_batch_size ", kRate = "--learning_rate ";

FileSays said(const std::string& script) {
  INFO(script);
  Result<std::vector<Reading>> readings = read_config(embedded_templates(), script, "run.sh");
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

// "key = text" of what could not be carried over.
std::vector<std::string> lost(const FileSays& says) {
  std::vector<std::string> out;
  for (const Reading& reading : says.readings) {
    for (const LostKey& one : reading.lost) out.push_back(one.key + " = " + one.text);
  }
  return out;
}

bool is_lost(const FileSays& says, const std::string& what) {
  const std::vector<std::string> all = lost(says);
  return std::find(all.begin(), all.end(), what) != all.end();
}

}  // namespace

TEST_CASE("words: a function of the script is followed with what it is given", "[read]") {
  const std::string launch = "launch() {\n" + kStart + kBatch + "\"${1}\" " + kRate + "\"${2:-1e-5}\"\n}\n";
  CHECK(said(launch + "launch 4 3e-5\n").text("train.learning_rate") == "3e-05");
  CHECK(said(launch + "launch 4 3e-5\n").text("micro_batch") == "4");
  CHECK(said(launch + "launch 4\n").text("train.learning_rate") == "1e-05");
  const std::string train = "train() { " + kStart + "\"$@\"; }\n";
  CHECK(said(train + "train " + kBatch + "2 " + kRate + "1e-5\n").text("train.learning_rate") == "1e-05");
  CHECK(said(train + "if [ -n x ]; then train " + kBatch + "2; fi\n").text("micro_batch") == "2");
  // One value that is not known leaves the others as they are.
  const FileSays partly = said(train + "train " + kBatch + "2 " + kRate + "$LR\n");
  CHECK(partly.text("micro_batch") == "2");
  CHECK(is_lost(partly, "learning_rate = $LR"));
  const std::string shifts = "train() { local n=$1; shift; torchrun --nproc_per_node $n train.py \"$@\"; }\n";
  CHECK(said(shifts + "train 4 " + kBatch + "2\n").text("hardware.gpus_per_node") == "4");
  CHECK(said(shifts + "train 4 " + kBatch + "2\n").text("micro_batch") == "2");
  // Through another function, and with what a variable holds.
  CHECK(said(train + "A=\"" + kBatch + "2\"\nall() { train $A \"$@\"; }\nall " + kRate + "1e-5\n").text("micro_batch") == "2");
  // What two calls give alike counts.
  const FileSays both = said(launch + "launch 4 3e-5\nlaunch 4 1e-4\n");
  CHECK(both.text("micro_batch") == "4");
  CHECK(is_lost(both, "learning_rate = ${2:-1e-5}"));
  CHECK(is_lost(said(launch + "launch 4\nlaunch 4 1e-4\n"), "learning_rate = ${2:-1e-5}"));
  // Its arguments are its own, and one that calls itself ends.
  CHECK(said("f() { N=$1; f 3; }\nset -- 5\nf 2\n" + kStart + kBatch + "$1\n").text("micro_batch") == "5");
}

TEST_CASE("words: arguments that a script gives itself", "[read]") {
  CHECK(said("set -- " + kBatch + "2 " + kRate + "1e-5\n" + kStart + "\"$@\"\n").text("train.learning_rate") == "1e-05");
  CHECK(said("set -- " + kBatch + "2\nset -- \"$@\" " + kRate + "1e-5\n" + kStart + "\"$@\"\n").text("micro_batch") == "2");
  CHECK(said("set -- 4 2\nshift\n" + kStart + kBatch + "$1\n").text("micro_batch") == "2");
  CHECK(said("set -e\nset -x -- \n" + kStart + kBatch + "${1:-7}\n").text("micro_batch") == "7");
  // Behind a branch that may not run, and in a loop, nobody knows them.
  CHECK(said("set -- 4 2\nif [ -f x ]; then shift; fi\n" + kStart + kBatch + "$1\n").text("micro_batch").empty());
  CHECK(said("set -- 4 2\nwhile [ -f x ]; do shift; done\n" + kStart + kBatch + "$1\n").text("micro_batch").empty());
  // Which one is the second is not known.
  CHECK(said("set -- $(cat a) \"${A[@]}\" 2\n" + kStart + kBatch + "$3\n").text("micro_batch").empty());
}

TEST_CASE("words: a text for another shell with variables between its quotes", "[read]") {
  const std::string rest = " --per_device_train_batch_size 4'\n";
  for (const char* middle : {"'\"$LR\"'", "'$LR'", "'\"${LR}\"'"}) {
    CAPTURE(middle);
    const FileSays says = said("LR=1e-5\nbash -c '" + kStart + kRate + middle + rest);
    CHECK(says.text("train.learning_rate") == "1e-05");
    CHECK(says.text("micro_batch") == "4");
  }
  // Also of several words, of a part of one, and behind an empty one.
  CHECK(said("A='" + kRate + "1e-5'\nbash -c '" + kStart + "'\"$A\"' " + rest).text("train.learning_rate") == "1e-05");
  CHECK(said("P=1\nsrun bash -lc ' '\"$X\"' torchrun --nproc_per_node '\"$P\"'6 train.py" + rest).text("hardware.gpus_per_node") ==
        "16");
  CHECK(said("srun bash -c \"" + kStart + kBatch + "\\\"4\\\"\"\n").text("micro_batch") == "4");
  CHECK(said("LR=1e-5\nssh h 'cd x && " + kStart + kRate + "'\"$LR\"' " + rest).text("train.learning_rate") == "1e-05");
  // A quote that is meant for the other shell.
  CHECK(said("bash -c '" + kStart + "--run_name '\\''a b'\\'' " + rest).text("micro_batch") == "4");
  CHECK(said("srun -n 1 bash -c 'H=$(python3 - <<'\"'\"'PY'\"'\"'\nprint(1)\nPY\n)\n" + kStart + rest).text("micro_batch") == "4");
  CHECK(is_lost(said("bash -c '" + kStart + kRate + "'\"$LR\"' " + rest), "learning_rate = $LR"));
}

TEST_CASE("words: those that may hold any arguments are said, and nothing is assumed beside them", "[read]") {
  const std::string end = kBatch + "4 ";
  CHECK(said(kStart + end).text("train.weight_decay") == "0");
  for (const char* word : {"$COMMON", "${COMMON[@]}", "\"${COMMON[@]}\"", "$(cat args.txt)", "`cat args.txt`", "${COMMON}"}) {
    CAPTURE(word);
    for (const std::string& line : {kStart + word + " " + end, kStart + end + word}) {
      const FileSays says = said(line + "\n");
      CHECK(says.text("micro_batch") == "4");
      CHECK(says.text("train.weight_decay").empty());
      CHECK(says.text("strategy.trainer").empty());
      const std::string text = word;
      CHECK(is_lost(says, "arguments = " + (text[0] == '"' ? text.substr(1, text.size() - 2) : text)));
    }
  }
  // A script is read as it is started without arguments; what stands in quotes is one word.
  CHECK(said(kStart + end + "\"$@\"\n").text("train.weight_decay") == "0");
  CHECK(is_lost(said(kStart + end + "\"${@:4}\"\n"), "arguments = ${@:4}"));
  for (const char* one : {"\"$FILE\"", "$SLURM_JOB_ID", "$i", "${SIZES[$i]}", "$N.txt"}) {
    CAPTURE(one);
    CHECK(said(kStart + end + one + "\n").text("train.weight_decay") == "0");
  }
  CHECK(said(kStart + end + "--run_name $NAME\n").text("train.weight_decay") == "0");
  CHECK(said("X=\n" + kStart + end + "$X\n").text("train.weight_decay") == "0");
  // Of the launcher.
  const FileSays launcher = said("torchrun $DISTRIBUTED train.py " + end + "\n");
  CHECK(is_lost(launcher, "arguments = $DISTRIBUTED"));
  CHECK(launcher.text("train.weight_decay") == "0");
}

TEST_CASE("words: what ((…)) changes", "[read]") {
  const std::string run = "torchrun --nnodes 2 --nproc_per_node $N train.py " + kBatch + "1\n";
  CHECK(said("N=3\n((N++))\n" + run).text("hardware.gpus_per_node") == "4");
  CHECK(said("N=3\nlet N=N+1\nlet \"N+=2\"\n" + run).text("hardware.gpus_per_node") == "6");
  CHECK(said("N=3\n(( --N, N *= 4 ))\n" + run).text("hardware.gpus_per_node") == "8");
  CHECK(said("N=3\nif ((N == 3)); then :; fi\n" + run).text("hardware.gpus_per_node") == "3");
  CHECK(said("N=3\nif [ \"$1\" -eq 0 ]; then ((N++)); fi\n" + run).text("hardware.gpus_per_node").empty());
  CHECK(said("N=3\nwhile [ -f x ]; do ((N++)); done\n" + run).text("hardware.gpus_per_node").empty());
  CHECK(said("N=$(( ${GPUS:-8} / 2 ))\n" + run).text("hardware.gpus_per_node") == "4");
  CHECK(said("N=$(( ${GPUS} / 2 ))\n" + run).text("hardware.gpus_per_node").empty());
}

TEST_CASE("words: a list that printf quotes for another shell", "[read]") {
  const std::string list = "CMD=(--nproc_per_node 8 train.py " + kBatch + "4 --learning_rate $LR)\n";
  const FileSays says = said(list + "S=$(printf \" %q\" \"${CMD[@]}\")\nbash -c 'torchrun '\"$S\"\n");
  CHECK(says.text("micro_batch") == "4");
  CHECK(is_lost(says, "learning_rate = $LR"));
  CHECK(said(list + "S=$(printf '%03d' \"${CMD[@]}\")\nbash -c 'torchrun '\"$S\"' train.py'\n").text("micro_batch").empty());
}

TEST_CASE("words: an option of one branch is said without what stands for it here", "[read]") {
  const std::string branch = "S=(srun --label)\nif [ -n \"$J\" ]; then S+=(--jobid=$J); fi\n";
  CHECK(is_lost(said(branch + "\"${S[@]}\" " + kStart + kBatch + "2\n"), "jobid = (in a branch)"));
}

TEST_CASE("words: two trainings of two programs are two runs", "[read]") {
  const auto is_refused = [](const std::string& script) {
    const Result<std::vector<Reading>> readings = read_config(embedded_templates(), script, "run.sh");
    return !readings.ok() || !merge_readings(*readings).ok();
  };
  const std::string first = "torchrun --nproc_per_node 8 a.py --model_name_or_path gpt2 " + kBatch + "2\n";
  CHECK(is_refused(first + "torchrun --nproc_per_node 8 b.py --bf16 True " + kRate + "1e-5\n"));
  CHECK_FALSE(is_refused(first + "torchrun --nproc_per_node 8 src/a.py --bf16 True\n"));
  // The same settings, and a program that says nothing of a training.
  CHECK_FALSE(is_refused(first + "torchrun --nproc_per_node 8 b.py --model_name_or_path gpt2 " + kBatch + "2\n"));
  CHECK_FALSE(is_refused(first + "torchrun --nproc_per_node 8 b.py --per_device_eval_batch_size 4\n"));
}

TEST_CASE("words: LLaMA-Factory's command starts torchrun by its variables", "[read]") {
  const std::string train = "llamafactory-cli train learning_rate=1e-5 per_device_train_batch_size=1\n";
  const FileSays exported = said("export NNODES=2\nexport NPROC_PER_NODE=4\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\n" + train);
  CHECK(exported.text("hardware.nodes") == "2");
  CHECK(exported.text("hardware.gpus_per_node") == "4");
  CHECK(exported.text("derived.world").empty());
  // As many processes as devices are seen, where nothing says how many.
  CHECK(said("NNODES=2 CUDA_VISIBLE_DEVICES=0,1,2 " + train).text("hardware.gpus_per_node") == "3");
  CHECK(said("NNODES=2 " + train).text("hardware.gpus_per_node").empty());
  CHECK(said("CUDA_VISIBLE_DEVICES=0,1,2 " + train).text("derived.world") == "3");
  CHECK(said("USE_RAY=1 NNODES=2 " + train).text("hardware.nodes").empty());
  CHECK(said("NNODES=2 llamafactory-cli export a.yaml\n").text("hardware.nodes").empty());
}

TEST_CASE("words: a file of programs for srun is said", "[read]") {
  CHECK(is_lost(said("#!/bin/bash\n#SBATCH --nodes=1\nsrun --multi-prog tasks.conf\n"), "multi_prog = true"));
  CHECK_FALSE(is_lost(said("#!/bin/bash\n#SBATCH --nodes=1\nsrun --overlap hostname\n"), "overlap = true"));
}
