#!/usr/bin/env bash
# Emitted scripts on 1, 2 and 4 ranks against the one-rank run: every cell of strategy, recomputation, accumulation, precision and mesh.
set -euo pipefail
[[ -x ${DISTSETUP_BIN:?}/distsetup-train ]] || { echo "not run: no distsetup-train in $DISTSETUP_BIN (built without -DDISTSETUP_RUNTIME=ON)"; exit 77; }
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/parity.py" all
