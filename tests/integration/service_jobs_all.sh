#!/usr/bin/env bash
# A dozen jobs through a queue of two while jobs are cancelled, ranks killed, the server killed and the disk full: see service_jobs.py.
# Two hundred of them: service_jobs_nightly.sh.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_config
python3 -B "$DISTSETUP_SOURCE/tests/integration/service_jobs.py" "$DISTSETUP_BIN" "$work" "${SERVICE_JOBS:-12}" "${SERVICE_SEED:-16}" || fail "the jobs" "$(tail -n 15 "$work/service.log")"
