#!/usr/bin/env bash
# A thousand malformed requests, the same at every run: each is answered by 4xx with a reason, none by 5xx, nothing is made, and the service
# goes on. Requests of other pages of a browser, of strangers and for files of other folders are among them.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
echo secret >"$work/outside.txt"
start_service service
python3 "$DISTSETUP_SOURCE/tests/integration/service_requests.py" "$url" 1000 "$work" || fail "malformed requests" "$(tail -n 15 "$work/service.log")"
is "the service is the same process" "$(kill -0 "$service_pid" && echo lives)" lives
[[ -z $(find "$work/service.data/jobs" -mindepth 1 2>/dev/null) ]] || fail "a job's folder is left" "$(find "$work/service.data/jobs")"
stop_service "$service_pid"

# --- a service with a token
head -c 24 /dev/urandom | base64 >"$work/token"
run "other machines need a token" 2 timeout 20 "$distsetup" serve --config "$work/run_fsdp.yaml" --host 0.0.0.0 --port "$(free_port)" --device cpu --data "$work/none"
has "other machines need a token" "$said" "--auth-token-file"
start_service guarded --auth-token-file "$work/token"
is "health needs none" "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" 200
for path in / /v1/queue /v1/post-training/jobs /jobs/x /metrics /nothing; do
  is "a stranger at $path" "$(curl -s -o /dev/null -w '%{http_code}' "$url$path")" 401
  is "a wrong token at $path" "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer wrong" "$url$path")" 401
done
is "the token" "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(cat "$work/token")" "$url/v1/queue")" 200
is "a browser's way" "$(curl -s -o /dev/null -w '%{http_code}' -u "any:$(cat "$work/token")" "$url/")" 200

# --- the command line of a client
export DISTSETUP_SERVER=$url
run "no token" 5 "$distsetup" jobs list
has "no token" "$said" "wants a token"
echo "not the token of this service" >"$work/wrong"
run "wrong token" 5 "$distsetup" jobs list --token-file "$work/wrong"
has "wrong token" "$said" "does not take the token in '$work/wrong'"
export DISTSETUP_TOKEN_FILE=$work/token
run "right token" 0 "$distsetup" jobs list
is "right token" "$said" "no jobs"
run "unknown job" 1 "$distsetup" jobs show nobody
has "unknown job" "$said" "no job 'nobody' at $url"
run "unknown job, JSON" 1 "$distsetup" jobs show nobody --json
has "unknown job, JSON" "$said" '"code": "DS0207"'
run "nobody there" 5 "$distsetup" jobs list --server "http://127.0.0.1:$(free_port)"
has "nobody there" "$said" "distsetup serve"
for address in https://localhost:1 http://a:70000 'http://a b' http://a:1/path; do run "address $address" 2 "$distsetup" jobs list --server "$address"; done
printf '{"model": ' >"$work/broken.json"
run "a request that is no JSON" 3 "$distsetup" jobs submit "$work/broken.json"
has "a request that is no JSON" "$said" "$work/broken.json:1:"
echo "service_requests: all checks hold"
