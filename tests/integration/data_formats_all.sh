#!/usr/bin/env bash
# Token ids of Megatron-LM: what is exported its reader reads, what its builder writes is a source.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/data_formats.py" "$bin" "$folder" "$root/tests/data/tokenizers/bytes_of_words"
