#!/usr/bin/env bash
# Damaged files on the command line: a thousand of them.
set -euo pipefail
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 1000
