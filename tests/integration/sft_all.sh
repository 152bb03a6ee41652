#!/usr/bin/env bash
# Supervised fine-tuning against Transformers: the same conversations, with the same tokenizer, template and weights, have the same loss.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/sft.py" "$bin" "$folder" "$root/tests/data/tokenizers/bytes_of_words"
