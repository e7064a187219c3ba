"""Reference corpora as streams of documents: one row at a time, and from where an earlier stream stopped.

Data sets of the hub are read through ``datasets``, and nothing is kept on disk. Files of JSON lines are streamed as
plain lines and parsed here, so that one broken line costs one document; read as JSON, it would cost the file. A file
that is not UTF-8 stops the count with an error that says so: `datasets` decodes compressed files before their
bytes can be checked.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from huggingface_hub import HfApi

from audit_pipeline.errors import DataError, escape_unprintable, to_one_line
from audit_pipeline.readers.formats import SUFFIXES, compute_file_digest, has_row_format, open_texts
from audit_pipeline.readers.hub_faults import (
    HUB_ERRORS,
    HubDataUnreachableError,
    classify_hub_error,
    hub_faults_as_errors,
)
from audit_pipeline.readers.regular_files import find_irregular_kind
from audit_pipeline.readers.row_formats.json_lines import parse_json_row
from audit_pipeline.readers.text_rows import Row, Skipped, TextRow, UnreadableFileError, read_text_row
from audit_pipeline.sources.base import Document
from audit_pipeline.sources.config import require_source
from audit_pipeline.store.files import read_json
from audit_pipeline.store.integrity import FileIdentity, file_identity
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import digest, text_sha256

State = Mapping[str, Any]

# How names of files begin that are no part of a corpus.
_NO_DATA = re.compile(r"[._]|(README|LICEN[CS]E|CHECKSUM)", re.IGNORECASE)


class DocumentStream(Protocol):
    """Documents in a fixed order; an iterator begins where ``state`` says."""

    def __iter__(self) -> Iterator[TextRow | Skipped]: ...

    def state(self) -> State:
        """The place after the last document that was yielded, as values that JSON can hold."""
        ...


@dataclass(frozen=True)
class Corpus:
    """Documents to be counted. ``digest`` changes with them; ``upstream`` are data versions that they come from."""

    digest: str
    open: Callable[[State | None], DocumentStream]
    upstream: Mapping[str, str] = field(default_factory=dict)


class FileStream:
    """The documents of files, one after the other; a file that cannot be read is named, and the others go on.

    So is one that is no longer as in ``files``, which holds what each file was known by when its digest was computed.
    """

    def __init__(
        self, files: Mapping[Path, FileIdentity], names: Sequence[str], column: str | None, state: State | None
    ) -> None:
        self._files, self._identities = [*files], files
        self._names, self._column = names, column
        self._file, self._row = (0, 0) if state is None else (int(state["file"]), int(state["row"]))

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        while self._file < len(self._files):
            begin, row = self._row, 0
            name, path = self._names[self._file], self._files[self._file]
            try:
                # Nothing is kept of what a .gz unpacks to: it may be any amount.
                texts = open_texts(path, self._column, name=name)
                for item in texts.entries():
                    row += 1
                    if row > begin:
                        self._row = row
                        yield item
                if file_identity(path) != self._identities[path]:
                    raise UnreadableFileError(path, "has changed since the command began: run it again")
            except UnreadableFileError as error:
                if row >= begin:
                    self._row = row + 1
                    yield Skipped(name, row, error.reason)
            self._file, self._row = self._file + 1, 0

    def state(self) -> State:
        return {"file": self._file, "row": self._row}


class TextsInMemory:
    """Documents that are in memory."""

    def __init__(self, texts: Sequence[str], state: State | None) -> None:
        self._texts = texts
        self._next = 0 if state is None else int(state["next"])

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        while self._next < len(self._texts):
            self._next += 1
            yield TextRow(f"document {self._next}", self._next - 1, self._texts[self._next - 1], {})

    def state(self) -> State:
        return {"next": self._next}


def corpus_from_files(path: Path, column: str | None) -> Corpus:
    """The file at ``path``, or every file of a readable kind in that folder and the folders in it.

    The digest covers the names and bytes of the files: it reads all of them once. Raises DataError where there is no
    such file, and none of a readable kind in the folder.
    """
    files, _ = list_corpus_files(path)
    names = [name_corpus_file(file, path) for file in files]
    try:
        identities = {file: file_identity(file) for file in files}
        version = digest([[name, compute_file_digest(file)] for name, file in zip(names, files, strict=True)])
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return Corpus(version[:16], lambda state: FileStream(identities, names, column, state))


def corpus_from_source(source: str, paths: DataPaths) -> Corpus:
    """The documents of a source as they were last fetched, or, before that, as the source has them now.

    Only for a source that fits into memory. Raises DataError or SourceError if they cannot be read.
    """
    upstream: dict[str, str] = {}
    if paths.documents(source).exists():
        texts: list[str] = read_documents(paths, source).column("text").to_pylist()
        manifest = paths.source_manifest(source)
        if manifest.exists():
            upstream = {f"documents/{source}": str(read_json(manifest)["data_version"])}
    else:
        known = require_source(source)
        items = known.fetch(known.settings(), paths.downloads)
        texts = [item.text for item in items if isinstance(item, Document)]
    by_digest = sorted((text_sha256(text), text) for text in texts)
    version = digest([sha256 for sha256, _ in by_digest])
    return Corpus(version[:16], lambda state: TextsInMemory([text for _, text in by_digest], state), upstream)


def list_corpus_files(path: Path) -> tuple[list[Path], list[str]]:
    """The file at ``path``, or those of a readable kind in that folder and the folders in it, sorted; and by name what
    else lies there, less notes and hidden files, which are no part of a corpus.

    A data set that was saved counts as a file. Raises DataError where there is no such file, or none of such a kind.
    """
    if (kind := find_irregular_kind(path)) is not None and not path.is_dir():
        problem = f"is {kind}, not a regular file" if os.path.lexists(path) else "no such file or folder"
        raise DataError(f"{path}: {problem}")
    if has_row_format(path):
        return [path], []
    if not path.is_dir():
        raise DataError(f"{path}: cannot tell its format from its name; use one of {', '.join(SUFFIXES)}")
    files: list[Path] = []
    ignored: list[str] = []
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            entries = list(folder.iterdir())
        except OSError as error:
            ignored.append(f"{name_corpus_file(folder, path)} (a folder that cannot be read: {error.strerror})")
            continue
        for entry in entries:
            kind = find_irregular_kind(entry)
            if has_row_format(entry) and (kind is None or entry.is_dir()):
                files.append(entry)
            elif entry.is_dir() and not entry.is_symlink():
                folders.append(entry)
            elif not any(map(_NO_DATA.match, entry.relative_to(path).parts)):
                ignored.append(name_corpus_file(entry, path) + (f" ({kind})" if kind else ""))
    if not files:
        raise DataError(f"{path} holds no file of a kind that can be read: {', '.join(SUFFIXES)}")
    return sorted(files), sorted(ignored)


def name_corpus_file(file: Path, root: Path) -> str:
    """Return the printable name of a file from its folder ``root`` on, or its own name if it is ``root``."""
    return escape_unprintable(file.name if file == root else str(file.relative_to(root)))


_REMEDY = "or set path to a copy of its files"
_MOST_UNUSABLE = 1000
"""If none of so many rows can be used, no later one is expected to be: a corpus may be terabytes."""


class HubStream:
    """The documents of a data set's files (addresses or paths, all Parquet or all JSON lines), in their order."""

    def __init__(
        self, corpus_label: str, files: Sequence[str], column: str, state: State | None, *, all_columns: bool = False
    ) -> None:
        self._what, self._column, self._all_columns = corpus_label, column, all_columns
        parquet = [name for name in files if _is_parquet(name)]
        lines = [name for name in files if not _is_parquet(name)]
        self._groups = [group for group in (parquet, lines) if group]
        self._group, self._row = (0, 0) if state is None else (int(state["group"]), int(state["row"]))
        self._begin: State | None = None if state is None else state["inner"]
        self._rows: Any = None
        # Whether a row could be used, and why the first could not be. A stream that goes on is past the first rows.
        self._usable = state is not None
        self._unusable: str | None = None

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        # Here and not above: importing datasets takes a second, and only this needs it.
        from datasets import load_dataset  # noqa: PLC0415
        from datasets.exceptions import DatasetsError  # noqa: PLC0415

        while self._group < len(self._groups):
            files = self._groups[self._group]
            parquet = _is_parquet(files[0])
            options: dict[str, Any] = {"columns": [self._column]} if parquet and not self._all_columns else {}
            try:
                rows = load_dataset(
                    "parquet" if parquet else "text", data_files=files, split="train", streaming=True, **options
                )
                if self._begin is not None:
                    rows.load_state_dict(dict(self._begin))
                self._rows = rows
                for row in rows:
                    self._row += 1
                    item = self._parse_row(row, parquet=parquet)
                    if item is not None:
                        self._require_usable(item)
                        yield item
            except (*HUB_ERRORS, DatasetsError, ValueError, RuntimeError) as error:
                raise self._build_stream_error(error) from error
            self._group, self._begin, self._rows = self._group + 1, None, None

    def _require_usable(self, item: TextRow | Skipped) -> None:
        if not isinstance(item, Skipped):
            self._usable = True
        elif not self._usable:
            self._unusable = self._unusable or item.reason
            if self._row >= _MOST_UNUSABLE:
                raise DataError(
                    f"{self._what}: none of its first {_MOST_UNUSABLE:,} rows can be used; the first: "
                    f"{self._unusable}; correct files or text_column, {_REMEDY}"
                )

    def _build_stream_error(self, error: Exception) -> DataError:
        fault = classify_hub_error(error)
        if fault is None:
            return DataError(
                f"{self._what} cannot be read after row {self._row:,} ({to_one_line(error)[:300]}); "
                f"correct files or text_column, {_REMEDY}"
            )
        problem = f"{self._what}, after row {self._row:,}, {fault.why}"
        if fault.is_transient:
            return HubDataUnreachableError(f"{problem} (counting again goes on from the last checkpoint), {_REMEDY}")
        return DataError(f"{problem}, {_REMEDY}")

    def _parse_row(self, row: dict[str, Any], *, parquet: bool) -> TextRow | Skipped | None:
        location = f"{self._what}:{self._row}"
        if not parquet and not row["text"].strip():
            return None
        index = self._row - 1
        found = Row(location, index, row) if parquet else parse_json_row(row["text"].encode(), location, index)
        return read_text_row(found, self._column)

    def state(self) -> State:
        inner = self._begin if self._rows is None else self._rows.state_dict()
        return {"group": self._group, "row": self._row, "inner": inner}


def corpus_from_hub(hub: str, patterns: Sequence[str], revision: str | None, column: str | None) -> Corpus:
    """The files of a data set that match one of ``patterns``, at the commit that ``revision`` stands for now.

    Raises DataError if the data set cannot be read or none of its files matches.
    """
    commit, files = list_hub_files(hub, patterns, revision)
    addresses = [build_hub_address(hub, commit, name) for name in files]
    return Corpus(
        digest(hub, commit, files)[:16],
        lambda state: HubStream(f"the data set {hub}", addresses, column or "text", state),
        {f"hub:{hub}": commit},
    )


def list_hub_files(hub: str, patterns: Sequence[str], revision: str | None) -> tuple[str, list[str]]:
    """The commit, and those of the data set's files that match one of ``patterns``; DataError where none does."""
    with hub_faults_as_errors(f"the data set {hub}", revision, _REMEDY, DataError, HubDataUnreachableError):
        found = HfApi().dataset_info(hub, revision=revision)
    names = sorted(file.rfilename for file in found.siblings or [])
    files = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not files:
        raise DataError(
            f"the data set {hub} has no file that matches {', '.join(patterns)}: correct files of its entry"
        )
    return str(found.sha), files


def build_hub_address(hub: str, commit: str, name: str) -> str:
    """Where a file of a data set is, for `datasets`."""
    return f"hf://datasets/{hub}@{commit}/{name}"


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")
