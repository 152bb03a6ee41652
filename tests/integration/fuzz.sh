#!/usr/bin/env bash
# Damaged files on the command line: a few hundred of them; fuzz_nightly.sh has the campaign.
set -euo pipefail
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/fuzz.py" 300
