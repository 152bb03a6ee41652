#!/usr/bin/env bash
# FSDP version 1 files become version 2 files as accelerate's own converter makes them (accelerate to-fsdp2), and what we write is taken
# by accelerate's loader and plugin. Where the two differ on purpose, the difference is named here and checked.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# The environment of emit_parsers_all.sh: accelerate and what it needs.
environment=$root/.deps/parsers
if [[ ! -x $environment/bin/python ]]; then
  "$root/tests/integration/emit_parsers_all.sh" >/dev/null || { echo "the environment of emit_parsers_all.sh could not be made"; exit 77; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec "$environment/bin/python" -W ignore "$root/tests/integration/convert.py" "$distsetup" "$work"
