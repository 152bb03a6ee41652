// The table of job settings: a row here, a member of JobOptions and a field in job_fields.cc make a setting. In the order of a site
// file; rows without a key of site.yaml belong to one job, not to a site, and come last.
#include "codegen/site.h"

namespace distsetup {
namespace {

using Type = JobSettingType;

std::vector<JobSetting> make_settings() {
  using O = JobOptions;
  return {
      {"partition", "partition", {}, Type::kText, &O::partition, {"job.partition"}, "NAME", "partition, or queue of PBS and LSF", {}},
      {"account", "account", {}, Type::kText, &O::account, {"job.account"}, "NAME", "account, or project", {}},
      {"qos", "qos", {}, Type::kText, &O::qos, {"job.qos"}, "NAME", "quality of service", {}},
      {"constraint", "constraint", {}, Type::kText, &O::constraint, {"job.constraint"}, "TEXT", "features of the nodes", {}},
      {"reservation", "reservation", {}, Type::kText, &O::reservation, {"job.reservation"}, "NAME", "reservation", {}},
      {"exclude", "exclude", {}, Type::kText, &O::exclude, {"job.exclude"}, "NODES", "nodes not to use", {}},
      {"exclusive", "exclusive", {}, Type::kSwitch, &O::exclusive, {"job.exclusive"}, "", "whole nodes", {}},
      {"longest_job", "", {}, Type::kDuration, &O::longest_job, {"job.time_limit"}, "TIME", "longest time limit the site allows", {}},
      {"gpus.request",
       "gpu-request",
       {},
       Type::kChoice,
       &O::gpu_request,
       {"job.gres"},
       "WHICH",
       "how GPUs are asked for: gpus-per-node (the default), gres, none",
       {"gpus-per-node", "gres", "none"}},
      {"gpus.type", "gpu-type", {}, Type::kText, &O::gpu_type, {"job.gres"}, "NAME", "the scheduler's name of the GPU, such as h100", {}},
      {"cpus_per_task", "cpus-per-task", {}, Type::kInt, &O::cpus_per_task, {"job.cpus_per_task", "job.cpus_per_node"}, "N",
       "CPU cores per GPU (8)", {}, 1, 4096},
      {"memory_per_gpu", "memory-per-gpu", {"mem-per-gpu"}, Type::kBytes, &O::memory_per_gpu, {"job.memory_gpu"}, "SIZE",
       "host memory per GPU, 32G", {}},
      {"memory_per_node", "memory-per-node", {"mem"}, Type::kBytes, &O::memory_per_node, {"job.memory_node", "job.memory_node_iec"}, "SIZE",
       "host memory per node; 0: all of it", {}},
      {"modules", "modules", {"module"}, Type::kList, &O::modules, {"job.modules"}, "A,B", "environment modules to load", {}},
      {"setup", "setup", {}, Type::kLines, &O::setup, {"job.setup"}, "LINE",
       "a shell line before the run, such as activating an environment", {}},
      {"exports", "export", {"exports"}, Type::kList, &O::exports, {"job.exports"}, "A=1,B=2", "variables to set", {}},
      {"container.runtime",
       "container",
       {},
       Type::kChoice,
       &O::container,
       {"job.container"},
       "WHICH",
       "what runs containers under SLURM: none (the default), pyxis, apptainer",
       {"none", "pyxis", "apptainer"}},
      {"container.image", "image", {}, Type::kText, &O::image, {"job.image"}, "IMAGE", "image of the container", {}},
      {"container.mounts", "mounts", {"mount"}, Type::kList, &O::mounts, {"job.mounts", "job.mounts_text"}, "A:B,C:D",
       "folders of the node in the container", {}},
      {"network.interface", "interface", {}, Type::kText, &O::interface, {"job.exports"}, "NAME",
       "network interface between nodes, such as ib0", {}},
      {"network.ib_hca", "ib-hca", {}, Type::kText, &O::ib_hca, {"job.exports"}, "NAMES", "InfiniBand adapters, such as mlx5_0:1", {}},
      {"scratch", "scratch", {}, Type::kText, &O::scratch, {"job.exports"}, "DIR", "node-local folder for temporary files", {}},
      {"offline", "offline", {}, Type::kSwitch, &O::offline, {"job.exports"}, "", "nodes have no way to the internet", {}},
      {"checkpoint_rate", "checkpoint-rate", {}, Type::kRate, &O::checkpoint_rate, {"job.signal"}, "RATE",
       "what one node writes checkpoints with (1GB/s): how early a job is warned follows from it", {}},
      {"health_gate", "health-gate", {}, Type::kSwitch, &O::health_gate, {"job.health_gate"}, "",
       "look at every node before the step starts", {}},
      {"hosts", "hosts", {}, Type::kList, &O::hosts, {"job.hosts"}, "A,B", "machines, the first is where rank 0 runs", {}},
      {"ssh.options", "ssh-options", {}, Type::kWords, &O::ssh_options, {"job.ssh_options"}, "WORDS", "options for ssh", {}},
      {"mpi.options", "mpi-options", {}, Type::kWords, &O::mpi_options, {"job.mpi_options"}, "WORDS", "options for mpirun", {}},
      {"kubernetes.namespace", "namespace", {}, Type::kText, &O::name_space, {"job.namespace"}, "NAME", "namespace", {}},
      {"kubernetes.queue", "queue", {}, Type::kText, &O::queue, {"job.queue"}, "NAME", "queue of Kueue", {}},
      {"kubernetes.service_account", "service-account", {}, Type::kText, &O::service_account, {"job.service_account"}, "NAME",
       "service account of the pods", {}},
      {"kubernetes.volume_claim", "volume-claim", {}, Type::kText, &O::volume_claim, {"job.volume_claim"}, "NAME",
       "claim of the volume for checkpoints, mounted at /workspace", {}},
      {"kubernetes.rdma_resource", "rdma-resource", {}, Type::kText, &O::rdma_resource, {"job.rdma_resource"}, "NAME",
       "resource of the network adapters, such as rdma/hca", {}},

      {"", "job-name", {}, Type::kText, &O::job_name, {"job.name", "job.dns_name"}, "NAME", "name of the job (llm_finetune)", {}},
      {"", "shape", {}, Type::kChoice, &O::shape, {"job.shape"}, "WHICH", "a task per rank (rank, the default) or per node (torchrun)",
       {"rank", "torchrun"}},
      {"", "dependency", {}, Type::kText, &O::dependency, {"job.dependency"}, "TEXT", "afterok:123 and the like", {}},
      {"", "array", {}, Type::kText, &O::array, {"job.array"}, "TEXT", "job array; 0-9%1 is a chain of runs", {}},
      {"", "mail-user", {}, Type::kText, &O::mail_user, {"job.mail_user"}, "ADDRESS", "who is told when the job ends", {}},
      {"", "output-log", {"log"}, Type::kText, &O::output_log, {"job.output"}, "PATH", "standard output of the job (slurm-%j.out)", {}},
      {"", "error-log", {}, Type::kText, &O::error_log, {"job.error"}, "PATH", "standard error of the job (beside the output)", {}},
      {"", "requeue", {}, Type::kSwitch, &O::requeue, {"job.requeue"}, "",
       "save and queue again when the time limit comes near, or a rank fails", {}},
      {"", "signal-lead", {}, Type::kInt, &O::signal_lead_s, {"job.signal"}, "SECONDS",
       "how long before the time limit the trainer is told to save (from the plan: two steps and two checkpoints)", {}, 0, 86400},
      {"", "max-restarts", {}, Type::kInt, &O::max_restarts, {"job.max_restarts"}, "N", "with --requeue: how often (10)", {}, 0, 1000000},
      {"", "max-failures", {}, Type::kInt, &O::max_failures, {"job.max_failures"}, "N",
       "with --requeue: failures in a row without a new checkpoint that end it (2)", {}, 1, 1000},
      {"", "cpu-only", {}, Type::kSwitch, &O::cpu_only, {"job.gpus_per_node"}, "", "request no GPU", {}},
      {"", "master-addr", {"master-address"}, Type::kText, &O::master_address, {"job.master_address"}, "HOST", "host of node 0", {}},
      {"", "master-port", {}, Type::kInt, &O::master_port, {"job.master_port"}, "PORT", "port on node 0 (29500)", {}, 1, 65535},
      {"", "node-rank", {}, Type::kInt, &O::node_rank, {"job.node_rank"}, "K",
       "which node the script is for (from the environment)", {}, 0, 1000000},
  };
}

}  // namespace

std::span<const JobSetting> job_settings() {
  static const std::vector<JobSetting> settings = make_settings();
  return settings;
}

std::vector<const JobSetting*> site_keys() {
  std::vector<const JobSetting*> keys;
  for (const JobSetting& setting : job_settings()) {
    if (!setting.site.empty()) keys.push_back(&setting);
  }
  return keys;
}

}  // namespace distsetup
