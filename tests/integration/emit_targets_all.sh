#!/usr/bin/env bash
# The tools' own parsers take what emit_targets writes for every trainer's target and every strategy, understand by it what the plan
# says, and refuse mutated files (emit_targets.py). On CPU, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
emit_targets=${DISTSETUP_BIN:?}/emit_targets
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$emit_targets" "$work" --files
failed=0
for tool in deepspeed accelerate transformers trl llamafactory axolotl lightning torchtitan openrlhf automodel; do
  "$environment/bin/python" -W ignore "$root/tests/integration/emit_targets.py" "$tool" "$work" || failed=1
done
exit "$failed"
