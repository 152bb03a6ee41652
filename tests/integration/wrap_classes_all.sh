#!/usr/bin/env bash
# Which class of a model is wrapped, against transformers' own classes.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/wrap_classes.py" "$distsetup" "$root"
