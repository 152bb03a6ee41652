#!/usr/bin/env bash
# schemathesis over /openapi.json: requests made from the document of every route, right ones and wrong ones, the same at every run. No answer
# is a 5xx, each has a status, a type and a body that the document says; wrong requests are refused. service_schema_nightly.sh: some ten
# thousand requests, every boundary of every field and methods that no route has.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_environment
start_service service --max-jobs 1
curl -sf -o /dev/null -H 'Content-Type: application/json' "$url/v1/datasets" \
  -d '{"dataset_id": "pairs", "purpose": "post-training/messages", "source": {"type": "rows", "rows": [{"prompt": "a", "chosen": "b", "rejected": "c"}]}}' || fail "a data set"
curl -sf "$url/openapi.json" >"$work/openapi.json"
"$service_python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(len(d["paths"]), "paths")' "$work/openapi.json"
# Left out: event streams, which last 15 seconds each, and the upload of a .jsonl, which schemathesis cannot make. --max-failures: the first tells enough.
code=0
(cd "$work" && timeout "${SCHEMA_SECONDS:-500}" "$(dirname "$service_python")/schemathesis" run "$url/openapi.json" --no-color --seed 16 --max-examples "${SCHEMA_EXAMPLES:-8}" \
  --phases "${SCHEMA_PHASES:-fuzzing}" --generation-deterministic --workers 2 --exclude-path-regex 'logs/stream|/file$' --max-failures 40 --request-timeout 30 \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection,unsupported_method \
  >"$work/schemathesis.txt" 2>&1) || code=$?
tail -n 12 "$work/schemathesis.txt"
[[ $code == 0 ]] || fail "schemathesis ends with $code" "$(grep -vE '^ *$' "$work/schemathesis.txt" | tail -n 400 | head -n 330)"
is "the service goes on" "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" 200
grep -c '"event":"handler_failed"' "$work/service.log" >"$work/failed" || true
is "no handler failed" "$(cat "$work/failed")" 0
