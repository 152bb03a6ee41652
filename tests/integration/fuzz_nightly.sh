#!/usr/bin/env bash
# Damaged files on the command line: tens of thousands of them.
set -euo pipefail
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 20000
