#!/usr/bin/env bash
# The generated tables of docs/ are what their sources say: see tables.py. --update writes them.
set -euo pipefail
exec python3 "$(dirname "$0")/tables.py" "$@"
