# shellcheck shell=bash
# Sourced by the tests of emitted scripts: emits every target with many combinations of options, a folder each. Reads `distsetup`.
# shellcheck disable=SC2016,SC2154

emit_combinations() {  # FOLDER
  local folder=$1 target options name number=0 model=(--model llama3.2_1b)
  local hardware=("--nodes 1 --gpus 8" "--nodes 4 --gpus 8" "--nodes 2 --gpus 2 --gpu cpu" "--nodes 1 --gpus 1")
  for options in "${hardware[@]}"; do
    for target in native deepspeed fsdp slurm; do
      # accelerate shards nothing on CPU; that refusal is tested by itself
      if [[ $target == fsdp && $options == *cpu* ]]; then continue; fi
      # shellcheck disable=SC2086 # a list of words
      emitted "$folder/$((number += 1)) $target" emit --target "$target" "${model[@]}" --recompute full --sharding zero3 \
        --dp-replicate 1 $options
    done
  done
  emitted "$folder/fsdp 1" emit --target fsdp --fsdp-version 1 "${model[@]}" --recompute none --sharding zero2 --dp-replicate 1 \
    --nodes 1 --gpus 8
  emitted "$folder/fsdp ddp" emit --target fsdp "${model[@]}" --recompute none --sharding ddp --nodes 2 --gpus 8
  emitted "$folder/slurm with all" emit --target slurm "${model[@]}" --nodes 2 --gpus 8 --job-name 'a "b" $(id)' --partition gpu \
    --account 'x y' --qos high --constraint 'a100&ib' --exclude 'n[1-3]' --dependency afterok:1 --memory-per-gpu 32G \
    --cpus-per-task 12 --exclusive --requeue --modules 'cuda/12.2,gcc' --export "A=it's,B=\$HOME" --setup 'source ~/env/bin/activate' \
    --output-log 'my logs/%x-%j.out' --time-limit 4h
  local combinations=("" "--requeue" "--output-log logs/%j.out" "--requeue --output-log logs/%j.out" "--cpu-only"
    "--exclusive --time-limit 48:00:00" "--signal-lead 0" "--memory-per-node 0" "--modules cuda/12.2" "--array 0-3%1")
  for options in "${combinations[@]}"; do
    name="$folder/slurm $((number += 1))"
    mkdir -p "$name"
    # shellcheck disable=SC2086 # a list of words
    "$distsetup" slurm --nodes 4 --gpus 8 $options >"$name/job.sbatch" 2>/dev/null
  done
}

# One emit; `tight` and `does_not_fit` plans are written too (exit 4), anything else is a failure of the test.
emitted() {  # FOLDER ARGUMENT...
  local folder=$1 code=0
  shift
  mkdir -p "$(dirname "$folder")"
  "$distsetup" "$@" --output "$folder" >/dev/null 2>"$folder.log" || code=$?
  if ((code != 0 && code != 4)); then
    echo "distsetup $* failed with $code:" >&2
    cat "$folder.log" >&2
    exit 1
  fi
}
