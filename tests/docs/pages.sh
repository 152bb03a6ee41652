#!/usr/bin/env bash
# Links and paths lead somewhere, headers are where src/README.md says, the first pages stay short: see pages.py.
set -euo pipefail
exec python3 "$(dirname "$0")/pages.py"
