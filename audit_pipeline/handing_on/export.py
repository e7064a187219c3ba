"""Writing a benchmark as a data set: a folder that is whole, or as it was before, and reads back the same.

What belongs here: the files of the folder, what is refused, moving it into place, the entry of config/benchmarks.yaml
that reads it as any user would, and the proof that it reads the same. What does not: what the card and the metadata say
(descriptions.py), the builder that reads (benchmarks/builders/labelled.py), what the content digest is of
(benchmarks/built_benchmark.py), and sending it to the hub (push.py).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, compute_content_digest
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.row_settings import WORDS_PLACE
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.catalogue.files import write_table
from audit_pipeline.catalogue.integrity import file_sha256, format_json
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError
from audit_pipeline.handing_on.contents import (
    build_export_rows,
    group_rows_by_split,
    list_unclear_licences,
    origins_of,
    read_attributions,
)
from audit_pipeline.handing_on.descriptions import (
    FOLDER,
    BenchmarkDescription,
    build_croissant,
    format_benchmark_card,
    licences_of,
    list_data_files,
)

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


def build_benchmark_entries(
    benchmarks: Mapping[BuiltBenchmark, Sequence[str]], licence: str, place: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The entries that read these benchmarks of one family back, by name; ``benchmarks`` have the paths of their files.

    One entry covers all lengths that have the same splits. ``place`` is where the data set lies: ``path``, or
    ``hub`` and ``revision``.
    """
    alike: dict[tuple[str, ...], list[BuiltBenchmark]] = {}
    for built, files in benchmarks.items():
        alike.setdefault(tuple(_to_path_template(file, built) for file in files), []).append(built)
    entries: dict[str, dict[str, Any]] = {}
    for number, (files, same_splits) in enumerate(alike.items(), 1):
        family = str(same_splits[0].manifest["family"])
        name = family if number == 1 else f"{family}_splits_{number}"
        entries[name] = _build_entry(same_splits, files, licence, place)
    return entries


def require_same_benchmarks(entries: Mapping[str, Mapping[str, Any]], digests: Sequence[str], paths: DataPaths) -> None:
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
            read.append(compute_content_digest(drawn.examples))
    if sorted(read) != sorted(digests):
        raise DataError(f"{', '.join(entries)}: what was written does not read back as the same benchmark")


def point_entries_to_folder(entries: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """The entries with the folder that the data set lies in now."""
    elsewhere = {"hub", "revision", "path"}
    return {
        name: {**{key: value for key, value in fields.items() if key not in elsewhere}, "path": folder}
        for name, fields in entries.items()
    }


def _to_path_template(file: str, benchmark: BuiltBenchmark) -> str:
    words = benchmark.manifest["words"]
    return file if words is None else file.replace(f"_{words}/", f"_{WORDS_PLACE}/")


def _build_entry(
    benchmarks: Sequence[BuiltBenchmark], files: Sequence[str], licence: str, place: Mapping[str, str]
) -> dict[str, Any]:
    first = benchmarks[0]
    words = [built.manifest["words"] for built in benchmarks]
    exact = all(set(built.examples.column("words").to_pylist()) == {built.manifest["words"]} for built in benchmarks)
    kinds = [kind for built in benchmarks for kind in _list_date_kinds(built)]
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


def _list_date_kinds(benchmark: BuiltBenchmark) -> list[str]:
    found: list[str] = []
    for provenance in benchmark.manifest["provenance"]:
        found += [str(kind) for kind in provenance.get("kinds of date", ()) if str(kind).strip()]
        kind = provenance.get("kind of date")
        found += [str(kind)] if kind and kind != "not dated" else []
    return found


CARD, METADATA = "README.md", "croissant.json"


@dataclass(frozen=True, eq=False)
class ExportCandidate:
    """A built benchmark, and what is known of its two sides without any model (schema SPLIT_QUALITY)."""

    built: BuiltBenchmark
    quality: pa.Table


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, the benchmarks' content digests by name, and the number of texts."""

    folder: Path
    digests: dict[str, str]
    texts: int


def require_export_folder(folder: Path) -> None:
    """Raise DataError unless an export may be written to ``folder``: it is new, empty, or an earlier export alone."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder that is new, empty, or holds an earlier export")
    others = sorted(
        {path.relative_to(folder).as_posix() for path in _list_files(folder)} - _read_exported_files(folder)
    )
    if others:
        raise DataError(
            f"{folder} holds {others[0]}, which no export wrote; name a folder that is new, empty, or holds an earlier "
            "export and nothing else"
        )


def require_licences(benchmarks: Sequence[BuiltBenchmark], *, with_text: bool) -> None:
    """Raise DataError if licences do not clearly allow handing the texts on, unless ``with_text`` says that they may.

    Also for a control's texts, whose labels say something of its own models alone.
    """
    for built in benchmarks:
        if built.control is not None:
            raise DataError(
                f"{built.name} cannot be handed on: its labels say what the models of the control {built.control} were "
                "trained on, and nothing of any other model"
            )
    licences = [licence for built in benchmarks for origin in origins_of(built) for licence in origin.licences]
    if (unclear_licences := list_unclear_licences(licences)) and not with_text:
        raise DataError(
            f"the texts of {benchmarks[0].manifest['family']} are not plainly free to hand on (licence: "
            f"{'; '.join(unclear_licences)}), so nothing was written; if you may hand them on, say so with --with-text"
        )


def export(
    benchmarks: Sequence[ExportCandidate], folder: Path, paths: DataPaths, *, hub: str | None, with_text: bool
) -> Exported:
    """Write ``benchmarks``, of one family, as a data set into ``folder``, which replaces an earlier export.

    ``hub`` is the name under which the data set will be found on the hub; None: its folder is its place. Everything is
    written next to the folder, read back as any user would, compared, and moved into place: after an error the folder
    is as it was. Raises DataError for a folder that holds anything else, for texts that may not be handed on
    (:func:`require_licences`), and if what was written does not read back as the same benchmarks.
    """
    require_export_folder(folder)
    require_licences([candidate.built for candidate in benchmarks], with_text=with_text)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp") as temporary:
        written = Path(temporary) / folder.name
        described = [_write_rows(candidate, written, paths) for candidate in benchmarks]
        _write_descriptions(described, [candidate.built for candidate in benchmarks], written, paths, hub)
        _move_into_place(written, folder, Path(temporary) / "before")
    return Exported(
        folder,
        {benchmark.name: benchmark.content_digest for benchmark in described},
        sum(benchmark.rows.num_rows for benchmark in described),
    )


def _write_rows(candidate: ExportCandidate, folder: Path, paths: DataPaths) -> BenchmarkDescription:
    built = candidate.built
    rows = build_export_rows(built, read_attributions(built, paths))
    files: dict[str, str] = {}
    for split, split_rows in group_rows_by_split(rows).items():
        files[split] = f"data/{built.name}/{split}.parquet"
        write_table(folder / files[split], split_rows)
    digest = compute_content_digest(built.examples)
    return BenchmarkDescription(built.name, built.manifest, digest, rows, candidate.quality, origins_of(built), files)


def _write_descriptions(
    descriptions: Sequence[BenchmarkDescription],
    benchmarks: Sequence[BuiltBenchmark],
    folder: Path,
    paths: DataPaths,
    hub: str | None,
) -> None:
    place = {"path": FOLDER} if hub is None else {"hub": hub}
    licence = "; ".join(licences_of(descriptions))
    files = {benchmark: list(says.files.values()) for benchmark, says in zip(benchmarks, descriptions, strict=True)}
    entries = build_benchmark_entries(files, licence, place)
    require_same_benchmarks(
        point_entries_to_folder(entries, folder), [description.content_digest for description in descriptions], paths
    )
    every = [path for description in descriptions for path in description.files.values()]
    digests = {path: file_sha256(folder / path) for path in every}
    sizes = {path: (folder / path).stat().st_size for path in every}
    url = None if hub is None else f"https://huggingface.co/datasets/{hub}"
    metadata = build_croissant(descriptions, sizes, digests, datetime.now(UTC).date(), url)
    _write_durably(folder / METADATA, format_json(metadata))
    _write_durably(folder / CARD, format_benchmark_card(descriptions, entries, digests, hub))


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(new_folder: Path, folder: Path, backup: Path) -> None:
    """Move what was written into place; if that fails, put an earlier export back."""
    if not folder.exists():
        new_folder.rename(folder)
        return
    folder.rename(backup)
    try:
        new_folder.rename(folder)
    except OSError:
        backup.rename(folder)
        raise
    shutil.rmtree(backup)


def _list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def _read_exported_files(folder: Path) -> set[str]:
    """The files of an earlier export, whose metadata lists its rows; none without readable metadata."""
    try:
        metadata: Any = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    rows = list_data_files(metadata)
    return {CARD, METADATA, *rows} if rows else set()
