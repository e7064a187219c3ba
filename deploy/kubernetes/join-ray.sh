#!/bin/bash
# Entry point of the image: a pod of a Dagster run joins the Ray cluster before the run begins (docs/ray.md).
#
# NOT RUN in a cluster: written from the documentation of Ray and Dagster, checked with `bash -n` and shellcheck only.
#
# A program that uses Ray has to be on one of its nodes. So the run's own pod becomes one, without CPUs: no model is run
# in it. Dagster sets DAGSTER_RUN_JOB_NAME in the pods of runs alone.
set -euo pipefail
if [ -n "${DAGSTER_RUN_JOB_NAME:-}" ] && [ -n "${RAY_ADDRESS:-}" ]; then
    ray start --address="$RAY_ADDRESS" --num-cpus=0 --num-gpus=0 --disable-usage-stats
fi
exec "$@"
