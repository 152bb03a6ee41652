#!/usr/bin/env bash
# Every block of README.md is executed: see readme.py. `tests/docs/readme.sh --update` writes the outputs into the page.
set -euo pipefail
exec python3 "$(dirname "$0")/readme.py" "$@"
