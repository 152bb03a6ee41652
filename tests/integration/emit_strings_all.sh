#!/usr/bin/env bash
# A user's text in configuration files: whatever it is, the readers of JSON, YAML (PyYAML, which is stricter than YAML 1.2 where lines
# end) and TOML find it byte for byte, and the command line in a file's first comment ends with its line. DISTSETUP_SEED repeats a run.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/emit_strings.py" "$distsetup" "$work" "${DISTSETUP_SEED:-$RANDOM}"
