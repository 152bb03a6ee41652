#!/bin/bash
# distsetup 0.1.0, inputs f76084b184210925981ea21e5475da80f28ccf9a4d87b9612621e0b5e66e02e6
# command: distsetup slurm --num_nodes 4 --num_gpus_per_node 8 --time_limit 48:00:00 --job_name llm --partition gpu --memory_per_gpu 32G --output_log slurm-%j.out --account proj --qos high --constraint h100
# 4 nodes × 8 GPUs = 32 ranks
#
# One task per GPU; each reads its rank inside the task.
# distsetup-train is found through $DISTSETUP_TRAIN or on PATH.
#SBATCH --job-name=llm
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --mem-per-gpu=32G
#SBATCH --time=48:00:00
#SBATCH --partition=gpu
#SBATCH --account=proj
#SBATCH --qos=high
#SBATCH --constraint=h100
#SBATCH --output=slurm-%j.out
#SBATCH --error=slurm-%j.err
#SBATCH --no-requeue
#SBATCH --signal=USR1@120

set -euo pipefail

PLAN=${PLAN:-plan.json}
if [[ ! -f $PLAN ]]; then
  echo "job.sbatch: no plan at '$PLAN': make one with 'distsetup plan --output plan.json', or set PLAN=/path/to/plan.json" >&2
  exit 3
fi
trainer=${DISTSETUP_TRAIN:-$(command -v distsetup-train || true)}
if [[ -z $trainer ]]; then
  echo "job.sbatch: distsetup-train not found: put it on PATH, or set DISTSETUP_TRAIN=/path/to/distsetup-train" >&2
  exit 5
fi

# Left-overs of an interactive shell would win over SLURM's own numbers.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK
# Rendezvous on the first host of the job's own list, at a port of its own, so that two jobs on a node do not meet.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
# srun does not take --cpus-per-task over from sbatch (SLURM 22.05 and later).
export SRUN_CPUS_PER_TASK=8
cores=8
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cores}"

command=("$trainer" --plan "$PLAN")
step=(srun --kill-on-bad-exit=1)
step+=("${command[@]}")

# Nodes that went away take the step with them, and SLURM may say so after the ranks.
say_why() {
  echo "job.sbatch: the step ended with $1 on $SLURM_JOB_NODELIST" >&2
  sinfo --noheader --Node --nodes="$SLURM_JOB_NODELIST" --format='%N is %T' 2>/dev/null | sort -u |
    grep -E ' is (down|fail|drain|.*\*)' | sed 's/^/job.sbatch: node /' >&2 || true
}
status=0
"${step[@]}" || status=$?
if ((status != 0)); then say_why "$status"; fi
exit "$status"
