#!/usr/bin/env bash
# service_jobs_all.sh with two hundred jobs.
SERVICE_JOBS=${SERVICE_JOBS:-200} SERVICE_SEED=${SERVICE_SEED:-$RANDOM} exec "${DISTSETUP_SOURCE:?}/tests/integration/service_jobs_all.sh"
