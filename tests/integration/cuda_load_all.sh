#!/usr/bin/env bash
# The CUDA plugin is really loaded by the trainer, on a machine without GPU and driver: every name it needs is found, libtorch's CUDA half
# registers, and the CUDA runtime says that there is no driver. NVIDIA's libraries are the stand-ins of scripts/oracle_env.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
trainer=$DISTSETUP_BIN/distsetup-train
plugin=$DISTSETUP_BIN/../lib/libdistsetup_cuda.so
[[ -e $plugin ]] || { echo "not run: no nvcc on this machine: the CUDA plugin was not built"; exit 77; }
! nvidia-smi -L > /dev/null 2>&1 || { echo "not run: a GPU is here: scripts/test --gpu trains on it"; exit 77; }
stand_ins=$DISTSETUP_SOURCE/.deps/oracle/stand_ins
[[ -d $stand_ins ]] || { echo "not run: no stand-ins of NVIDIA's libraries; scripts/oracle_env makes them"; exit 77; }

# Of what the plugin wants, only the trainer's own names may be left over, and the trainer has to export them.
wanted=$(LD_LIBRARY_PATH=$stand_ins ldd -r "$plugin" 2>&1 | sed -n 's/^undefined symbol: \([^[:space:],]*\).*/\1/p' | sort -u)
exported=$(nm -D --defined-only "$trainer" | awk '{ print $3 }' | sort -u)
is "names that nobody defines" "$(comm -23 <(grep . <<< "$wanted") <(echo "$exported"))" ""
has "names of the trainer" "$wanted" "distsetup"

make_data
cd "$work"
run "plan" 0 "$distsetup" plan --model quickstart --gpu h100_sxm --gpus 1 --nodes 1 --precision bf16 --sequence-length 64 --global-batch 8 --steps 5 \
  --data data --output plan.json
run "no driver" 5 env LD_LIBRARY_PATH="$stand_ins" "$trainer" --plan plan.json
has "no driver" "$said" "rank 0 on $host, device, the plan is for 'h100_sxm': no usable NVIDIA GPU: CUDA driver version is insufficient"
