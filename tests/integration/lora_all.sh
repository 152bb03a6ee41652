#!/usr/bin/env bash
# Adapters and frozen parts of models against PEFT and torch: the same losses, gradients and adapters, folders that go both ways.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
[[ -x $bin/distsetup-train ]] || { echo "distsetup-train is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/lora.py" "$bin" "$folder" "$@"
