#!/usr/bin/env bash
# service_schema_all.sh at every boundary of the document, and with more that is drawn.
SCHEMA_PHASES=coverage,fuzzing SCHEMA_EXAMPLES=40 SCHEMA_SECONDS=3600 exec "${DISTSETUP_SOURCE:?}/tests/integration/service_schema_all.sh"
