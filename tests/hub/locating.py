"""Run by test_hub_models.py: what becomes of each model (hub id, revision, and HF_TOKEN where it is set) when it is
located."""

from __future__ import annotations

import json
import os
import sys

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import identify
from audit_pipeline.models.locate import locate
from audit_pipeline.operate.dagster.retries import is_transient


def located(hub: str, revision: str | None, token: str | None = None) -> dict[str, object]:
    if token is not None:
        # The client reads it anew for each request.
        os.environ["HF_TOKEN"] = token
    try:
        found = locate(ModelEntry(name=hub, hub=hub, revision=revision))
    except AuditError as error:
        return {"error": str(error), "transient": is_transient(error)}
    weights = identify(found, DataPaths.from_environment()).weights_digest
    return {"folder": str(found.folder), "commit": found.commit, "from": found.resolved_from, "weights": weights}


print(json.dumps([located(*one) for one in json.loads(sys.argv[1])]))
