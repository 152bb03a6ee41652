// Files that a script sources: what they set acts in the script from there on.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/settings/read_files.h"
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
