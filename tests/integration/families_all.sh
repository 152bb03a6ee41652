#!/usr/bin/env bash
# The bundled trainer's programs of every family against Transformers' modules: logits and gradients of tiny random models.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
check=${DISTSETUP_BIN:?}/family_check
[[ -x $check ]] || { echo "family_check is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/families.py" "$folder"
failed=0
for family in "$folder"/*/; do
  "$check" "$family" || { echo "failed: $(basename "$family")"; failed=1; }
done
exit "$failed"
