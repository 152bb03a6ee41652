// Texts only.
#include "cli/commands/explain_text.h"

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

constexpr Explanation kExplanations[] = {
    {code::kUnreadableFile, "a file cannot be read",
     "A file that was named on the command line, or in a file that was, does not exist or may not be read. Nothing is guessed in its "
     "place. Paths are relative to the folder the command runs in.",
     "distsetup plan rum.yaml", "distsetup plan run.yaml"},
    {code::kSyntax, "the file is not YAML (or JSON)",
     "The text stops being YAML at the place shown. Usual causes: a tab as indentation, a missing space behind a colon, a quote or "
     "bracket that is not closed.",
     "train:\n\tsteps: 100", "train:\n  steps: 100"},
    {code::kDuplicateKey, "a key occurs twice",
     "Two values for one setting: one of them would be ignored in silence, and which one depends on the reader.",
     "train:\n  steps: 100\n  steps: 200", "train:\n  steps: 200"},
    {code::kUnwritableFile, "a file cannot be written",
     "The folder cannot be made, may not be written to, or the disk is full. Files are written whole or not at all: what was there "
     "before is still there. Standard output counts as a file.",
     "distsetup plan --model 7B --output /proc/plan.json", "distsetup plan --model 7B --output plans/7b.json"},
    {code::kUnknownKey, "an unknown key",
     "Every key of a run file is known by name, so that a typing error cannot switch a setting off in silence. `distsetup help keys` "
     "lists them all, `distsetup explain KEY` describes one.",
     "train:\n  learnig_rate: 3e-4", "train:\n  learning_rate: 3e-4"},
    {code::kWrongType, "a value of the wrong type",
     "The setting takes another kind of value: a whole number, a number, a list, a text, true or false.", "train:\n  steps: many",
     "train:\n  steps: 1000"},
    {code::kAmbiguousSpelling, "a spelling that readers take differently",
     "YAML readers turn `no`, `on` and `yes` into booleans, `010` into eight and `1_000` into a thousand, or not, by version. Such "
     "spellings are refused where they are not quoted. 1e-6 is a number here.",
     "train:\n  seed: 010", "train:\n  seed: 10"},
    {code::kUnitMissing, "a quantity without a unit",
     "80 could be bytes, GB or GiB; 4 could be seconds or hours. Quantities carry their unit.", "launch:\n  time_limit: 4",
     "launch:\n  time_limit: 4h"},
    {code::kUnknownUnit, "a unit that is not known here",
     "Sizes: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB. Durations: s, m, h, d, or hours:minutes:seconds. Rates: Gb/s counts bits, GB/s "
     "counts bytes.",
     "launch:\n  time_limit: 4 hrs", "launch:\n  time_limit: 4h"},
    {code::kOutOfRange, "a number out of its range",
     "No run can have this value, such as zero steps or a negative batch. The message names the range.",
     "distsetup plan --model 7B --nodes 0", "distsetup plan --model 7B --nodes 1"},
    {code::kUnknownValue, "not one of the allowed values",
     "The setting takes one of a few words, or one of their known spellings in other tools; letter case does not matter. Nothing "
     "falls "
     "back to a default.",
     "parallel:\n  sharding: zero4", "parallel:\n  sharding: zero3"},
    {code::kMissingKey, "something that has to be given is not there", "There is no safe value to assume. The message names the key.",
     "distsetup plan --nodes 4", "distsetup plan --nodes 4 --model 7B"},
    {code::kConflict, "two settings contradict each other",
     "Both cannot hold, and taking one of them in silence would surprise someone.", "distsetup deepspeed --zero-stage 2 --bf16 --fp16",
     "distsetup deepspeed --zero-stage 2 --bf16"},
    {code::kUnknownVersion, "a run file of another version",
     "`version: 1` is what this program reads. A file of a later version may mean other things by the same words.", "version: 2",
     "version: 1"},
    {code::kUnknownFlag, "an unknown flag",
     "The flag is not one of this command's. '-' and '_' are the same in flags. `distsetup COMMAND --help` lists them.",
     "distsetup plan --modle 7B", "distsetup plan --model 7B"},
    {code::kUnknownCommand, "an unknown command",
     "The first word is the command. `distsetup --help` lists them. A guess is only said, never run.", "distsetup paln --model 7B",
     "distsetup plan --model 7B"},
    {code::kMissingArgument, "a flag without its value, or a command without its argument",
     "The line ends, or the next flag begins, where a value is expected.", "distsetup fsdp --output",
     "distsetup fsdp --output cfg.json"},
    {code::kUnknownModel, "an unknown model",
     "The name is neither a preset, nor a bare size (1B, 7B, 8B, 13B, 70B, 405B), nor a folder with a config.json. A model can also "
     "be "
     "described in the run file: below `model:` num_layers, hidden, num_heads, num_kv_heads, feed_forward and vocabulary; what is "
     "missing is asked for by name.",
     "distsetup plan --model llama3-80b", "distsetup plan --model llama3_70b"},
    {code::kUnknownGpu, "an unknown GPU",
     "The name is not one of presets/gpus. A file of your own, DIR/gpus/NAME.yaml, is found with --presets DIR. It states label, "
     "vendor, "
     "memory, usable_memory, memory_bandwidth, peak_bf16, gemm_efficiency, attention_forward_efficiency, "
     "attention_backward_efficiency, "
     "num_sm, link, pcie_bandwidth, context_memory, source and date; what it lacks is asked for by name. presets/README.md has the "
     "units.",
     "distsetup plan --model 7B --gpu h1000", "distsetup plan --model 7B --gpu h100_sxm"},
    {code::kUnknownMachine, "an unknown machine",
     "The name is neither one of presets/machines nor a file written by `distsetup probe`.", "hardware:\n  machine: dgx_h1000",
     "hardware:\n  machine: dgx_h100"},
    {code::kUnknownTarget, "an unknown output target",
     "`distsetup emit --help` lists the targets; every folder with a target.yaml in --templates DIR is one too.",
     "distsetup emit --target sbatch --model 7B --output out", "distsetup emit --target slurm --model 7B --output out"},
    {code::kUnknownProgram, "an unknown operator program",
     "A unit of the model is described by a program; the name is not one of them.", "", ""},
    {code::kUnsupportedArchitecture, "a model family that is not known here",
     "The model_type of config.json is not one whose parameters can be counted exactly, and a guess would make every number below it "
     "wrong. The message lists the known families.",
     "", ""},
    {code::kGeometryInvalid, "a model that cannot exist", "A size is not positive, or two of them contradict each other.",
     "model:\n  num_heads: 0", "model:\n  num_heads: 32"},
    {code::kIndivisible, "one number does not divide another",
     "Heads are split into groups of KV heads, layers into stages, matrices into shards: such divisions leave no rest. The message "
     "has "
     "both numbers.",
     "model:\n  num_heads: 52\n  num_kv_heads: 8", "model:\n  num_heads: 52\n  num_kv_heads: 13"},
    {code::kLabelOff, "a size label that is off",
     "A model called 1B has another number of parameters, by more than five percent. Memory follows the count, not the label; the "
     "true "
     "count is printed.",
     "", ""},
    {code::kBatchIndivisible, "a batch that does not divide",
     "global batch = micro-batch x gradient accumulation x data-parallel ranks, all whole numbers. The message names the nearest "
     "batches "
     "that work.",
     "distsetup plan --model 7B --nodes 1 --gpus 8 --global-batch 100",
     "distsetup plan --model 7B --nodes 1 --gpus 8 --global-batch 96"},
    {code::kMeshInvalid, "the axes do not make up the machine", "pp x dp_replicate x dp_shard x cp x tp is the number of GPUs.",
     "distsetup plan --model 7B --nodes 1 --gpus 8 --dp-shard 3", "distsetup plan --model 7B --nodes 1 --gpus 8 --dp-shard 4"},
    {code::kUnsupportedFeature, "known, and not supported here yet",
     "The setting is understood, and the trainer named in the message cannot run it. It is refused rather than dropped.", "", ""},
    {code::kNothingFits, "nothing fits",
     "No combination of sharding, micro-batch and recomputation fits into the memory of these GPUs. The plan with the smallest "
     "shortfall "
     "is printed, with changes that would make it fit, cheapest first, each a flag to paste.",
     "", ""},
    {code::kFileExists, "a file is in the way",
     "A file of that name exists and its content differs. It is left alone; the same content is not an error.",
     "distsetup emit --target native --model 7B --output out", "distsetup emit --target native --model 7B --output out --force"},
    {code::kTemplate, "a template is wrong",
     "A placeholder has no value, a value has no placeholder, or target.yaml has a mistake. Files are not emitted with holes.", "",
     ""},
    {code::kKeyNotRead, "a key that today's tools do not read",
     "The dialect has the key, so it is written, and no current release acts on it. --dialect accelerate and --dialect trainer write "
     "what "
     "those tools read.",
     "distsetup fsdp --sharding FULL_SHARD --output cfg.json",
     "distsetup fsdp --sharding FULL_SHARD --dialect accelerate --output cfg.yaml"},
    {code::kNoForm, "a target cannot say what was asked",
     "Every configuration format lacks something: FSDP has no optimizer-only sharding, ZeRO no hybrid mesh. What has no form is "
     "refused, "
     "never dropped; as a note, the message says what the format makes of a setting.",
     "distsetup fsdp --sharding zero1", "distsetup deepspeed --zero-stage 1 --bf16"},
    {code::kSecret, "a secret would be written into a file",
     "Scripts, manifests and site files are read by others and end up in repositories. Text that is assigned to a name like HF_TOKEN, "
     "or "
     "begins as tokens do, is refused. Leave it in the environment of whoever submits, or have a line of --setup read it from a file "
     "of "
     "mode 0600.",
     "distsetup slurm --nodes 1 --gpus 8 --export HF_TOKEN=hf_...",
     "distsetup slurm --nodes 1 --gpus 8 --setup 'export HF_TOKEN=$(cat ~/.hf_token)'"},
    {code::kPlanCorrupt, "not a plan",
     "The file is not a plan.json as `distsetup plan` writes it: not JSON, or keys are missing, unknown or out of range. A plan is "
     "not "
     "edited by hand; change the run and plan again.",
     "", "distsetup plan run.yaml --output plan.json"},
    {code::kPlanVersion, "a plan of another version",
     "plan.json was written by a program with another schema. Plan again with this one.", "",
     "distsetup plan run.yaml --output plan.json"},
    {code::kPlanDigest, "the plan does not compile to its own schedule",
     "The list of instructions that follows from plan.json is not the one it was written with: the file was changed, or the programs "
     "differ. What was previewed would not be what runs.",
     "", "distsetup plan run.yaml --output plan.json"},
    {code::kLaunchRefused, "a launch that is refused",
     "The plan and what was asked for contradict each other, such as a node rank beyond the last node, or the plan does not fit.",
     "distsetup launch --plan plan.json --node-rank 4", "distsetup launch --plan plan.json --node-rank 3"},
    {code::kRankFailed, "a rank failed",
     "One process of the run ended with an error, and the others were stopped. The message names the first one to fail, which is "
     "usually "
     "the cause; its last lines are above.",
     "", ""},
    {code::kEnvironment, "this machine cannot do that now", "A program is missing, a port is taken, a measurement is impossible here.",
     "", ""},
    {code::kPreflight, "the job would not run there",
     "`distsetup launch --check` compared the plan with what this machine or the cluster has: the trainer, GPUs, memory, data and "
     "room for "
     "checkpoints; the partition, its nodes, GPUs and time limit. The message says what was found and what the plan needs. Nothing "
     "was "
     "started or submitted.",
     "distsetup launch --plan plan.json --target slurm --partition gpus",
     "distsetup launch --plan plan.json --target slurm --partition gpu"},
    {code::kData, "the data cannot be used",
     "A file of the plan is missing, changed since the plan was made (size or digest), or too short for one sequence.", "", ""},
    {code::kCheckpoint, "a checkpoint cannot be used",
     "It is incomplete (no COMMIT file), damaged, or belongs to another model. The one before it is tried.", "", ""},
    {code::kCommunication, "ranks lost each other",
     "A peer ended, could not be reached, or did not answer within the collective timeout. The message names the phase.", "", ""},
};

}  // namespace

std::span<const Explanation> explanations() { return kExplanations; }

}  // namespace distsetup
