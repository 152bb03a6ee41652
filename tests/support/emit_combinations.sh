# shellcheck shell=bash
# Sourced by the tests of emitted scripts: emits every target with many combinations of options, a folder each. Reads `distsetup`.
# shellcheck disable=SC2016,SC2154

emit_combinations() {  # FOLDER
  local folder=$1 target options name use number=0 model=(--model llama3.2_1b)
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
  for target in accelerate-deepspeed accelerate-fsdp1 accelerate-fsdp2 automodel axolotl deepspeed-hf lightning llamafactory \
    megatron-bridge megatron-lm openrlhf torchtitan torchtitan-0.2 training-stages transformers trl; do
    for options in "--nodes 1" "--nodes 4"; do
      # shellcheck disable=SC2086 # a list of words
      emitted "$folder/$((number += 1)) $target" emit --target "$target" --model llama3_8b --recompute full --sharding zero3 \
        --dp-replicate 1 --reshard-after-forward --gpus 8 $options
    done
  done
  emitted "$folder/llama-stack" emit --target llama-stack "${model[@]}" --method dpo --recompute full --sharding zero3 --dp-replicate 1 \
    --reshard-after-forward --nodes 1 --gpus 8
  emitted "$folder/llama-stack-inline" emit --target llama-stack-inline "${model[@]}" --method dpo --nodes 1 --gpus 1
  for options in "--nodes 1 --trainer deepspeed" "--nodes 4 --trainer fsdp1"; do
    # shellcheck disable=SC2086 # a list of words
    emitted "$folder/$((number += 1)) fine-tuning" emit --target fine-tuning "${model[@]}" --method sft --gpus 8 $options
  done
  emitted "$folder/fsdp 1" emit --target fsdp --fsdp-version 1 "${model[@]}" --recompute none --sharding zero2 --dp-replicate 1 \
    --nodes 1 --gpus 8
  emitted "$folder/fsdp ddp" emit --target fsdp "${model[@]}" --recompute none --sharding ddp --nodes 2 --gpus 8
  emitted "$folder/slurm with all" emit --target slurm "${model[@]}" --nodes 2 --gpus 8 --job-name 'a "b" $(id)' --partition gpu \
    --account 'x y' --qos high --constraint 'a100&ib' --exclude 'n[1-3]' --dependency afterok:1 --memory-per-gpu 32G \
    --cpus-per-task 12 --exclusive --requeue --modules 'cuda/12.2,gcc' --export "A=it's,B=\$HOME" --setup 'source ~/env/bin/activate' \
    --output-log 'my logs/%x-%j.out' --time-limit 4h
  local own=(-- train.py 'a b' "it's" '$HOME' $'two\nlines') more
  for target in torchrun mpirun ssh pbs lsf; do
    for options in "--nodes 1 --gpus 8" "--nodes 4 --gpus 8" "--nodes 2 --gpus 2 --gpu cpu"; do
      more=(--sharding zero3 --dp-replicate 1 --modules 'cuda/12.2' --export "A=it's" --setup 'source ~/env/bin/activate')
      # shellcheck disable=SC2086 # a list of words
      emitted "$folder/$((number += 1)) $target" emit --target "$target" "${model[@]}" --sharding zero3 --dp-replicate 1 $options
      # shellcheck disable=SC2086
      emitted "$folder/$((number += 1)) $target own" emit --target "$target" "${model[@]}" "${more[@]}" $options "${own[@]}"
    done
  done
  emitted "$folder/mpirun hosts" emit --target mpirun "${model[@]}" --nodes 2 --gpus 8 --hosts a,b --mpi-options='--mca x y'
  emitted "$folder/ssh hosts" emit --target ssh "${model[@]}" --nodes 2 --gpus 8 --hosts a,b --ssh-options='-p 2222'
  for options in "--shape torchrun" "--shape torchrun --requeue" "--container pyxis --image r#i:1 --mounts /a:/b" "--health-gate" \
    "--container apptainer --image /i.sif --mounts /a:/b --shape torchrun" "--gpu-request gres --gpu-type h100" "--gpu-request none"; do
    # shellcheck disable=SC2086
    emitted "$folder/$((number += 1)) slurm" emit --target slurm "${model[@]}" --nodes 2 --gpus 8 $options
    # shellcheck disable=SC2086
    emitted "$folder/$((number += 1)) slurm own" emit --target slurm "${model[@]}" --nodes 2 --gpus 8 $options --requeue --health-gate "${own[@]}"
  done
  for options in "--nodes 1 --gpus 1" "--nodes 1 --gpus 8" "--nodes 4 --gpus 8 --node-rank 2 --master-addr h"; do
    for use in '' --use-deepspeed --use-fsdp; do
      # shellcheck disable=SC2086
      "$distsetup" launcher "${model[@]}" --sharding zero3 --dp-replicate 1 --recompute full $options $use \
        --output "$folder/$((number += 1)) launcher/" "${own[@]}" >/dev/null 2>&1
    done
    # shellcheck disable=SC2086
    "$distsetup" launcher "${model[@]}" $options --output "$folder/$((number += 1)) launcher/" >/dev/null 2>&1
  done
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
  "$distsetup" "$1" --output "$folder" "${@:2}" >/dev/null 2>"$folder.log" || code=$?
  if ((code != 0 && code != 4)); then
    echo "distsetup $* failed with $code:" >&2
    cat "$folder.log" >&2
    exit 1
  fi
}
