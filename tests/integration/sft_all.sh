#!/usr/bin/env bash
# Supervised fine-tuning against Transformers: the same conversations, with the same tokenizer, template and weights, have the same loss.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
[[ -x $bin/distsetup-train ]] || { echo "distsetup-train is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/sft.py" "$bin" "$folder" "$root/tests/data/tokenizers/bytes_of_words"
