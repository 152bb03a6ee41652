#!/usr/bin/env bash
# A plan for a GPU on a machine that cannot run it: one line that says what is missing, exit 5, nothing trained, whether the plugin is
# absent, broken or without the libraries it loads. What the plugin does once it is loaded: cuda_load_all.sh.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
trainer=$DISTSETUP_BIN/distsetup-train
make_data
cd "$work"
run "plan" 0 "$distsetup" plan --model quickstart --gpu h100_sxm --gpus 1 --nodes 1 --precision bf16 --sequence-length 64 --global-batch 8 --steps 5 \
  --data data --output plan.json

refused() { # NAME TEXT COMMAND...
  run "$1" 5 "${@:3}"
  has "$1" "$said" "rank 0 on $host, device, the plan is for 'h100_sxm': $2"
  has "$1" "$said" "plan with --gpu cpu"
  is "$1: one line" "$(wc -l <<< "$said")" 1
  is "$1: nothing is written" "$(find "$work" -name metrics.jsonl -o -name report.json -o -name checkpoints)" ""
}
refused "no plugin" "this trainer has no CUDA plugin (looked for $work/nowhere.so)" env DISTSETUP_CUDA_PLUGIN="$work/nowhere.so" "$trainer" --plan plan.json
echo "not a library" > broken.so
refused "a broken plugin" "the CUDA plugin $work/broken.so cannot be loaded: $work/broken.so: " env DISTSETUP_CUDA_PLUGIN="$work/broken.so" "$trainer" --plan plan.json
run "a dry run needs no GPU" 0 "$trainer" --plan plan.json --dry-run

plugin=$DISTSETUP_BIN/../lib/libdistsetup_cuda.so
if [[ ! -e $plugin ]]; then
  echo "no nvcc when this was built: a plugin that is there was not tried"
elif nvidia-smi -L > /dev/null 2>&1; then
  echo "a GPU is here (scripts/test --gpu): a plugin without its libraries was not tried"
elif missing=$(LD_LIBRARY_PATH='' ldd "$plugin" 2>/dev/null | sed -n 's/^[[:space:]]*\(.*\.so[^ ]*\) => not found$/\1/p') && [[ -n $missing ]]; then
  run "libraries are missing" 5 "$trainer" --plan plan.json
  grep -qE "cannot be loaded: ($(paste -sd'|' <<< "$missing")): cannot open shared object file" <<< "$said" || fail "the missing library is not named" "$said" "missing: $missing"
  refused "libraries are missing" "the CUDA plugin " "$trainer" --plan plan.json
else
  refused "no driver" "no usable NVIDIA GPU: " "$trainer" --plan plan.json
fi
