#!/usr/bin/env bash
# What DeepSpeed's and accelerate's own parsers say of about 150 files, and what lint says: both have to be the verdict of the table in
# lint_verdicts.py, case by case. On CPU, eight ranks by torch's stand-in backend, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# The environment of emit_parsers_all.sh: DeepSpeed, accelerate and what they need.
python=${DISTSETUP_ORACLE_PYTHON:-$root/.deps/parsers/bin/python}
if [[ ! -x $python ]]; then
  "$root/tests/integration/emit_parsers_all.sh" >/dev/null || {
    echo "the environment of emit_parsers_all.sh could not be made"
    exit 77
  }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
cd "$work"
exec "$python" -W ignore "$root/tests/integration/lint_verdicts.py" "$distsetup"
