#!/usr/bin/env bash
# FSDP version 1 files become version 2 files as accelerate's own converter makes them (accelerate to-fsdp2), and what we write is taken
# by accelerate's loader and plugin. Where the two differ on purpose, the difference is named here and checked.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec "$environment/bin/python" -W ignore "$root/tests/integration/convert.py" "$distsetup" "$work"
