// Files that run a plan: configuration files of the trainers people already use, and launch scripts. Everything here is a function
// from values to values: nothing is read from or written to disk (load_templates excepted), no clock, no environment; same input,
// same bytes. Which keys a target has, in which order and when, is data: templates/<target>/ (templates/README.md).
// What a target cannot express is an error that says so, never a dropped field. Warnings and notes come with the value
// (Result::diagnostics) and belong on stderr.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "plan/plan.h"

namespace distsetup {

// One file to write. `path` is relative to the folder the user named (or a bare name when a single file was asked for).
struct Artifact {
  std::string path;
  std::string text;
  bool executable = false;
  bool operator==(const Artifact&) const = default;
};
using Artifacts = std::vector<Artifact>;

// The files of templates/ as (path below templates/, text): the embedded ones, with those of a folder of the user's in front. A file
// of the same relative path replaces the embedded one; a new folder with a target.yaml is a new target.
struct ReadTables;
struct TemplateSet {
  std::vector<std::pair<std::string, std::string>> files;  // sorted by path, each once
  std::shared_ptr<ReadTables> read_tables = nullptr;       // key tables read so far: many targets share one; null: read each time
};
const TemplateSet& embedded_templates();
const std::string* find_file(const TemplateSet& templates, std::string_view path);  // "native/target.yaml"; nullptr: not there
Result<TemplateSet> load_templates(const std::string& directory);                   // --templates DIR, over the embedded ones

// Names of targets that `emit` knows: every folder with a target.yaml, without those that start with '_'.
std::vector<std::string> target_names(const TemplateSet& templates);

// Which of the planner's choices a target has a form for (`search` of its target.yaml), so that a search need not end in a plan that
// cannot be written. Empty lists: all.
struct TargetSearch {
  std::vector<std::string> trainers;               // that run the target's files, the usual one first; empty: the bundled one
  std::vector<std::string> shardings, recomputes;  // "zero3", "full"
  bool hybrid = true;                              // copies of the shard group
  bool keeps_parameters = true;                    // reshard_after_forward: false
  std::optional<std::vector<std::string>> axes;    // of pp, tp, cp, ep; absent: all
};
// `trainer`: who is planned for, where the target has less of one of them (`of: {fsdp2: ...}`); "" = not known yet.
Result<TargetSearch> target_search(const TemplateSet& templates, std::string_view target, std::string_view trainer = "");

// What the header of every emitted script says beside the plan's arithmetic. `command` is the command line without --output and
// --force (so that the same plan gives the same bytes in every folder), shell-quoted where needed: join_command({"distsetup", ...}).
std::string join_command(const std::vector<std::string>& arguments);

// ---- distsetup slurm, and every other way to start a job ------------------------------------------
// Texts are as the user typed them and are checked here. Empty or absent = not given: nothing is written for it. Which flag and which
// key of site.yaml sets a member: codegen/site.h.
struct JobOptions {
  int nodes = 1;
  int gpus_per_node = 8;
  std::vector<std::string> program;  // a command of one's own instead of the bundled trainer
  std::string shape;                 // SLURM: rank (a task per rank; the default), torchrun (a task per node)
  std::string job_name = "llm_finetune";
  std::string time_limit;   // 4h, 1-12:00:00, 90m; "" = 24 hours, or the site's longest job
  std::string longest_job;  // of the site; a longer time limit is refused
  std::string partition, account, qos, constraint, reservation, exclude, dependency, array, mail_user;
  std::string memory_per_gpu;        // "32G"
  std::string memory_per_node;       // "0" = all of it
  std::optional<int> cpus_per_task;  // absent: 8 with GPUs, left out on CPU
  std::string gpu_request;           // gpus-per-node (the default), gres, none
  std::string gpu_type;              // the scheduler's name of the GPU: --gres=gpu:h100:8
  bool exclusive = false;
  bool requeue = false;                     // also: save and requeue when the time limit comes near, or a rank fails
  int max_restarts = 10;                    // with requeue
  int max_failures = 2;                     // with requeue: failures in a row without a new checkpoint between them
  std::optional<int> signal_lead_s;         // SIGUSR1 to the trainer this long before the limit; 0 = none; absent: from the plan
  std::string checkpoint_rate;              // "2GB/s" that one node writes checkpoints with
  bool health_gate = false;                 // each node is looked at before the step starts
  std::string output_log = "slurm-%j.out";  // a folder in it is made by the script before it is used
  std::string error_log;                    // "" = slurm-%j.err beside output_log
  std::vector<std::string> modules;         // module load NAME
  std::vector<std::string> exports;         // NAME=VALUE
  std::vector<std::string> setup;           // shell lines before the run (activating an environment), as they are
  std::string container;                    // none (the default), pyxis, apptainer
  std::string image;                        // of the container; Kubernetes, docker compose and SkyPilot need one
  std::vector<std::string> mounts;          // SOURCE:DESTINATION
  std::string interface, ib_hca;            // of the network between nodes
  std::string scratch;                      // node-local folder: TMPDIR
  bool offline = false;                     // nodes have no way to the internet
  std::vector<std::string> hosts;           // ssh, mpirun: the first is where rank 0 runs
  std::vector<std::string> ssh_options, mpi_options;
  std::string master_address;  // launcher: of node 0
  int master_port = 29500;
  std::optional<int> node_rank;  // launcher: baked into the script; absent: from the environment
  std::string use;               // launcher: none, deepspeed, fsdp: what a command of one's own runs with
  std::string name_space, queue, service_account, volume_claim, rdma_resource;  // Kubernetes
  std::string site;       // what the header says of the site file: its name and digest
  bool cpu_only = false;  // no GPU is requested; a plan on CPU sets it
  std::string command;    // join_command(...)
  TemplateSet templates = embedded_templates();
};
// job.sbatch, and with a plan plan.json in front of it. With a plan, nodes and gpus_per_node are the plan's (a disagreement with
// options that differ from the defaults is an error the CLI can avoid by setting both from the plan).
Result<Artifacts> slurm_script(const JobOptions& options, const std::optional<Plan>& plan = std::nullopt);

// ---- distsetup emit -----------------------------------------------------------------------------
struct EmitOptions {
  int fsdp_version = 2;   // target fsdp: 1 or 2
  std::string nvme_path;  // node-local folder that NVMe offload goes to
  std::string command;    // join_command(...)
  JobOptions job;         // target slurm; its nodes, gpus, command and templates are taken from the plan and from here
  TemplateSet templates = embedded_templates();
};
// target: one of target_names(), or a folder of the user's. Always with plan.json, whose text is dump_json(to_json(plan)).
Result<Artifacts> emit(const Plan& plan, std::string_view target, const EmitOptions& options = {});

// ---- distsetup fsdp -----------------------------------------------------------------------------
enum class FsdpDialect { kClassic, kAccelerate, kTrainer };
// `dialect` as given by --dialect ("" = not given: accelerate for an output path in .yaml or .yml, else classic).
Result<FsdpDialect> fsdp_dialect(std::string_view dialect, std::string_view output_path);

struct FsdpOptions {
  FsdpDialect dialect = FsdpDialect::kClassic;
  std::string sharding_strategy = "FULL_SHARD";  // FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD HYBRID_SHARD_ZERO2, or ours
  std::string mixed_precision = "BFLOAT16";      // FULL BFLOAT16 FP16; also no, fp32, bf16, fp16
  std::string checkpoint_strategy = "SHARDED_CHECKPOINT";  // FULL_ SHARDED_ LOCAL_CHECKPOINT; also ..._STATE_DICT
  std::vector<std::string> layer_classes;                  // with a model: {model.layer_class}; empty: the dialect's own default
  int version = 2;                                         // FSDP 1 or 2 (accelerate, trainer)
  std::optional<int> nodes, gpus_per_node;                 // accelerate: num_machines, num_processes
  bool cpu_offload = false;
  bool activation_checkpointing = false;
  std::string output_path;  // Artifact::path; "" = the dialect's usual name
  std::string command;      // join_command(...), for the header (accelerate)
  TemplateSet templates = embedded_templates();
};
// Classic: the eleven keys of the seed dialect, with one kKeyNotRead warning per key that no current tool reads.
Result<Artifact> fsdp_config(const FsdpOptions& options);

// ---- distsetup deepspeed ------------------------------------------------------------------------
struct DeepspeedOptions {
  int zero_stage = 2;
  bool offload_optimizer = false;
  bool offload_param = false;
  int gradient_accumulation_steps = 1;
  double gradient_clipping = 0.3;
  bool fp16 = false;
  bool bf16 = false;
  std::optional<int64_t> micro_batch;  // absent: "auto", which only the Hugging Face integration fills (said as a note)
  std::string output_path;             // "" = ds_config.json
  TemplateSet templates = embedded_templates();
};
Result<Artifact> deepspeed_config(const DeepspeedOptions& options);

}  // namespace distsetup
