"""Run by tests of this folder: the benchmarks of those names built, and what became of each. With [a name,
HF_TOKEN] in place of a name, that token is set first."""

from __future__ import annotations

import json
import os
import sys

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.config import resolve_benchmarks
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.operate.dagster.retries import is_transient


def built(name: str, token: str | None = None) -> dict[str, object]:
    if token is not None:
        # The client reads it anew for each request.
        os.environ["HF_TOKEN"] = token
    [spec] = resolve_benchmarks(name)
    try:
        report = build(spec, DataPaths.from_environment(), "run")
    except AuditError as error:
        return {"error": str(error), "transient": is_transient(error)}
    columns = report.examples.select(["text", "label"]).to_pydict()
    provenance = report.manifest["provenance"]
    return {
        "digest": report.digest,
        "content_digest": report.manifest["content_digest"],
        "texts": sorted(zip(columns["text"], columns["label"], strict=True)),
        "commits": [one["commit"] for one in provenance],
        "provenance": provenance,
    }


print(json.dumps([built(*([one] if isinstance(one, str) else one)) for one in json.loads(sys.argv[1])]))
