#!/usr/bin/env bash
# Every launcher target with stand-ins for the launchers, which run what they are given as these would: the words of a command of one's
# own arrive byte by byte through each of them, every node and rank gets a number of its own, and no script holds what it must not.
# DISTSETUP_SEED repeats the words of a run.
set -euo pipefail
export LC_ALL=C.UTF-8 # what ${words@Q} looks like depends on it
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'emit_launchers: %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }

seed=${DISTSETUP_SEED:-$RANDOM}
RANDOM=$seed
# shellcheck disable=SC1003,SC2016 # to arrive as they are
pieces=(' ' "'" '"' '$' '`' '\' $'\n' $'\t' '!' '*' '?' '~' '#' '&' ';' '|' '<' '>' '(' ')' '{' '}' '[' ']' '=' '%' '^' '-' '$HOME' '$(id)'
  '${x}' '`id`' 'a' 'Z' '0' 'é' '日本' '🙂' $'\x01' $'\x7f' '{{x}}' '\n' "\$'")
words=()
for _ in {1..40}; do
  word=
  for ((n = RANDOM % 8; n > 0; --n)); do word+=${pieces[RANDOM % ${#pieces[@]}]}; done
  words+=("$word")
done

tools="$work/the tools"
mkdir "$tools"
# Writes down the node or rank it is, then its words.
cat >"$tools/record" <<SH
#!/bin/bash
line=\$(printf 'node %s rank %s of %s:' "\${PET_NODE_RANK:-\${NODE:-none}}" "\${RANK:-none}" "\${WORLD_SIZE:-none}"; printf ' [%s]' "\${@@Q}")
printf '%s\n' "\$line" >>'$work/records' # in one write: nodes run at once
SH
# exec_from WORD: a launcher that runs what begins with that word
exec_from() { # shellcheck disable=SC2016
  printf '#!/bin/bash\nfor a in "$@"; do case $a in --node_rank=*) NODE=${a#*=} ;; esac; done\nexport NODE\nwhile [[ $1 != %s ]]; do shift; done\n%s\n' "$1" "$2"
}
# shellcheck disable=SC2016
{
  exec_from '@(record|--no_python)' '[[ $1 == --no_python ]] && shift; exec "$@"' | sed '1a shopt -s extglob' >"$tools/torchrun"
  exec_from record 'exec "$@"' >"$tools/accelerate"
  exec_from bash 'if [[ $* == *" NODE_RANK="* ]]; then last=1; else last=3; fi
for ((r = 0; r <= last; ++r)); do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_LOCAL_RANK=$((r % 2)) OMPI_COMM_WORLD_SIZE=4 "$@" || exit; done' >"$tools/mpirun"
  exec_from bash 'for n in 0 1; do PMI_RANK=$n "$@" || exit; done' >"$tools/mpiexec"
  exec_from bash 'if [[ $* == *NODE_RANK=* ]]; then last=1; else last=3; fi
for ((n = 0; n <= last; ++n)); do SLURM_NODEID=$n SLURM_PROCID=$n SLURM_LOCALID=$((n % 2)) SLURM_NTASKS=4 "$@" || exit; done' >"$tools/srun"
  printf '#!/bin/bash\nexec sh -c "${@: -1}"\n' >"$tools/ssh"
  printf '#!/bin/bash\nshift 2\nexec "$@"\n' >"$tools/blaunch"
  printf '#!/bin/bash\nwhile [[ $1 != *.sif ]]; do shift; done\nshift\nexec "$@"\n' >"$tools/apptainer"
  printf '#!/bin/bash\nif [[ $2 == hostnames ]]; then echo node7; fi\n' >"$tools/scontrol"
}
chmod +x "$tools"/*
export PATH="$tools:/usr/bin:/bin"

plan=(--model llama3.2_1b --sharding zero3 --dp-replicate 1 --gpus 2)
emitted() { # NAME FLAGS...
  "$distsetup" emit --output "$work/$1" "${@:2}" >/dev/null 2>"$work/said" || fail "emit $*" "$(cat "$work/said")"
}
# recorded NAME LINE...: exactly these, each with the words
recorded() {
  local name=$1 expected line
  shift
  expected=$(for line in "$@"; do printf '%s:' "$line"; printf ' [%s]' "${words[@]@Q}"; echo; done)
  is "$name (DISTSETUP_SEED=$seed)" "$(sort "$work/records")" "$expected"
  rm "$work/records"
}
own=(-- record "${words[@]}")

emitted torchrun --target torchrun "${plan[@]}" --nodes 1 "${own[@]}"
(cd / && "$work/torchrun/launch.sh")
recorded torchrun 'node none rank none of none'
emitted torchrun2 --target torchrun "${plan[@]}" --nodes 2 "${own[@]}"
for rank in 0 1; do NODE_RANK=$rank MASTER_ADDR=h "$work/torchrun2/launch.sh"; done
recorded "torchrun, two nodes" 'node 0 rank none of none' 'node 1 rank none of none'
emitted mpirun --target mpirun "${plan[@]}" --nodes 2 --hosts a,b "${own[@]}"
"$work/mpirun/launch.sh"
recorded mpirun 'node none rank 0 of 4' 'node none rank 1 of 4' 'node none rank 2 of 4' 'node none rank 3 of 4'
emitted ssh --target ssh "${plan[@]}" --nodes 2 --hosts a,b --export "QUOTED=${words[0]}'x" "${own[@]}"
"$work/ssh/launch.sh"
recorded ssh 'node 0 rank none of none' 'node 1 rank none of none'
emitted pbs --target pbs "${plan[@]}" --nodes 2 "${own[@]}"
printf '%s\n' a a b b >"$work/nodes"
PBS_O_WORKDIR="$work/pbs" PBS_NODEFILE="$work/nodes" PBS_JOBID=12.server bash "$work/pbs/job.pbs"
recorded pbs 'node 0 rank none of none' 'node 1 rank none of none'
emitted lsf --target lsf "${plan[@]}" --nodes 2 "${own[@]}"
LS_SUBCWD="$work/lsf" LSB_MCPU_HOSTS='batch 1 a 2 b 2' LSB_JOBID=12 bash "$work/lsf/job.lsf"
recorded lsf 'node 0 rank none of none' 'node 1 rank none of none'
for shape in rank torchrun; do
  for container in none apptainer; do
    image=()
    [[ $container == none ]] || image=(--image '/a b/x.sif')
    emitted "slurm $shape $container" --target slurm "${plan[@]}" --nodes 2 --shape $shape --container $container "${image[@]}" "${own[@]}"
    SLURM_JOB_ID=5 SLURM_JOB_NODELIST=x bash "$work/slurm $shape $container/job.sbatch"
    if [[ $shape == rank ]]; then
      recorded "slurm $shape $container" 'node none rank 0 of 4' 'node none rank 1 of 4' 'node none rank 2 of 4' 'node none rank 3 of 4'
    else
      recorded "slurm $shape $container" 'node 0 rank none of none' 'node 1 rank none of none'
    fi
  done
done
emitted skypilot --target skypilot "${plan[@]}" --nodes 2 "${own[@]}"
sed -n '/^run: |/,$ { /^run: |/d; s/^  //; p }' "$work/skypilot/task.yaml" >"$work/task.sh"
SKYPILOT_NODE_IPS=$'a\nb' SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_NODES=2 SKYPILOT_NUM_GPUS_PER_NODE=2 bash "$work/task.sh"
recorded skypilot 'node 1 rank none of none'

# A trainer by way of each: its launch.sh runs once per node, with the node's number and the address of the first.
two=('node 0 rank none of none' 'node 1 rank none of none')
for container in none apptainer; do
  image=()
  [[ $container == none ]] || image=(--image '/a b/x.sif')
  emitted "via slurm" --force --target deepspeed --via slurm "${plan[@]}" --nodes 2 --requeue --container $container "${image[@]}" "${own[@]}"
  (cd "$work/via slurm" && SLURM_JOB_ID=5 SLURM_JOB_NODELIST=x bash job.sbatch)
  recorded "a trainer by slurm, container $container" "${two[@]}"
done
emitted "via ssh" --target deepspeed --via ssh "${plan[@]}" --nodes 2 --hosts a,b "${own[@]}"
(cd / && "$work/via ssh/start_all.sh")
recorded "a trainer by ssh" "${two[@]}"
emitted "via mpirun" --target deepspeed --via mpirun "${plan[@]}" --nodes 2 --hosts a,b "${own[@]}"
(cd / && "$work/via mpirun/start_all.sh")
recorded "a trainer by mpirun" "${two[@]}"
emitted "via pbs" --target deepspeed --via pbs "${plan[@]}" --nodes 2 "${own[@]}"
PBS_O_WORKDIR=/ FOLDER="$work/via pbs" PBS_NODEFILE="$work/nodes" PBS_JOBID=12.server bash "$work/via pbs/job.pbs"
recorded "a trainer by pbs, from another folder" "${two[@]}"
emitted "via lsf" --target deepspeed --via lsf "${plan[@]}" --nodes 2 "${own[@]}"
LS_SUBCWD=/ FOLDER="$work/via lsf" LSB_MCPU_HOSTS='batch 1 a 2 b 2' LSB_JOBID=12 bash "$work/via lsf/job.lsf"
recorded "a trainer by lsf, from another folder" "${two[@]}"
emitted "via skypilot" --target deepspeed --via skypilot "${plan[@]}" --nodes 2 "${own[@]}"
sed -n '/^run: |/,$ { /^run: |/d; s/^  //; p }' "$work/via skypilot/task.yaml" >"$work/task.sh"
FOLDER="$work/via skypilot" SKYPILOT_NODE_IPS=$'a\nb' SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_NODES=2 SKYPILOT_NUM_GPUS_PER_NODE=2 bash "$work/task.sh"
recorded "a trainer by skypilot" 'node 1 rank none of none'
# A trainer in pods: its files out of the ConfigMap, then the container's command, with the folders of a pod in a folder of ours.
in_pods() { # KIND VARIABLES...: as the kind's controller sets them, %s for the node's number
  local kind=$1 node pod="$work/pod-$1"
  emitted "via $kind" --target deepspeed --via "$kind" "${plan[@]}" --nodes 2 --image x:1 --volume-claim data "${own[@]}"
  mkdir -p "$pod/etc" "$pod/workspace"
  awk -v into="$pod/etc/" '/^data:/ { data = 1; next } /^[^ ]/ { data = 0 }
    data && /^  [^ ]+: [|]/ { file = $1; sub(/:$/, "", file); next } data { sub(/^    /, ""); print > (into file) }' "$work/via $kind"/*.yaml
  awk '/^ *- [|]$/ && !seen { inside = seen = 1; next } /^ *resources/ { inside = 0 } inside { sub(/^ +/, ""); print }' "$work/via $kind"/*.yaml |
    sed "s|/etc/distsetup|$pod/etc|g; s|/workspace|$pod/workspace|g" >"$pod/command.sh"
  for node in 0 1; do
    # shellcheck disable=SC2046,SC2059 # words, and formats
    env HOSTNAME="pod$node" $(printf "${*:2}" "$node") bash "$pod/command.sh"
  done
  recorded "a trainer by $kind" "${two[@]}"
}
in_pods kubernetes JOB_COMPLETION_INDEX=%s
in_pods kubernetes-jobset JOB_COMPLETION_INDEX=%s
in_pods kubernetes-pytorchjob RANK=%s MASTER_ADDR=h MASTER_PORT=29500
in_pods kubernetes-trainjob PET_NODE_RANK=%s PET_MASTER_ADDR=h PET_MASTER_PORT=29500
launcher() { "$distsetup" launcher "${plan[@]}" --output "$work/launcher/" --force "$@" >/dev/null 2>"$work/said" || fail "launcher $*" "$(cat "$work/said")"; }
launcher --nodes 2 "${own[@]}"
for rank in 0 1; do NODE_RANK=$rank MASTER_ADDR=h "$work/launcher/run_training.sh"; done
recorded launcher 'node 0 rank none of none' 'node 1 rank none of none'
launcher --nodes 1 --recompute full --use-fsdp "${own[@]}"
"$work/launcher/run_training.sh"
recorded "launcher with accelerate" 'node none rank none of none'
launcher --nodes 1 --recompute full --use-deepspeed "${own[@]}"
"$work/launcher/run_training.sh"
words+=(--deepspeed "$work/launcher/ds_config.json")
recorded "launcher with DeepSpeed" 'node none rank none of none'

# Regressions 8, 15, 48: nothing emitted renumbers devices, serialises streams, or holds debugging switches or secrets.
for target in native torchrun mpirun ssh slurm pbs lsf skypilot kubernetes kubernetes-jobset kubernetes-pytorchjob kubernetes-trainjob docker-compose launcher; do
  nodes=2 image=()
  case $target in docker-compose) nodes=1 image=(--image x:1) ;; kubernetes*) image=(--image x:1) ;; esac
  HF_TOKEN=hf_secretsecretsecret1 WANDB_API_KEY=secret emitted "all/$target" --target $target "${plan[@]}" --nodes $nodes "${image[@]}"
done
if grep -rnE 'CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS|NCCL_[A-Z]|HF_TOKEN|WANDB|hf_secret' "$work/all"; then fail "the lines above do not belong into emitted files"; fi
# Nothing of a site's own.
if grep -rnE 'partition=|account=|-q |-A |-P |module load|conda' "$work"/all/*/*.{sh,sbatch,pbs,lsf}; then fail "the lines above are a site's"; fi
echo "words and numbers as given through every launcher"
