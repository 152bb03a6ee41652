#!/usr/bin/env bash
# scripts/bench and a peer that dies while it exits: it is run again, twice at most, and a line says so. A peer that merely fails is not.
set -euo pipefail
exec python3 "${DISTSETUP_SOURCE:?}/tests/integration/bench_repeat.py"
