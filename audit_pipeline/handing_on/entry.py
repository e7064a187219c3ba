"""The entry of config/benchmarks.yaml that reads what was handed on, and the proof that it reads the same.

What belongs here: what such an entry says, and reading it back as anybody would. What does not: the builder that reads
(benchmarks/builders/labelled.py), and what the digest is of (benchmarks/content.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.benchmarks.content import content_digest
from audit_pipeline.benchmarks.registry import BUILDERS
from audit_pipeline.benchmarks.row_settings import WORDS_PLACE
from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError

_COLUMNS = {
    "text_column": "text",
    "label_column": "label",
    "id_column": "document_id",
    "group_column": "group",
    "date_column": "published",
    "context_column": "context",
    "split_column": "split",
    "collection_column": "collection",
    "language_column": "language",
}
# What of the original's entry goes on to say how its texts are audited.
_KEPT = ("unit", "seed", "calibration_fraction", "near_duplicate_threshold", "infilling_m", "dc_pdd_a", "combined")


def entries_of(
    benchmarks: Mapping[BuiltBenchmark, Sequence[str]], licence: str, place: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The entries that read these benchmarks of one family back, by name; ``benchmarks`` have the paths of their files.

    One entry says it of all lengths that have the same splits. ``place`` is where the data set lies: ``path``, or
    ``hub`` and ``revision``.
    """
    alike: dict[tuple[str, ...], list[BuiltBenchmark]] = {}
    for built, files in benchmarks.items():
        alike.setdefault(tuple(_to_path_template(file, built) for file in files), []).append(built)
    entries: dict[str, dict[str, Any]] = {}
    for number, (files, some) in enumerate(alike.items(), 1):
        family = str(some[0].manifest["family"])
        name = family if number == 1 else f"{family}_splits_{number}"
        entries[name] = _entry(some, files, licence, place)
    return entries


def require_same(entries: Mapping[str, Mapping[str, Any]], digests: Sequence[str], paths: DataPaths) -> None:
    """Raise DataError unless the ``entries`` read benchmarks of these content digests, in their order.

    A builder of rows takes every text once: a benchmark with a text twice cannot be handed on as it is.
    """
    read: list[str] = []
    for name, fields in entries.items():
        settings = LabelledSettings.model_validate(dict(fields))
        for words in settings.words or (None,):
            spec = BenchmarkSpec(name, words, settings)
            inputs = read_inputs(spec, paths)
            drawn = BUILDERS[settings.builder].draw(inputs.content, spec, "")
            if drawn.skipped:
                first = drawn.skipped[0]
                raise DataError(
                    f"{spec.name} cannot be handed on: {len(drawn.skipped)} of its texts would not be read back; the "
                    f"first, {first.location}: {first.reason}"
                )
            read.append(content_digest(drawn.examples))
    if sorted(read) != sorted(digests):
        raise DataError(f"{', '.join(entries)}: what was written does not read back as the same benchmark")


def resolved(entries: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """The entries with the folder that the data set lies in now."""
    elsewhere = {"hub", "revision", "path"}
    return {
        name: {**{key: value for key, value in fields.items() if key not in elsewhere}, "path": folder}
        for name, fields in entries.items()
    }


def _to_path_template(file: str, built: BuiltBenchmark) -> str:
    words = built.manifest["words"]
    return file if words is None else file.replace(f"_{words}/", f"_{WORDS_PLACE}/")


def _entry(
    benchmarks: Sequence[BuiltBenchmark], files: Sequence[str], licence: str, place: Mapping[str, str]
) -> dict[str, Any]:
    first = benchmarks[0]
    words = [built.manifest["words"] for built in benchmarks]
    exact = all(set(built.examples.column("words").to_pylist()) == {built.manifest["words"]} for built in benchmarks)
    kinds = [kind for built in benchmarks for kind in _kinds_of_date(built)]
    return {
        "builder": "labelled",
        "description": str(first.manifest["description"]),
        **place,
        "files": list(files),
        "words": "any" if words == [None] else words,
        **({} if exact or words == [None] else {"exact_words": False}),
        **_COLUMNS,
        **({"date_kind": ", ".join(dict.fromkeys(kinds))} if kinds else {}),
        "design": first.design,
        **({"matched": True} if first.matched is not None else {}),
        **{key: first.spec[key] for key in _KEPT if first.spec.get(key) is not None},
        "licence": licence,
    }


def _kinds_of_date(built: BuiltBenchmark) -> list[str]:
    found: list[str] = []
    for one in built.manifest["provenance"]:
        found += [str(kind) for kind in one.get("kinds of date", ()) if str(kind).strip()]
        kind = one.get("kind of date")
        found += [str(kind)] if kind and kind != "not dated" else []
    return found
