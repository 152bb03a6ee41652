#!/usr/bin/env bash
# Preference pairs against TRL: the same pairs, with the same tokenizer and weights, take the same eight steps.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
[[ -x $bin/distsetup-train ]] || { echo "distsetup-train is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
# What TRL's data sets need lies in a folder of its own, made once. Its last part tells dill that its modules are installed ones, which
# are named and not written out.
packages=$root/tests/integration/dpo_packages.txt
extra=$root/.deps/trl/site-packages
stamp="$environment $(sha256sum <"$packages")"
exec 8>"$root/.deps/trl_lock"
flock 8
if [[ $(cat "$extra/stamp" 2>/dev/null) != "$stamp" ]]; then
  rm -rf "$extra"
  echo "making .deps/trl: pip install --no-deps -r tests/integration/dpo_packages.txt" >&2
  if ! "$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check --target "$extra" -r "$packages"; then
    echo "the packages of tests/integration/dpo_packages.txt could not be fetched"
    exit 77
  fi
  echo "$stamp" >"$extra/stamp"
fi
flock -u 8
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PYTHONPATH=$extra HF_HOME=$folder/hf HF_DATASETS_OFFLINE=1 "$environment/bin/python" -W ignore "$root/tests/integration/dpo.py" "$bin" "$folder" \
  "$root/tests/data/tokenizers/bytes_of_words"
