"""Run by test_hub_corpora.py: what becomes of each configured corpus of the hub that is streamed from end to end."""

from __future__ import annotations

import json
import sys

from audit_pipeline.errors import AuditError
from audit_pipeline.operate.dagster.retries import is_transient
from audit_pipeline.references.config import load_references
from audit_pipeline.references.corpus import corpus_from_hub


def streamed(name: str) -> dict[str, object]:
    entry = load_references()[name]
    assert entry.hub is not None
    assert entry.files is not None
    try:
        corpus = corpus_from_hub(entry.hub, entry.files, entry.revision, entry.text_column)
        return {"rows": len(list(corpus.open(None)))}
    except AuditError as error:
        return {"error": str(error), "transient": is_transient(error)}


print(json.dumps([streamed(name) for name in json.loads(sys.argv[1])]))
