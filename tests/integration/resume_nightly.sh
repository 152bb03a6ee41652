#!/usr/bin/env bash
# resume.sh with ranks killed at two hundred random instants instead of twenty.
set -euo pipefail
KILLS=200 exec "${DISTSETUP_SOURCE:?}/tests/integration/resume.sh"
