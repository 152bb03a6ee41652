// Scripts that another script starts: what they are given, and what lint says of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "codegen/lint/lint.h"
#include "codegen/read/started_scripts.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

const std::string kHead = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n";
const std::string kTrain = "train.py --model_name_or_path $MODEL --bf16 True --num_train_epochs 1 --per_device_train_batch_size ";

std::string put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

FileSays said(const std::string& path) {
  Result<std::vector<Reading>> readings = read_foreign_files(embedded_templates(), {path}, "", {});
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

// What `inner` says as run.sh beside a job with `lines`.
FileSays job_says(const std::string& lines, const std::string& inner) {
  const TemporaryDirectory folder;
  put(fs::path(folder.path()) / "run.sh", inner);
  return said(put(fs::path(folder.path()) / "job.sbatch", kHead + lines));
}

std::vector<foreign::StartedScript> started(const std::string& text) {
  const auto document = foreign::parse_document(embedded_templates(), "a.sh", text);
  REQUIRE(document.ok());
  return foreign::started_scripts(**document);
}

std::string find_beside(const std::string& name, const std::string& from) {
  const auto found = find_named_file(name, from);
  return found ? found->path : "";
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

LintReport lint(const std::string& path) {
  LintContext context;
  context.find_script = find_beside;
  context.text_of_program = text_of;
  return lint_files({{path, text_of(path)}}, context);
}

size_t num_found(const LintReport& report, const std::string& code, const std::string& file) {
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(), [&](const LintFinding& one) {
    return one.diagnostic.code == code && fs::path(one.diagnostic.location.file).filename() == file;
  }));
}

}  // namespace

TEST_CASE("started scripts: arguments and exported variables reach the script", "[read]") {
  const std::string inner = "MODEL=$2\ntorchrun --nproc_per_node ${1:-4} " + kTrain + "${BATCH:-1}\n";
  const FileSays given = job_says("export BATCH=3\nsrun bash run.sh 8 o/m\n", inner);
  CHECK(given.text("hardware.gpus_per_node") == "8");
  CHECK(given.text("micro_batch") == "3");
  CHECK(given.text("model.name") == "o/m");
  // What is not exported does not reach it; what stands in front of the command does.
  CHECK(job_says("BATCH=3\nsrun bash run.sh 8 o/m\n", inner).text("micro_batch") == "1");
  CHECK(job_says("BATCH=5 srun ./run.sh 8 o/m\n", inner).text("micro_batch") == "5");
  // Set to what only the job knows: its default is none either.
  CHECK(job_says("export BATCH=$(cat b)\nsrun bash run.sh 8 o/m\n", inner).text("micro_batch").empty());
}

TEST_CASE("started scripts: all arguments, the rest of them, and after a shift", "[read]") {
  const std::string begin = "MODEL=o/m\ntorchrun --nproc_per_node 8 " + kTrain + "1 ";
  CHECK(job_says("srun bash run.sh --max_steps 70\n", begin + "\"$@\"\n").text("train.steps") == "70");
  CHECK(job_says("srun bash run.sh x --max_steps 70\n", begin + "${@:2}\n").text("train.steps") == "70");
  // A function has arguments of its own.
  CHECK(job_says("srun bash run.sh 7 8\n", "shift\n" + begin + "--max_steps $1\n").text("train.steps") == "8");
  CHECK(job_says("srun bash run.sh 7\n", "f() {\n" + begin + "--max_steps $1\n}\nf 9\n").text("train.steps") == "9");
}

TEST_CASE("started scripts: a plain bash line is followed where nothing else trains", "[read]") {
  const std::string inner = "MODEL=o/m\ntorchrun --nproc_per_node $1 " + kTrain + "2\n";
  CHECK(job_says("bash run.sh 4\n", inner).text("micro_batch") == "2");
  const FileSays beside =
      job_says("bash run.sh 4\nsrun torchrun --nproc_per_node 8 t.py --learning_rate 1e-5 --output_dir o --bf16 True\n", inner);
  CHECK(beside.text("micro_batch").empty());
  // Started in two ways: what both give it.
  CHECK(job_says("bash run.sh 4\nbash run.sh 8\n", inner).text("micro_batch") == "2");
  const std::vector<foreign::StartedScript> scripts = started("bash run.sh 4 a\nbash run.sh 8 a\n");
  REQUIRE(scripts.size() == 1);
  for (const foreign::OuterVariable& one : scripts[0].given) {
    if (one.name == "1") CHECK_FALSE(one.is_known);
    if (one.name == "2") CHECK(one.value == "a");
  }
}

TEST_CASE("started scripts: a file that does nothing but start what is not here is refused", "[read]") {
  const TemporaryDirectory folder;
  const Result<std::vector<Reading>> readings =
      read_foreign_files(embedded_templates(), {put(fs::path(folder.path()) / "all.sh", "bash other.sh 8\n")}, "", {});
  REQUIRE_FALSE(readings.ok());
  CHECK(readings.diagnostics[0].message.find("'other.sh' is not here") != std::string::npos);
  // An evaluation is no run, though its arguments have usual names.
  put(fs::path(folder.path()) / "evaluate.sh", "python score.py --seed 40 --output_dir o\n");
  const Result<std::vector<Reading>> scored =
      read_foreign_files(embedded_templates(), {put(fs::path(folder.path()) / "b.sh", "bash evaluate.sh\n")}, "", {});
  REQUIRE_FALSE(scored.ok());
  CHECK(scored.diagnostics.back().message.find("known tool") != std::string::npos);
}

TEST_CASE("started scripts: what starts none", "[read]") {
  CHECK(started("bash -c 'echo a'\necho run.sh\nsource env.sh\nif false; then bash a.sh; fi\n").empty());
  CHECK(started("srun scripts/numa.sh python t.py\n./wrap.sh torchrun t.py\n").empty());
  CHECK(started("nohup bash -x a.sh 1 &\nexec ./b.sh\n").size() == 2);
}

TEST_CASE("started scripts: lint finds mistakes in them, by their own lines and once", "[lint]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string job =
      put(root / "job.sbatch", kHead + "export OMP_NUM_THREADS=8\nexport H=$(hostname)\nsrun -K bash run.sh\nsrun -K bash run.sh\n");
  put(root / "run.sh",
      "torchrun --nnodes=2 --nproc_per_nodes=8 --rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py\nbash job.sbatch\nbash deep.sh\n");
  put(root / "deep.sh", "export NCCL_ASYNC_ERROR_HANDLING=1\nbash run.sh\n");
  const LintReport report = lint(job);
  CHECK(num_found(report, "TR011", "run.sh") == 1);
  CHECK(num_found(report, "ENV001", "deep.sh") == 1);
  CHECK(num_found(report, "TR004", "run.sh") == 0);  // the job exports it
  REQUIRE(report.files.size() == 3);
  CHECK(report.files[0].from.empty());
  CHECK(report.files[1].from == job);
  // Alone, or where the script is not there.
  CHECK(num_found(lint_files({{job, text_of(job)}}, {}), "TR011", "run.sh") == 0);
  fs::remove(root / "run.sh");
  CHECK(lint(job).files.size() == 1);
}

TEST_CASE("started scripts: what srun makes of their launchers is found where srun stands", "[lint]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string filler = "# " + std::string(3000, 'x') + "\n";
  const std::string job = put(root / "job.sbatch", kHead + "export OMP_NUM_THREADS=8\nsrun -K bash run.sh\n");
  put(root / "run.sh", filler + "deepspeed --num_gpus 8 t.py\n");
  const LintReport report = lint(job);
  CHECK(num_found(report, "SL004", "job.sbatch") == 1);
  CHECK(num_found(report, "SL004", "run.sh") == 0);
  put(root / "run.sh", filler + "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend=c10d --rdzv_endpoint=n0:1 t.py\n");
  CHECK(num_found(lint(job), "SL004", "job.sbatch") == 0);
}

TEST_CASE("started scripts: sixteen of them are followed", "[lint]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  for (int i = 0; i < 40; ++i) {
    put(root / ("s" + std::to_string(i) + ".sh"), "export NCCL_ASYNC_ERROR_HANDLING=1\nbash s" + std::to_string(i + 1) + ".sh\n");
  }
  CHECK(lint((root / "s0.sh").string()).files.size() == 17);
}

TEST_CASE("started scripts: xtuner is told by name, in scripts and by its Python program", "[read]") {
  const auto kind = [](const std::string& text) {
    const auto document = foreign::parse_document(embedded_templates(), "a.py", text);
    REQUIRE(document.ok());
    REQUIRE((*document)->kind != nullptr);
    return (*document)->kind->name;
  };
  CHECK(kind("from mmengine.dataset import DefaultSampler\nfrom xtuner.dataset import process_hf_dataset\n") == "xtuner");
  CHECK(kind("import torch\n# see xtuner\n") == "python");
  const TemporaryDirectory folder;
  for (const char* line : {"NPROC_PER_NODE=8 xtuner train c.py --deepspeed deepspeed_zero2\n",
                           "srun --ntasks=8 --ntasks-per-node=8 --gres=gpu:8 python xtuner/tools/train.py c.py --launcher slurm "
                           "--deepspeed deepspeed_zero2\n"}) {
    const Result<std::vector<Reading>> readings =
        read_foreign_files(embedded_templates(), {put(fs::path(folder.path()) / "x.sh", line)}, "", {});
    REQUIRE(readings.ok());
    CHECK(std::any_of(readings.diagnostics.begin(), readings.diagnostics.end(),
                      [](const Diagnostic& one) { return one.message.find("'c.py'") != std::string::npos; }));
    const FileSays says = merged(std::vector<Reading>(*readings));
    CHECK(says.text("strategy.sharding") == "zero2");
    CHECK(says.text("hardware.gpus_per_node") == "8");
    CHECK(says.text("train.method").empty());
  }
}

TEST_CASE("started scripts: a command line over the file that it names", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "sft.yaml",
      "model_name_or_path: o/m\nstage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: qwen\ndataset: d\noutput_dir: "
      "o\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\n");
  const FileSays llama = said(put(root / "a.sh", "llamafactory-cli train sft.yaml learning_rate=2.0e-5\n"));
  CHECK(llama.text("train.learning_rate") == "2e-05");
  CHECK(llama.text("micro_batch") == "1");
  put(root / "m.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 3\nseq_len = 8192\nsteps = 10\n");
  const FileSays titan =
      said(put(root / "b.sh", "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file m.toml --training.steps=70\n"));
  CHECK(titan.text("train.steps") == "70");
  CHECK(titan.text("micro_batch") == "3");
}

TEST_CASE("started scripts: TrainingArguments with --fsdp are trained by FSDP", "[read]") {
  const TemporaryDirectory folder;
  const std::string line =
      "torchrun --nproc_per_node 2 train.py --model_name_or_path o/m --bf16 True --output_dir o --num_train_epochs 1 ";
  CHECK(said(put(fs::path(folder.path()) / "a.sh", line + "--fsdp \"full_shard auto_wrap\"\n")).text("strategy.trainer") == "fsdp2");
  CHECK(said(put(fs::path(folder.path()) / "b.sh", line + "\n")).text("strategy.trainer") == "ddp");
}

TEST_CASE("started scripts: a script of ORPO under the Trainer's arguments is none that a plan trains", "[read]") {
  const TemporaryDirectory folder;
  const auto warns = [&folder](const std::string& script) {
    const std::string text = "python " + script + " --model_name_or_path o/m --bf16 True --output_dir o --num_train_epochs 1\n";
    const auto readings = read_foreign_files(embedded_templates(), {put(fs::path(folder.path()) / "a.sh", text)}, "", {});
    REQUIRE(readings.ok());
    return std::any_of(readings.diagnostics.begin(), readings.diagnostics.end(),
                       [](const Diagnostic& one) { return one.message.find("no plan does") != std::string::npos; });
  };
  CHECK(warns("orpo_training.py"));
  CHECK_FALSE(warns("corpora_training.py"));
}

TEST_CASE("started scripts: what a file gives without effect is not read", "[read]") {
  const TemporaryDirectory folder;
  const std::string file =
      "model_name_or_path: o/m\nstage: sft\ndo_train: true\ntemplate: qwen\ndataset: d\noutput_dir: o\nmax_steps: 10\n";
  const FileSays full = said(put(fs::path(folder.path()) / "a.yaml", file + "finetuning_type: full\nlora_rank: 0\n"));
  CHECK(full.text("train.lora_rank").empty());
  CHECK(full.text("train.finetune") == "full");
  // A constant rate has no warm-up, whatever is given; the other one has.
  const std::string steps = file + "finetuning_type: full\nwarmup_steps: 4\nlr_scheduler_type: ";
  const FileSays constant = said(put(fs::path(folder.path()) / "b.yaml", steps + "constant\n"));
  CHECK(constant.text("train.lr_schedule") == "constant");
  CHECK(constant.text("train.warmup_steps") == "0");
  const FileSays warmed = said(put(fs::path(folder.path()) / "c.yaml", steps + "constant_with_warmup\n"));
  CHECK(warmed.text("train.lr_schedule") == "constant");
  CHECK(warmed.text("train.warmup_steps") == "4");
}

TEST_CASE("started scripts: names without folders, and paths from a repository that is called otherwise here", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string from = put(root / "repo" / "scripts" / "run" / "job.sh", "");
  put(root / "repo" / "ds.json", "{}");
  put(root / "repo" / "twice.json", "{}");
  put(root / "repo" / "scripts" / "twice.json", "{}");
  put(root / "repo" / "scripts" / "run" / "train.sh", "");
  CHECK(find_beside("ds.json", from) == (root / "repo" / "ds.json").string());
  CHECK(find_beside("twice.json", from).empty());
  CHECK(find_beside("other-name/scripts/run/train.sh", from) == (root / "repo" / "scripts" / "run" / "train.sh").string());
  CHECK(find_beside("other-name/scripts/eval/train.sh", from).empty());
}

TEST_CASE("started scripts: a job that another script submits, with the options of the line", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string train =
      "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 2 --learning_rate ${LR:-1e-4} --max_steps 100 --output_dir "
      "o\n";
  put(root / "job.slurm", "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\nsrun " + train);
  const auto submitted = [&root](const std::string& line) { return said(put(root / "submit.sh", "#!/bin/bash\n" + line + "\n")); };
  const FileSays plain = submitted("sbatch job.slurm");
  CHECK(plain.text("hardware.nodes") == "1");
  CHECK(plain.text("hardware.gpus_per_node") == "8");
  const FileSays wide = submitted("sbatch -N 4 --time=10:00:00 --exclusive --export=ALL,LR=3e-5 job.slurm");
  CHECK(wide.text("hardware.nodes") == "4");
  CHECK(wide.text("hardware.gpus_per_node") == "8");
  CHECK(wide.text("train.learning_rate") == "3e-05");
  // Submitted in two ways, the job's own lines are what both have in common.
  CHECK(submitted("sbatch -N 4 job.slurm\nsbatch -N 8 job.slurm").text("hardware.nodes") == "1");
  // A job that submits others is a job of its own.
  CHECK(submitted("#SBATCH --nodes=2\nsrun hostname\nsbatch job.slurm").text("hardware.nodes") == "2");
  // An argument of the job is none of sbatch's options.
  CHECK(submitted("sbatch job.slurm -N 4").text("hardware.nodes") == "1");
  // A job without lines of its own, and one that begins without a shell's.
  put(root / "bare.sh", "srun " + train);
  CHECK(submitted("sbatch --nodes=2 --gpus-per-node=8 ./bare.sh").text("hardware.nodes") == "2");
}

TEST_CASE("started scripts: a file that is named from the folder that the script changes to", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "recipes/llama");
  put(root / "recipes/llama/zero.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})");
  const std::string train =
      "deepspeed --num_gpus 8 ../../train.py --deepspeed zero.json --per_device_train_batch_size 2 --max_steps 9\n";
  const auto sharding = [&](const std::string& lines) {
    return said(put(root / "run.sh", "#!/bin/bash\n" + lines + train)).text("strategy.sharding");
  };
  CHECK(sharding("cd recipes/llama\n") == "zero3");
  CHECK(sharding("cd recipes && cd llama\n") == "zero3");
  CHECK(sharding("cd /home/somebody/work/recipes/llama || exit 1\n") == "zero3");
  CHECK(sharding("cd \"$(dirname \"$0\")/recipes/llama\"\n") == "zero3");
  CHECK(sharding("pushd $ROOT/recipes/llama > /dev/null\n") == "zero3");
}
