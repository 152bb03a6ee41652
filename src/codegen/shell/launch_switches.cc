// Sources: torch 2.9 torch/distributed/run.py, DeepSpeed 0.19.8 deepspeed/launcher/runner.py, accelerate 1.15.0 commands/launch.py,
// SLURM 22.05 srun(1).
#include "codegen/shell/launch_switches.h"

namespace distsetup::foreign {
namespace {

const SwitchNames kSrunSwitches = {"exclusive",
                                   "label",
                                   "l",
                                   "overlap",
                                   "exact",
                                   "unbuffered",
                                   "u",
                                   "multi_prog",
                                   "pty",
                                   "quiet",
                                   "Q",
                                   "verbose",
                                   "v",
                                   "no_kill",
                                   "k",
                                   "E",
                                   "preserve_env",
                                   "oversubscribe",
                                   "s",
                                   "no_container_mount_home",
                                   "container_mount_home",
                                   "container_writable",
                                   "container_remap_root",
                                   "X",
                                   "disable_status",
                                   "contiguous",
                                   "spread_job",
                                   "reboot",
                                   "kill_on_bad_exit",
                                   "K",
                                   "Z",
                                   "no_allocate",
                                   "O",
                                   "overcommit"};
const SwitchNames kTorchrunSwitches = {"standalone", "no_python",          "run_path", "m",
                                       "module",     "virtual_local_rank", "use_env"};  // the last of torch.distributed.launch
const SwitchNames kDeepspeedSwitches = {"module",      "no_python",          "no_local_rank",    "no_ssh",  "no_ssh_check",
                                        "force_multi", "bind_cores_to_rank", "elastic_training", "save_pid"};
const SwitchNames kAccelerateSwitches = {"cpu",
                                         "multi_gpu",
                                         "tpu",
                                         "use_deepspeed",
                                         "use_fsdp",
                                         "use_megatron_lm",
                                         "use_parallelism_config",
                                         "use_xpu",
                                         "module",
                                         "m",
                                         "no_python",
                                         "quiet",
                                         "q",
                                         "debug",
                                         "same_network",
                                         "enable_cpu_affinity",
                                         "mps",
                                         "ipex",
                                         "dynamo_use_fullgraph",
                                         "dynamo_use_dynamic",
                                         "no_tpu_cluster",
                                         "tpu_cluster"};
// Open MPI's, and those of the mpiexec of MPICH and of HPE's PALS.
const SwitchNames kMpirunSwitches = {"allow_run_as_root",
                                     "oversubscribe",
                                     "tag_output",
                                     "report_bindings",
                                     "verbose",
                                     "v",
                                     "quiet",
                                     "display_map",
                                     "l",
                                     "prepend_rank",
                                     "label",
                                     "line_buffer",
                                     "genvall",
                                     "exclusive",
                                     "no_abort_on_failure"};

}  // namespace

const SwitchNames* switches_of(LaunchProgram program) {
  switch (program) {
    case LaunchProgram::kSrun: return &kSrunSwitches;
    case LaunchProgram::kTorchrun: return &kTorchrunSwitches;
    case LaunchProgram::kDeepspeed: return &kDeepspeedSwitches;
    case LaunchProgram::kAccelerate: return &kAccelerateSwitches;
    case LaunchProgram::kMpirun: return &kMpirunSwitches;
    default: return nullptr;
  }
}

}  // namespace distsetup::foreign
