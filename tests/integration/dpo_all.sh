#!/usr/bin/env bash
# Preference pairs against TRL: the same pairs, with the same tokenizer and weights, take the same eight steps.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
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
PYTHONPATH=$extra HF_HOME=$folder/hf HF_DATASETS_OFFLINE=1 "$environment/bin/python" -W ignore "$root/tests/integration/dpo.py" "$bin" "$folder" \
  "$root/tests/data/tokenizers/bytes_of_words"
