"""Benchmarks that are built out of given examples, written for others, and read back as others would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from ledger_lines import write_explained

from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, compute_content_digest
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.publish import export, require_redistributable
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.store.files import table_from_rows, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, SPLIT_QUALITY, example_id

DAY = date(2021, 2, 3)


def example(text: str, label: int | None = 1, **changes: Any) -> dict[str, Any]:
    """One row of a benchmark's examples, all but what is the same for all of them."""
    return {
        "document_id": f"made:tree:{text[:5]}",
        "text": text,
        "context": None,
        "label": label,
        "split": "evaluation",
        "published": DAY,
        "language": "en",
        "collection": "tree",
        "group": f"made:tree:{text[:5]}",
        **changes,
    }


def built_of(
    rows: Iterable[Mapping[str, Any]], root: Path, words: int | None = None, family: str = "made", **manifest: Any
) -> BuiltBenchmark:
    """A benchmark that consists of these rows, as it would lie below ``root``."""
    paths, name = DataPaths(root), family if words is None else f"{family}_{words}"
    whole = [
        {
            **row,
            "example_id": example_id(name, row["document_id"], row["text"]),
            "benchmark": name,
            "words": len(row["text"].split()),
            "run_id": "built",
        }
        for row in rows
    ]
    write_explained(paths, EXAMPLES, name, table_from_rows(whole, EXAMPLES))
    spec = {"builder": "labelled", "unit": "whitespace", "seed": 5, "calibration_fraction": 0.2}
    said = {
        "benchmark": name,
        "family": family,
        "description": "Made-up texts.",
        "design": "temporal",
        "design_stated_by": None,
        "words": words,
        "digest": "0" * 64,
        "spec": {**spec, "near_duplicate_threshold": 0.5, **manifest.pop("spec", {})},
        "builder_version": 1,
        "source_versions": {},
        "provenance": [{"hub": "maker/made", "commit": "0" * 40, "licence": "CC0-1.0", "kind of date": "release"}],
        "documents_left_out": {},
        "texts_left_out": {},
        **manifest,
    }
    write_json(paths.benchmark_manifest(name), said)
    return BuiltBenchmark(name, said, paths)


def quality(verdict: str = "undetermined", auroc: float | None = 0.61) -> Any:
    """A split's quality, of which the control of words alone was read."""
    measured = {"value": auroc, "ci_low": 0.5, "ci_high": 0.7, "n": 4, "method": "made up", "verdict": verdict}
    of = {"benchmark": "made", "measure": "blind_auroc", "part": "words", "side": "both"}
    return table_from_rows([{**of, **measured, "split_verdict": verdict, "run_id": "run"}], SPLIT_QUALITY)


def write(
    benchmarks: Iterable[BuiltBenchmark], folder: Path, *, hub: str | None = None, with_text: bool = False
) -> dict[str, str]:
    """What the command does with benchmarks that are built."""
    built = [*benchmarks]
    require_redistributable(built, override_unclear_licences=with_text)
    return export({benchmark: quality() for benchmark in built}, folder, DataPaths(folder.parent / "no data"), hub=hub)


def entries_in(folder: Path) -> dict[str, Any]:
    """The entries of config/benchmarks.yaml that the card gives, with the folder's place."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    return {name: {**entry, "path": folder} for name, entry in entries.items()}


def digests_read_back(folder: Path, family: str = "theirs") -> list[str]:
    """The content digests of what the card's entries build under another name, in their order."""
    found = []
    for number, entry in enumerate(entries_in(folder).values()):
        settings = LabelledSettings.model_validate(entry)
        for words in settings.words or (None,):
            spec = BenchmarkSpec(f"{family}{number}", words, settings)
            drawn = BUILDERS["labelled"].draw(read_inputs(spec, DataPaths(folder)).content, spec, "run")
            found.append(compute_content_digest(drawn.examples))
    return found
