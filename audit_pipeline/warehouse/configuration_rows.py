"""What the configuration asks to be audited, as rows of the warehouse.

What belongs here: models.yaml and benchmarks.yaml as rows. What does not: reading and checking those files
(models/config.py, benchmarks/config.py), whether what is built is up to date (build.py is handed that), the columns'
meaning (schema.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.config.problems import Problem
from audit_pipeline.errors import DataError
from audit_pipeline.models.config import ModelEntry, load_models

_UNKNOWN = {"title": None, "release_date": None, "training_cutoff": None, "on_request": False}


@dataclass(frozen=True)
class Configured:
    """The rows of a file, and what is wrong with its broken entries, which have a row as far as they are known."""

    rows: Sequence[Mapping[str, object]]
    problems: Sequence[Problem]


def read_configured_models(folder: Path) -> Configured:
    """One row per model of models.yaml; raises ConfigError where the file cannot be read."""
    models = load_models(folder)
    rows: list[Mapping[str, object]] = [
        {
            "name": entry.name,
            "title": entry.title,
            "origin": format_model_origin(entry),
            "release_date": entry.release_date,
            "training_cutoff": entry.training_cutoff,
            "on_request": entry.control is not None,
        }
        for entry in models.values()
    ]
    rows += [
        {"name": name, "origin": "unknown: its entry cannot be used", **_UNKNOWN}
        for name in models.names
        if models.is_broken(name)
    ]
    return Configured(rows, models.problems)


def read_configured_benchmarks(folder: Path, paths: DataPaths, up_to_date: Mapping[str, bool | None]) -> Configured:
    """A row a benchmark of benchmarks.yaml, ``words`` null where its texts are of any length.

    ``up_to_date``: whether a benchmark is built as its entry says; None, or no entry: unknown.
    A benchmark whose entry is broken has the row that it was built by, where it was. Raises AuditError where the file
    cannot be read.
    """
    specs = load_benchmarks(folder)
    rows: list[Mapping[str, object]] = [
        {
            "benchmark": name,
            "title": spec.title,
            "family": spec.family,
            "words": spec.words,
            "design": spec.design,
            "description": spec.settings.description,
            "is_up_to_date": up_to_date.get(name),
            "on_request": spec.settings.on_request,
        }
        for name, spec in specs.items()
    ]
    rows += [
        row for name in _list_built_benchmarks(paths) if specs.is_broken(name) for row in _read_built_row(name, paths)
    ]
    return Configured(rows, specs.problems)


def _list_built_benchmarks(paths: DataPaths) -> list[str]:
    manifest = paths.benchmark_manifest("any")
    found = sorted(manifest.parent.parent.glob(f"*/{manifest.name}"))
    return [name_from_path_segment(path.parent.name.removeprefix("benchmark=")) for path in found]


def _read_built_row(name: str, paths: DataPaths) -> Iterator[Mapping[str, object]]:
    """The row of a benchmark whose entry is broken: as it was when it was built."""
    try:
        manifest = read_built(paths, name).manifest
        known = {key: manifest[key] for key in ("family", "words", "design", "description")}
        on_request = bool(manifest["spec"].get("on_request", False))
    except (DataError, KeyError, AttributeError):
        # Named among the files that cannot be read.
        return
    yield {"benchmark": name, "title": None, **known, "is_up_to_date": None, "on_request": on_request}


def format_model_origin(entry: ModelEntry) -> str:
    """Where an entry says that its model is, in words."""
    return entry.host.origin(_format_files(entry))


def _format_files(entry: ModelEntry) -> str:
    if entry.package is not None:
        return f"package {entry.package.distribution}: {entry.package.file}"
    if entry.hub is not None:
        return f"hub {entry.hub}" if entry.revision is None else f"hub {entry.hub} at {entry.revision}"
    if entry.control is not None:
        return f"control {entry.control.name}: {entry.control.role}"
    return f"path {entry.path}"
