#!/usr/bin/env bash
# Damaged files on the command line: a few of them; fuzz_all.sh has a thousand, fuzz_nightly.sh the campaign. Here and in fuzz_all.sh they
# are the same every time, so that what fails is the change's doing; the campaign draws new ones.
set -euo pipefail
DISTSETUP_SEED=${DISTSETUP_SEED:-1} exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 200
