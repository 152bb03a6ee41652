#!/usr/bin/env bash
# Damaged files on the command line: a thousand of them, the same every time.
set -euo pipefail
DISTSETUP_SEED=${DISTSETUP_SEED:-2} exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 1000
