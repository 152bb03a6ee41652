#!/usr/bin/env bash
# Emitted scripts on 1, 2 and 4 ranks against the one-rank run: a pairwise cover of the strategies. DISTSETUP_PARITY=all runs every cell
# (nightly; half an hour, longer than ctest waits: call this script).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export DISTSETUP_SOURCE=${DISTSETUP_SOURCE:-$root} DISTSETUP_BIN=${DISTSETUP_BIN:-$root/build/release/bin}
[[ -x $DISTSETUP_BIN/distsetup-train ]] || { echo "not run: no distsetup-train in $DISTSETUP_BIN (built without -DDISTSETUP_RUNTIME=ON)"; exit 77; }
exec python3 "$DISTSETUP_SOURCE/tests/integration/parity.py" "${DISTSETUP_PARITY:-pairwise}"
