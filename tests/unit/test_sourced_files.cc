// Files that a script sources: what they set acts in the script from there on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "codegen/lint/lint.h"
#include "codegen/shell/follow.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

const std::string kTrain =
    "torchrun --nproc_per_node ${GPUS:-4} train.py --model_name_or_path o/m --bf16 True --num_train_epochs 1 "
    "--per_device_train_batch_size ${BATCH:-1}\n";

// What scripts/job.sh with `lines` in front of the training says beside files.
FileSays job_says(const std::string& lines, const std::vector<std::pair<std::string, std::string>>& files) {
  const TemporaryDirectory folder;
  for (const auto& [name, text] : files) put(fs::path(folder.path()) / name, text);
  const fs::path job = fs::path(folder.path()) / "scripts" / "job.sh";
  put(job, "#!/bin/bash\n" + lines + kTrain);
  Result<std::vector<Reading>> readings = read_foreign_files(embedded_templates(), {job.string()}, "", {});
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

std::string batch(const std::string& lines, const std::string& environment) {
  return job_says(lines, {{"scripts/env.sh", environment}}).text("micro_batch");
}

}  // namespace

TEST_CASE("sourced files: what they set acts from there on", "[read]") {
  for (const char* line : {"source env.sh\n", ". ./env.sh\n", "source \"$(dirname \"$0\")/env.sh\"\n",
                           "DIR=$(dirname $0)\n. $DIR/env.sh\n", "set -a; source env.sh; set +a\n"}) {
    CAPTURE(line);
    CHECK(batch(line, "# ours\nexport GPUS=8\nBATCH=3\n") == "3");
  }
  const FileSays both = job_says("source scripts/env.sh\n", {{"scripts/env.sh", "export GPUS=8\nBATCH=$((GPUS / 2))\n"}});
  CHECK(both.text("hardware.gpus_per_node") == "8");
  CHECK(both.text("micro_batch") == "4");
  // The file sees what the script set before it; what the script sets behind it stands.
  CHECK(batch("N=5\nsource env.sh\n", "BATCH=$N\n") == "5");
  CHECK(batch("source env.sh\nBATCH=7\n", "BATCH=3\n") == "7");
  CHECK(batch("BATCH=7\nsource env.sh\n", "BATCH=${BATCH:-3}\n") == "7");
  CHECK(batch("BATCH=7\nsource env.sh\n", "if [[ $BATCH == 7 ]]; then BATCH=2; fi\n") == "2");
  // Of a file that another one sources, and of one beside the folder.
  CHECK(job_says("source env.sh\n", {{"scripts/env.sh", "source ../common.sh\n"}, {"common.sh", "BATCH=6\n"}}).text("micro_batch") ==
        "6");
}

TEST_CASE("sourced files: what does not act", "[read]") {
  // Files of the machine, those that are not here, and other commands with the word.
  for (const char* line :
       {"source ~/env.sh\n", "source /env.sh\n", "source $HOME/env.sh\n", "source conda.sh\n", "source $CONDA/etc/profile.d/env.sh\n",
        "echo source env.sh\n", "bash -c 'source env.sh'\n", "(source env.sh)\n", "if false; then source env.sh; fi\n"}) {
    CAPTURE(line);
    CHECK(batch(line, "BATCH=3\n") == "1");
  }
  // A function of the file is not one of the script, and one of the script does not run in the file's place.
  CHECK(batch("f() { BATCH=9; }\nsource env.sh\n", "f\n") == "1");
}

TEST_CASE("sourced files: cycles and many files end", "[read]") {
  CHECK(batch("source env.sh\n", "BATCH=3\nsource env.sh\nsource env.sh\n") == "3");
  size_t num_read = 0;
  const std::string text = "source a.sh\n";
  const auto read = [&num_read](const std::string&) {
    ++num_read;
    return std::optional<std::string>("source a.sh\nsource a.sh\nX=1\n");
  };
  const foreign::ShellScript script = foreign::follow_shell(foreign::parse_shell(text, {0, text.size()}), read);
  CHECK(num_read == 16);
  CHECK(script.commands.size() == 1);
}

TEST_CASE("sourced files: what they export reaches the scripts that are started", "[read]") {
  const std::string inner = "#!/bin/bash\n" + kTrain;
  const auto of_inner = [&inner](const std::string& lines, const std::string& environment) {
    const TemporaryDirectory folder;
    put(fs::path(folder.path()) / "env.sh", environment);
    put(fs::path(folder.path()) / "run.sh", inner);
    const fs::path job = fs::path(folder.path()) / "job.sh";
    put(job, "#!/bin/bash\n" + lines + "srun bash run.sh\n");
    Result<std::vector<Reading>> readings = read_foreign_files(embedded_templates(), {job.string()}, "", {});
    REQUIRE(readings.ok());
    return merged(std::move(*readings)).text("micro_batch");
  };
  CHECK(of_inner("source env.sh\n", "export BATCH=3\n") == "3");
  CHECK(of_inner("set -a\nsource env.sh\nset +a\n", "BATCH=3\n") == "3");
  CHECK(of_inner("source env.sh\n", "BATCH=3\n") == "1");  // not exported
}

TEST_CASE("sourced files: their functions are followed where they are called, with what they are given", "[read]") {
  const auto says = [](const std::string& lines, const std::string& library) {
    const TemporaryDirectory folder;
    put(fs::path(folder.path()) / "lib.sh", library);
    const fs::path job = fs::path(folder.path()) / "job.sh";
    put(job, "#!/bin/bash\nsource lib.sh\n" + lines);
    Result<std::vector<Reading>> readings = read_foreign_files(embedded_templates(), {job.string()}, "", {});
    return readings.ok() ? merged(std::move(*readings)) : FileSays();
  };
  const std::string train = " train.py --model_name_or_path o/m --bf16 True --num_train_epochs 1 --per_device_train_batch_size ";
  const std::string launch = "launch() {\n  local gpus=$1; shift\n  torchrun --nproc_per_node $gpus" + train + "2 \"$@\"\n}\n";
  CHECK(says("torchrun --nproc_per_node 4" + train + "$B\n", "B=1\n").text("micro_batch") == "1");
  // What it sets counts behind the call, and not before it; what it starts is started.
  CHECK(says("settings\ntorchrun --nproc_per_node 4" + train + "$B\n", "settings() { B=3; }\n").text("micro_batch") == "3");
  CHECK(says("torchrun --nproc_per_node 4" + train + "${B:-1}\nsettings\n", "settings() { B=3; }\n").text("micro_batch") == "1");
  const FileSays started = says("run 8\n", "run() {\n  torchrun --nproc_per_node $1" + train + "2\n}\n");
  CHECK(started.text("hardware.gpus_per_node") == "8");
  CHECK(started.text("micro_batch") == "2");
  CHECK(says("launch 8\n", launch).text("micro_batch") == "2");
  CHECK(says("run 8\n", "helper() { G=$1; }\nrun() {\n  helper $1\n  torchrun --nproc_per_node 4" + train + "5\n}\n")
            .text("micro_batch") == "5");
  // One that is not called starts nothing, and one that calls itself ends.
  CHECK(says("echo hello\n", launch).fields.empty());
  CHECK(says("if false; then launch 8; fi\n", launch).fields.empty());
  CHECK(says("again 1\ntorchrun --nproc_per_node 4" + train + "$B\n", "again() { B=6; again 2; }\n").text("micro_batch") == "6");
}

TEST_CASE("sourced files: lint looks at them under their own name and lines", "[lint]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const auto lint = [&root](const std::string& lines, const std::string& library) {
    put(root / "env.sh", library);
    put(root / "job.sh", "#!/bin/bash\nexport OMP_NUM_THREADS=8\n" + lines);
    LintContext context;
    context.find_script = [](const std::string& name, const std::string& from) {
      const auto found = find_named_file(name, from);
      return found ? found->path : std::string();
    };
    context.text_of_program = [](const std::string& path) {
      std::ifstream in(path);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    std::ifstream in(root / "job.sh");
    return lint_files({{(root / "job.sh").string(), std::string(std::istreambuf_iterator<char>(in), {})}}, context);
  };
  const std::string train = "torchrun --nproc_per_node 8 train.py\n";
  const LintReport report = lint("source env.sh\n" + train, "# ours\nexport NCCL_ASYNC_ERROR_HANDLING=1\n");
  REQUIRE(report.files.size() == 2);
  CHECK(report.files[1].is_sourced);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].diagnostic.code == "ENV001");
  CHECK(report.findings[0].diagnostic.location.line == 2);
  CHECK(report.findings[0].diagnostic.location.file == (root / "env.sh").string());
  // What the script sets, exported or not, is set in the file; and what the file is not sourced for is not looked at.
  CHECK(lint("OUT=out\nsource env.sh\n" + train, "run() { torchrun --nproc_per_node 8 train.py --output_dir $OUT --seed 1; }\n")
            .findings.empty());
  CHECK(lint("echo env.sh\n" + train, "export NCCL_ASYNC_ERROR_HANDLING=1\n").files.size() == 1);
  // A function that starts a run is looked at in its file, once.
  const LintReport once = lint("source env.sh\nrun 8\n", "run() {\n  torchrun --nproc_per_node=$1 --nprocs_per_node=8 train.py\n}\n");
  CHECK(std::count_if(once.findings.begin(), once.findings.end(),
                      [](const LintFinding& one) { return one.diagnostic.code == "TR011"; }) == 1);
}
