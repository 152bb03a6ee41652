#!/usr/bin/env bash
# Damaged files on the command line: a few of them; fuzz_all.sh has a thousand, fuzz_nightly.sh the campaign.
set -euo pipefail
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 200
