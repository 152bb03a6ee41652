#!/usr/bin/env bash
# Conversations as text, against TRL's templates and jinja2.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/chat_templates.py" "$distsetup"
