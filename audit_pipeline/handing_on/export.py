"""Writing a benchmark as a data set: a folder that is there whole, or as it was before.

What belongs here: what lies in the folder, what is refused, and putting it in place. What does not: what the card and
the metadata say (card.py, croissant.py), and sending it to the hub (push.py).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.benchmarks.content import content_digest
from audit_pipeline.catalogue.integrity import as_json, file_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import write_table
from audit_pipeline.errors import DataError
from audit_pipeline.handing_on.card import FOLDER, BenchmarkDescription, licences_of, write_card
from audit_pipeline.handing_on.croissant import croissant, files_in
from audit_pipeline.handing_on.entry import entries_of, require_same, resolved
from audit_pipeline.handing_on.licences import unclear
from audit_pipeline.handing_on.origins import attributions, origins_of
from audit_pipeline.handing_on.table import build_export_rows, by_split

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
    """Raise DataError unless an export may be written to ``folder``: there is nothing, or an earlier export alone."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder that is new, empty, or holds an earlier export")
    others = sorted({path.relative_to(folder).as_posix() for path in _files(folder)} - _known_files(folder))
    if others:
        raise DataError(
            f"{folder} holds {others[0]}, which no export wrote; name a folder that is new, empty, or holds an earlier "
            "export and nothing else"
        )


def require_licences(benchmarks: Sequence[BuiltBenchmark], *, with_text: bool) -> None:
    """Raise DataError where the texts may not be handed on by what their licences say, unless it is said ``with_text``
    that they may; and for a control's texts, whose labels say something of its own models alone."""
    for built in benchmarks:
        if built.control is not None:
            raise DataError(
                f"{built.name} cannot be handed on: its labels say what the models of the control {built.control} were "
                "trained on, and nothing of any other model"
            )
    licences = [one for built in benchmarks for origin in origins_of(built) for one in origin.licences]
    if (asked := unclear(licences)) and not with_text:
        raise DataError(
            f"the texts of {benchmarks[0].manifest['family']} are not plainly free to hand on (licence: "
            f"{'; '.join(asked)}), so nothing was written; if you may hand them on, say so with --with-text"
        )


def export(
    benchmarks: Sequence[ExportCandidate], folder: Path, paths: DataPaths, *, hub: str | None, with_text: bool
) -> Exported:
    """Write ``benchmarks``, of one family, as a data set into ``folder``; what was there before is replaced.

    ``hub`` is the name under which the data set will be found on the hub; None: its folder is its place. Everything is
    written beside the folder, read back as anybody would, compared, and moved into place: after an error the folder is
    as it was. Raises DataError for a folder that holds anything else, for texts that may not be handed on
    (:func:`require_licences`), and where what was written does not read back as the same benchmarks.
    """
    require_export_folder(folder)
    require_licences([one.built for one in benchmarks], with_text=with_text)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp") as beside:
        written = Path(beside) / folder.name
        described = [_write_rows(one, written, paths) for one in benchmarks]
        _write_descriptions(described, [one.built for one in benchmarks], written, paths, hub)
        _move_into_place(written, folder, Path(beside) / "before")
    return Exported(
        folder,
        {one.name: one.content_digest for one in described},
        sum(one.rows.num_rows for one in described),
    )


def _write_rows(one: ExportCandidate, folder: Path, paths: DataPaths) -> BenchmarkDescription:
    built = one.built
    rows = build_export_rows(built, attributions(built, paths))
    files: dict[str, str] = {}
    for split, some in by_split(rows).items():
        files[split] = f"data/{built.name}/{split}.parquet"
        write_table(folder / files[split], some)
    digest = content_digest(built.examples)
    return BenchmarkDescription(built.name, built.manifest, digest, rows, one.quality, origins_of(built), files)


def _write_descriptions(
    described: Sequence[BenchmarkDescription],
    built: Sequence[BuiltBenchmark],
    folder: Path,
    paths: DataPaths,
    hub: str | None,
) -> None:
    place = {"path": FOLDER} if hub is None else {"hub": hub}
    licence = "; ".join(licences_of(described))
    files = {one: list(says.files.values()) for one, says in zip(built, described, strict=True)}
    entries = entries_of(files, licence, place)
    require_same(resolved(entries, folder), [one.content_digest for one in described], paths)
    every = [path for one in described for path in one.files.values()]
    digests = {path: file_sha256(folder / path) for path in every}
    sizes = {path: (folder / path).stat().st_size for path in every}
    url = None if hub is None else f"https://huggingface.co/datasets/{hub}"
    metadata = croissant(described, sizes, digests, _today(), url)
    _write_text(folder / METADATA, as_json(metadata))
    _write_text(folder / CARD, write_card(described, entries, digests, hub))


def _today() -> date:
    return datetime.now(UTC).date()


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(written: Path, folder: Path, aside: Path) -> None:
    """Move what was written into place; what was there before is put back where that fails."""
    if not folder.exists():
        written.rename(folder)
        return
    folder.rename(aside)
    try:
        written.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    shutil.rmtree(aside)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def _known_files(folder: Path) -> set[str]:
    """The files of an earlier export: its metadata lists its rows; nothing where that is not there."""
    try:
        metadata: Any = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    rows = files_in(metadata)
    return {CARD, METADATA, *rows} if rows else set()
