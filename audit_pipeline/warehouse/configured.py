"""What the configuration asks to be audited, as rows of the warehouse.

What belongs here: models.yaml and benchmarks.yaml as rows, and whether a benchmark is up to date. What does not:
reading and checking those files (models/config.py, benchmarks/config.py), the columns' meaning (schema.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.staleness import up_to_date
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.paths import DataPaths

Rows = Sequence[Mapping[str, object]]


def configured_models(folder: Path) -> Rows:
    """A row a model of models.yaml; raises ConfigError or OSError where the file cannot be read."""
    return [
        {
            "name": entry.name,
            "origin": origin(entry),
            "release_date": entry.release_date,
            "training_cutoff": entry.training_cutoff,
            "on_request": entry.control is not None,
        }
        for entry in load_models(folder).values()
    ]


def configured_benchmarks(folder: Path, paths: DataPaths) -> Rows:
    """A row a benchmark of benchmarks.yaml, ``words`` null where its texts are of any length.

    Raises AuditError or OSError where the file cannot be read.
    """
    specs = load_benchmarks(folder)
    fresh = up_to_date(specs.values(), paths)
    return [
        {
            "benchmark": name,
            "family": spec.family,
            "words": spec.words,
            "design": spec.design,
            "description": spec.settings.description,
            "is_up_to_date": fresh[name],
            "on_request": spec.settings.on_request,
        }
        for name, spec in specs.items()
    ]


def origin(entry: ModelEntry) -> str:
    """Where an entry says that its model is, in words."""
    if entry.package is not None:
        return f"package {entry.package.distribution}: {entry.package.file}"
    if entry.hub is not None:
        return f"hub {entry.hub}" if entry.revision is None else f"hub {entry.hub} at {entry.revision}"
    if entry.control is not None:
        return f"control {entry.control.name}: {entry.control.role}"
    return f"path {entry.path}"
