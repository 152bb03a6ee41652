// Scripts that YAML holds in its several styles, and texts that a shell is handed in a variable: what bash gets is what is read. Each
// beside a near miss.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"
#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

std::string task(const std::string& run) {
  return "num_nodes: 2\nresources:\n  accelerators: A100:8\nrun: " + run + "\nenvs:\n  A: b\n";
}

std::string pod(const std::string& container) {
  return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      "
         "containers:\n"
         "        - name: c\n          image: i\n          resources: {limits: {nvidia.com/gpu: 8}}\n" +
         container;
}

FileSays of_task(const std::string& run) { return read_together({{"task.yaml", task(run)}}); }
FileSays of_pod(const std::string& container) { return read_together({{"pod.yaml", pod(container)}}); }

size_t num_found(const std::string& path, const std::string& text, std::string_view code) {
  const LintReport report = lint_files({{path, text}}, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                           [code](const LintFinding& one) { return one.diagnostic.code == code; }));
}

}  // namespace

TEST_CASE("scalars: line breaks of folded, quoted and plain texts are blanks", "[read]") {
  const std::string lines[] = {"torchrun --nproc_per_node=8", "train.py", "--per_device_train_batch_size 4 --learning_rate 1e-5"};
  const std::string all = lines[0] + "\n    " + lines[1] + "\n    " + lines[2];
  for (const std::string& run : {">-\n    " + all, ">\n    " + all + "\n", all, "\"" + all + "\"", "'" + all + "'"}) {
    INFO(run);
    const FileSays file = of_task(run);
    CHECK(file.text("hardware.gpus_per_node") == "8");
    CHECK(file.text("micro_batch") == "4");
    CHECK(file.text("train.learning_rate") == "1e-05");
  }
  // Kept line by line, and where a line stands further in or behind an empty one.
  CHECK(of_task("|\n    " + all).text("micro_batch").empty());
  CHECK(of_task(">\n    " + lines[0] + " " + lines[1] + "\n\n    " + lines[2]).text("micro_batch").empty());
  CHECK(of_task(">\n    " + lines[0] + " " + lines[1] + "\n      " + lines[2]).text("micro_batch").empty());
  CHECK(of_task(">\n    cd run\n\n    " + lines[0] + "\n    " + lines[1] + "\n    " + lines[2]).text("micro_batch") == "4");
}

TEST_CASE("scalars: escapes of quoted texts are what they stand for", "[read]") {
  const std::string begin = "          command: [bash, -c, ";
  const auto batch = [&begin](const std::string& text) { return of_pod(begin + text + "]\n").text("micro_batch"); };
  CHECK(batch(R"("N=\"4\"; torchrun train.py --learning_rate 1e-5 --per_device_train_batch_size \"$N\"")") == "4");
  CHECK(batch(R"("cd run\ntorchrun train.py --learning_rate 1e-5 --per_device_train_batch_size 4")") == "4");
  CHECK(batch(R"("torchrun train.py --learning_rate 1e-5 \\\n  --per_device_train_batch_size 4")") == "4");
  CHECK(batch("\"torchrun train.py --learning_rate 1e-5 \\\n            --per_device_train_batch_size 4\"") == "4");
  CHECK(batch("'torchrun train.py --learning_rate 1e-5 --note ''a b'' --per_device_train_batch_size 4'") == "4");
}

TEST_CASE("scalars: lint reads a folded task as the shell does", "[lint]") {
  CHECK(num_found("a.yaml", task(">-\n  torchrun\n  --nnodes=2 --node_rank=$R --master_addr=$A --nproc_per_node=8\n  t.py"),
                  "TR009") == 0);
  CHECK(num_found("a.yaml", task(">-\n  torchrun\n  --nnodes=1 --nproc_per_node=4\n  t.py"), "TR009") == 1);
  CHECK(num_found("a.yaml", task(">-\n  torchrun\n  --nnodes=1 --nproc_per_node=4\n  t.py"), "TR008") == 1);
}

TEST_CASE("scalars: a text of several commands that a shell is handed in a variable", "[read]") {
  const std::string train = "torchrun --nnodes 2 --nproc_per_node=4 train.py --learning_rate 1e-5 --per_device_train_batch_size 4";
  const auto batch = [](const std::string& text) { return read_together({{"a.sh", text}}).text("micro_batch"); };
  for (const char* starts :
       {"bash -c \"$CMD\"\n", "srun singularity exec img bash -c \"$CMD\"\n", "docker run i bash -c \"set -e; $CMD\"\n"}) {
    INFO(starts);
    CHECK(batch("CMD=\"cd /run && " + train + "\"\n" + starts) == "4");
    CHECK(batch("CMD=\"cd /run; export A=1; " + train + " 2>&1 | tee log\"\n" + starts) == "4");
    CHECK(batch("T=\"" + train + "\"\nCMD=\"cd /run && $T\"\n" + starts) == "4");
  }
  CHECK(batch("CMD=\"\ncd /run\n# its own\n" + train + "\n\"\nbash -c \"$CMD\"\n") == "4");
  CHECK(batch("read -r -d '' CMD <<'E' || true\ncd /run\ntorchrun \\\n  --nnodes 2 train.py \\\n  --per_device_train_batch_size "
              "4\nE\nbash -c \"$CMD\"\n") == "4");
  CHECK(batch("CMD=\"cd /run && " + train + "\"\necho \"$CMD\"\n python t.py --learning_rate 1e-5\n").empty());
  // One option's text stays one word.
  CHECK(batch("bash -c \"torchrun train.py --learning_rate 1e-5 --note 'a && b' --per_device_train_batch_size 4\"\n") == "4");
}
