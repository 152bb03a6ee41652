#!/usr/bin/env bash
# The published clients of Llama Stack, unchanged, of both generations: register data, train by preferences and by conversations with
# optimizer steps, list, ask, cancel, read what was saved. And their command line.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_environment
start_service service --max-jobs 2
for version in 0.2.12 0.3.5; do
  folder=client_of_${version//./_}
  PYTHONPATH=${!folder} "$service_python" -W error::DeprecationWarning -W ignore "$DISTSETUP_SOURCE/tests/integration/service_clients.py" "$url" "$version" ||
    fail "the client $version" "$(tail -n 15 "$work/service.log")"
done
said=$(PYTHONPATH=$client_of_0_2_12 "$service_python" -W ignore -m llama_stack_client.lib.cli.llama_stack_client --endpoint "$url" post_training list)
has "the client's command line lists" "$said" "sft-0.2.12"
has "the client's command line lists" "$said" "dpo-0.3.5"
is "no process of a job is left" "$(processes_of "$work/service.data/jobs")" 0
