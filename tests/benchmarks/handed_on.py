"""Benchmarks of given examples, their export, and the benchmarks that are read from the export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import made_rows
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
    """Return a row of a benchmark's examples without the columns that depend on the benchmark."""
    own = {"document_id": f"made:tree:{text[:5]}", "group": f"made:tree:{text[:5]}", "collection": "tree"}
    row = made_rows.example("", text=text, label=label, published=DAY, words=len(text.split()), run_id="built", **own)
    return {**row, **changes}


def built_of(
    rows: Iterable[Mapping[str, Any]], root: Path, words: int | None = None, family: str = "made", **manifest: Any
) -> BuiltBenchmark:
    """Store a benchmark that consists of these rows below ``root``."""
    paths = DataPaths(root)
    name = family if words is None else f"{family}_{words}"
    examples = []
    for row in rows:
        identity = example_id(name, row["document_id"], row["text"])
        examples.append({**row, "example_id": identity, "benchmark": name})
    write_explained(paths, EXAMPLES, name, table_from_rows(examples, EXAMPLES))
    spec = {"builder": "labelled", "unit": "whitespace", "seed": 5, "calibration_fraction": 0.2}
    said = {
        **{"benchmark": name, "family": family, "words": words, "digest": "0" * 64, "builder_version": 1},
        **{"description": "Made-up texts.", "design": "temporal", "design_stated_by": None, "source_versions": {}},
        **{"documents_left_out": {}, "texts_left_out": {}},
        "provenance": [{"hub": "maker/made", "commit": "0" * 40, "licence": "CC0-1.0", "kind of date": "release"}],
        "spec": {**spec, "near_duplicate_threshold": 0.5, **manifest.pop("spec", {})},
        **manifest,
    }
    write_json(paths.benchmark_manifest(name), said)
    return BuiltBenchmark(name, said, paths)


def write(
    benchmarks: Iterable[BuiltBenchmark], folder: Path, *, hub: str | None = None, with_text: bool = False
) -> dict[str, str]:
    """Export built benchmarks, as the command does. Their split quality has one row."""
    built = [*benchmarks]
    require_redistributable(built, override_unclear_licences=with_text)
    measured = {"measure": "blind_auroc", "part": "words", "side": "both", "value": 0.61, "n": 4}
    quality = made_rows.make_table(SPLIT_QUALITY, [{**measured, "split_verdict": "undetermined"}])
    return export(dict.fromkeys(built, quality), folder, DataPaths(folder.parent / "no data"), hub=hub)


def entries_in(folder: Path) -> dict[str, Any]:
    """Return the entries of config/benchmarks.yaml in the card, with the path of the folder."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    return {name: {**entry, "path": folder} for name, entry in entries.items()}


def digests_read_back(folder: Path, family: str = "theirs") -> list[str]:
    """Return the content digests of the benchmarks that the card's entries build under another name."""
    found = []
    for number, entry in enumerate(entries_in(folder).values()):
        settings = LabelledSettings.model_validate(entry)
        for words in settings.words or (None,):
            spec = BenchmarkSpec(f"{family}{number}", words, settings)
            drawn = BUILDERS["labelled"].draw(read_inputs(spec, DataPaths(folder)).content, spec, "run")
            found.append(compute_content_digest(drawn.examples))
    return found
