#!/usr/bin/env bash
# The page in Chromium while a job trains: its curves move, nothing is wider than a telephone, light and dark have contrast, it reads without
# its script, says nothing to the console and asks no other host. A job is planned, submitted and cancelled by hand.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
command -v chromium >/dev/null || { echo "not run: no chromium on this machine (Debian: chromium)"; exit 77; }
start_service service --max-jobs 2
PYTHONPATH=$DISTSETUP_SOURCE/tests/support python3 -B "$DISTSETUP_SOURCE/tests/integration/service_page.py" "$url" "$work" "${SERVICE_PICTURES:-}" ||
  fail "the page" "$(tail -n 15 "$work/service.log")"
