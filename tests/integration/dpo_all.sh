#!/usr/bin/env bash
# Preference pairs against TRL: the same pairs, with the same tokenizer and weights, take the same eight steps.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
# What TRL's data sets need lies in a folder of its own, made once. Its last part tells dill that its modules are installed ones, which
# are named and not written out.
extra_packages trl/site-packages dpo_packages.txt
PYTHONPATH=$extra HF_HOME=$folder/hf HF_DATASETS_OFFLINE=1 "$environment/bin/python" -W ignore "$root/tests/integration/dpo.py" "$bin" "$folder" \
  "$root/tests/data/tokenizers/bytes_of_words"
