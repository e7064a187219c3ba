"""Functions that tests of this folder run in a separate process, once per JSON argument.

``python in_process.py build '["wikimia_32", ["mimir_64", "HF_TOKEN"]]'`` prints the results as JSON. A list holds
several arguments. The last argument of ``build`` and ``locate`` may be a token, which each request uses.
The functions import their modules when they are called.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline.dagster.partition_step import is_transient
from audit_pipeline.store.paths import DataPaths


def build(name: str) -> dict[str, Any]:
    """Build a benchmark."""
    from audit_pipeline.benchmarks import build
    from audit_pipeline.benchmarks.config import resolve_benchmarks

    [spec] = resolve_benchmarks(name)
    report = build.build(spec, DataPaths.from_environment(), "run")
    columns = report.examples.select(["text", "label"]).to_pydict()
    provenance = report.manifest["provenance"]
    return {
        "digest": report.digest,
        "content_digest": report.manifest["content_digest"],
        "texts": sorted(zip(columns["text"], columns["label"], strict=True)),
        "commits": [one["commit"] for one in provenance],
        "provenance": provenance,
    }


def locate(hub: str, revision: str | None) -> dict[str, Any]:
    """Find a model."""
    from audit_pipeline.models import locate
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.fingerprint import identify

    found = locate.locate(ModelEntry(name=hub, hub=hub, revision=revision))
    weights = identify(found, DataPaths.from_environment()).weights_digest
    return {"folder": str(found.folder), "commit": found.commit, "from": found.resolved_from, "weights": weights}


def stream(name: str) -> dict[str, Any]:
    """Read a configured corpus of the hub from end to end."""
    from audit_pipeline.extras.corpora.config import load_references
    from audit_pipeline.extras.corpora.corpus_stream import corpus_from_hub

    entry = load_references()[name]
    assert entry.hub is not None
    assert entry.files is not None
    corpus = corpus_from_hub(entry.hub, entry.files, entry.revision, entry.text_column)
    return {"rows": len(list(corpus.open(None)))}


def count(corpus: str, folder: str, killed_after: int | None) -> dict[str, Any]:
    """Count a configured corpus with the tokenizer of a model on disk.

    A process that is to be killed after so many documents kills itself, right behind a checkpoint.
    """
    from audit_pipeline.extras.corpora import token_count
    from audit_pipeline.extras.corpora.config import load_references
    from audit_pipeline.extras.corpora.frequency_need import build_frequencies
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.store.ledger import LineageStep

    # With a checkpoint after every document, the next run must resume at the kill.
    token_count.CHECKPOINT_SECONDS = 0.0
    paths = DataPaths.from_environment()
    model = load_tokenized(ModelEntry(name="tiny", path=Path(folder)), paths)
    first: list[int] = []

    def watch(so_far: token_count.CorpusCount) -> None:
        first.append(so_far.documents)
        if killed_after is not None and so_far.documents >= killed_after:
            os.kill(os.getpid(), signal.SIGKILL)

    step = LineageStep.now("run", "token_frequencies", "1")
    report = build_frequencies(load_references()[corpus], model, paths, step, on_progress=watch)
    assert report.count is not None
    return {
        "counts": report.count.counts.tolist(),
        "documents": report.read_number("documents"),
        "skipped": report.read_number("skipped_rows"),
        "began_behind": first[0] - 1,
    }


def call(name: str, given: Any) -> dict[str, Any]:
    function, arguments = globals()[name], given if isinstance(given, list) else [given]
    if len(arguments) > function.__code__.co_argcount:
        *arguments, os.environ["HF_TOKEN"] = arguments
    try:
        found: dict[str, Any] = function(*arguments)
    except AuditError as error:
        return {"error": str(error), "transient": is_transient(error)}
    return found


print(json.dumps([call(sys.argv[1], given) for given in json.loads(sys.argv[2])]))
