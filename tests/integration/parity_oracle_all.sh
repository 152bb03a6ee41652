#!/usr/bin/env bash
# One rank of the trainer against a plain PyTorch model: gradients, losses, gradient norms, parameters after 20 steps (tests/oracle).
set -euo pipefail
[[ -x ${DISTSETUP_BIN:?}/distsetup-train ]] || { echo "not run: no distsetup-train in $DISTSETUP_BIN (built without -DDISTSETUP_RUNTIME=ON)"; exit 77; }
[[ -n ${DISTSETUP_ORACLE_PYTHON:-} ]] || { echo "not run: DISTSETUP_ORACLE_PYTHON is not set (scripts/oracle_env prints it)"; exit 77; }
exec "$DISTSETUP_ORACLE_PYTHON" "${DISTSETUP_SOURCE:?}/tests/oracle/compare.py"
