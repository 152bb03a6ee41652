#!/usr/bin/env bash
# What DeepSpeed's and accelerate's own parsers say of about 150 files, and what lint says: both have to be the verdict of the table in
# lint_verdicts.py, case by case. On CPU, eight ranks by torch's stand-in backend, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$environment/bin/python" -W ignore "$root/tests/integration/lint_verdicts.py" "$distsetup"
