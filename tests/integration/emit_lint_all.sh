#!/usr/bin/env bash
# Every emitted script passes shellcheck and shfmt, for many combinations of options, and what is emitted together passes lint.
set -euo pipefail
for tool in shellcheck shfmt; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed"; exit 77; }
done
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/emit_combinations.sh
. "${DISTSETUP_SOURCE:?}/tests/support/emit_combinations.sh"
emit_combinations "$work"

# Lint finds nothing but notes in files that are started together. ORL003 is left out: --backend fsdp2, which openrlhf-flags writes for a
# branch of OpenRLHF, is in no release.
lint() {  # FOLDER WHAT
  local files found
  mapfile -d '' -t files < <(find "$1" -type f ! -name plan.json ! -name '*.py' -print0)
  found=$("$distsetup" lint "${files[@]}" 2>&1 | grep -E '(error|warning)\[' | grep -v '\[ORL003\]') || return 0
  printf '%s: %s\n' "$2" "$found" >&2
  exit 1
}

# Every trainer by way of every scheduler and launcher. What differs in nothing but its comments is checked once.
templates=${DISTSETUP_SOURCE:?}/templates
# shellcheck disable=SC2207 # names without spaces
trainers=($(grep -l '^node_script:' "$templates"/*/target.yaml | xargs -n 1 dirname | xargs -n 1 basename))
# shellcheck disable=SC2207
starters=($(grep -l 'job.node_script' "$templates"/*/target.yaml | xargs -n 1 dirname | xargs -n 1 basename))
declare -A seen=()
pairs=0
for trainer in "${trainers[@]}"; do
  for nodes in 1 4; do
    plan=$work/plan.$trainer.$nodes.json method=pretrain
    case $trainer in automodel | axolotl | fine-tuning | openrlhf* | training-stages | trl) method=sft ;; esac
    "$distsetup" plan --launch-target "$trainer" --model llama3_8b --method $method --gpus 8 --nodes $nodes --output "$plan" >/dev/null 2>&1
    for via in "${starters[@]}"; do
      if [[ $via == docker-compose ]] && ((nodes > 1)); then continue; fi
      more=(--image registry/name:1)
      case $via in slurm) more=(--container pyxis --image r#i:1 --requeue) ;; pbs | lsf | skypilot | ssh | mpirun) more=() ;; esac
      emitted "$work/pair" emit --force --target "$trainer" --via "$via" --plan "$plan" "${more[@]}" -- train.py 'a b'
      lint "$work/pair" "$trainer --via $via --nodes $nodes"
      pairs=$((pairs + 1))
      for script in "$work"/pair/*.{sh,sbatch,pbs,lsf}; do
        [[ -f $script ]] || continue
        digest=$(sed '/^#[^!S]/d' "$script" | sha256sum)
        [[ -z ${seen[$digest]:-} ]] || continue
        seen[$digest]=yes
        cp "$script" "$work/distinct ${#seen[@]} ${script##*/}"
      done
      rm -r "$work/pair"
    done
  done
done
# A training script of one's own. Job, JobSet and PyTorchJob are left out: they start torchrun without a shell that could count cores.
for target in torchrun mpirun slurm pbs lsf ssh skypilot kubernetes-trainjob; do
  for nodes in 1 2; do
    more=()
    if [[ $target == kubernetes* ]]; then more=(--image registry/name:1); fi
    emitted "$work/pair" emit --target "$target" --model llama3.2_1b --sharding zero3 --nodes $nodes --gpus 8 "${more[@]}" -- train.py
    lint "$work/pair" "$target --nodes $nodes, its own script"
    rm -r "$work/pair"
  done
done
((pairs >= 380)) || { echo "only $pairs pairs were emitted" >&2; exit 1; }

scripts=0
while IFS= read -r -d '' script; do
  # SC1090, SC1091: files that --setup sources are on the cluster. SC2016: --export writes $HOME as it was given, on purpose.
  shellcheck --shell=bash --exclude=SC1090,SC1091,SC2016 "$script"
  shfmt -d -i 2 -ci -ln bash "$script"
  scripts=$((scripts + 1))
done < <(find "$work" -type f \( -name '*.sh' -o -name '*.sbatch' -o -name '*.pbs' -o -name '*.lsf' \) -print0)
echo "$scripts scripts checked, $pairs pairs"
((scripts >= 90))
