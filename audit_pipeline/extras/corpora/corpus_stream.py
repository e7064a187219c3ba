"""Reference corpora as resumable streams of documents, one row at a time.

``datasets`` streams data sets of the hub without a copy on disk. JSON lines are streamed as plain text, and this module
parses each line. A broken line thus costs one document instead of the rest of the file. A file that is not UTF-8 stops
the stream with an error, because ``datasets`` decodes compressed files before their bytes can be checked.
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
from audit_pipeline.readers import hub_faults
from audit_pipeline.readers.file_bytes import find_irregular_kind
from audit_pipeline.readers.formats import SUFFIXES, compute_file_digest, has_row_format, open_texts
from audit_pipeline.readers.row_formats.lines import parse_json_row
from audit_pipeline.readers.text_rows import Row, Skipped, TextRow, UnreadableFileError, read_text_row
from audit_pipeline.sources.base import Document
from audit_pipeline.sources.config import require_source
from audit_pipeline.store.files import read_json
from audit_pipeline.store.integrity import FileIdentity, file_identity
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import digest, text_sha256

State = Mapping[str, Any]

# The beginnings of the names of hidden files and notes, which are no part of a corpus.
_NO_DATA = re.compile(r"_|README|LICEN[CS]E|CHECKSUM", re.IGNORECASE)


class DocumentStream(Protocol):
    """A stream of documents in a fixed order. A new stream can continue after the last document of an earlier one."""

    def __iter__(self) -> Iterator[TextRow | Skipped]: ...

    def state(self) -> State:
        """Return the position after the last yielded document as JSON values."""
        ...


@dataclass(frozen=True)
class Corpus:
    """A corpus whose documents are read as a stream.

    Attributes:
        digest: Digest of the documents.
        open: Function that opens a stream of the documents. It continues from the state of an earlier stream, or starts
            at the first document if the state is None.
        upstream: Data versions of the inputs that the documents come from, by their names in the lineage.
    """

    digest: str
    open: Callable[[State | None], DocumentStream]
    upstream: Mapping[str, str] = field(default_factory=dict)


class FileStream:
    """The documents of several files in order.

    An unreadable file yields a skipped row, and the stream continues with the next file. A file that has changed since
    the digest of the corpus was computed counts as unreadable. ``files`` has the identity of each file at that time.
    """

    def __init__(
        self, files: Mapping[Path, FileIdentity], names: Sequence[str], column: str | None, state: State | None
    ) -> None:
        self._files = [*files]
        self._identities = files
        self._names = names
        self._column = column
        self._file = 0
        self._row = 0
        if state is not None:
            self._file = int(state["file"])
            self._row = int(state["row"])

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        while self._file < len(self._files):
            begin = self._row
            row = 0
            name = self._names[self._file]
            path = self._files[self._file]
            try:
                # The rows are not held in memory, because a .gz file can unpack to any size.
                texts = open_texts(path, self._column, name=name)
                for item in texts.entries():
                    row += 1
                    if row > begin:
                        self._row = row
                        yield item
                if file_identity(path) != self._identities[path]:
                    raise UnreadableFileError(path, "has changed since the command began: run the command again")
            except UnreadableFileError as error:
                if row >= begin:
                    self._row = row + 1
                    yield Skipped(name, row, error.reason)
            self._file += 1
            self._row = 0

    def state(self) -> State:
        """Return the index of the current file, and the number of its rows that are done."""
        return {"file": self._file, "row": self._row}


class TextsInMemory:
    """A stream of documents that are held in memory."""

    def __init__(self, texts: Sequence[str], state: State | None) -> None:
        self._texts = texts
        self._next = 0 if state is None else int(state["next"])

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        while self._next < len(self._texts):
            self._next += 1
            yield TextRow(f"document {self._next}", self._next - 1, self._texts[self._next - 1], {})

    def state(self) -> State:
        """Return the index of the next document."""
        return {"next": self._next}


def corpus_from_files(path: Path, column: str | None) -> Corpus:
    """Return the corpus of a file, or of all readable files in a folder and its subfolders.

    The digest covers the names and bytes of the files, so this function reads every file once.

    Raises:
        DataError: If the path is missing or contains no readable file.
    """
    files, _ = list_corpus_files(path)
    names = [name_corpus_file(file, path) for file in files]
    try:
        identities = {file: file_identity(file) for file in files}
        version = digest([[name, compute_file_digest(file)] for name, file in zip(names, files, strict=True)])
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from error
    return Corpus(version[:16], lambda state: FileStream(identities, names, column, state))


def corpus_from_source(source: str, paths: DataPaths) -> Corpus:
    """Return the corpus of a source's documents. Fetch the documents if none are stored.

    All documents are held in memory.

    Raises:
        DataError: If the stored documents are unreadable.
        SourceError: If the source cannot be fetched.
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
    """List a file, or the files in a folder and its subfolders.

    A folder that ``datasets`` saved counts as one file. Hidden files and hidden folders are no part of a corpus.

    Returns:
        The sorted readable files, and the sorted names of all other files and of unreadable folders. Notes (README,
        licence, checksums) that are not readable are in neither list.

    Raises:
        DataError: If the path is missing or contains no readable file.
    """
    kind = find_irregular_kind(path)
    if kind is not None and not path.is_dir():
        if os.path.lexists(path):
            raise DataError(f"{path} is {kind}, not a regular file. Give a regular file or a folder.")
        raise DataError(f"{path}: no such file or folder. Check the path.")
    if has_row_format(path):
        return [path], []
    if not path.is_dir():
        raise DataError(f"{path}: unknown file format. Use a file whose name ends in one of {', '.join(SUFFIXES)}")
    files: list[Path] = []
    ignored: list[str] = []
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            entries = list(folder.iterdir())
        except OSError as error:
            ignored.append(f"{name_corpus_file(folder, path)} (unreadable folder: {error.strerror})")
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            kind = find_irregular_kind(entry)
            if has_row_format(entry) and (kind is None or entry.is_dir()):
                files.append(entry)
            elif entry.is_dir() and not entry.is_symlink():
                folders.append(entry)
            elif not any(map(_NO_DATA.match, entry.relative_to(path).parts)):
                ignored.append(name_corpus_file(entry, path) + (f" ({kind})" if kind else ""))
    if not files:
        raise DataError(
            f"{path} contains no readable file. The names of readable files end in one of {', '.join(SUFFIXES)}"
        )
    return sorted(files), sorted(ignored)


def name_corpus_file(file: Path, root: Path) -> str:
    """Return the printable path of a file relative to ``root``, or its name if the file is ``root`` itself."""
    return escape_unprintable(file.name if file == root else str(file.relative_to(root)))


_REMEDY = "or set path to a copy of the data set's files"
_MAX_UNUSABLE = 1000
"""Number of rows after which a stream stops with an error if no row was usable. A wrong column would otherwise be
noticed only after terabytes of rows."""


class HubStream:
    """The documents of a data set's files: first the Parquet files, then the files of JSON lines.

    Args:
        corpus_label: The name of the corpus in messages.
        files: Addresses or paths of the files.
        column: The text column.
        state: The position of an earlier stream.
        all_columns: Read all columns of Parquet files instead of the text column only.
    """

    def __init__(
        self, corpus_label: str, files: Sequence[str], column: str, state: State | None, *, all_columns: bool = False
    ) -> None:
        self._label = corpus_label
        self._column = column
        self._all_columns = all_columns
        parquet = [name for name in files if _is_parquet(name)]
        lines = [name for name in files if not _is_parquet(name)]
        self._groups = [group for group in (parquet, lines) if group]
        self._group = 0
        self._row = 0
        self._begin: State | None = None
        if state is not None:
            self._group = int(state["group"])
            self._row = int(state["row"])
            self._begin = state["inner"]
        self._rows: Any = None
        # A resumed stream has already had a usable row.
        self._has_usable_row = state is not None
        self._problem_of_row: str | None = None

    def __iter__(self) -> Iterator[TextRow | Skipped]:
        # The import of datasets takes a second, and only this method needs it.
        from datasets import load_dataset  # noqa: PLC0415
        from datasets.exceptions import DatasetsError  # noqa: PLC0415

        while self._group < len(self._groups):
            files = self._groups[self._group]
            parquet = _is_parquet(files[0])
            builder = "text"
            options: dict[str, Any] = {}
            if parquet:
                builder = "parquet"
                if not self._all_columns:
                    options["columns"] = [self._column]
            try:
                rows = load_dataset(builder, data_files=files, split="train", streaming=True, **options)
                if self._begin is not None:
                    rows.load_state_dict(dict(self._begin))
                self._rows = rows
                for row in rows:
                    self._row += 1
                    item = self._parse_row(row, parquet=parquet)
                    if item is not None:
                        self._require_usable(item)
                        yield item
            except (*hub_faults.HUB_ERRORS, DatasetsError, ValueError, RuntimeError) as error:
                raise self._build_stream_error(error) from error
            self._group += 1
            self._begin = None
            self._rows = None

    def _require_usable(self, item: TextRow | Skipped) -> None:
        if not isinstance(item, Skipped):
            self._has_usable_row = True
        elif not self._has_usable_row:
            self._problem_of_row = self._problem_of_row or item.reason
            if self._row >= _MAX_UNUSABLE:
                raise DataError(
                    f"{self._label}: none of the first {_MAX_UNUSABLE:,} rows can be used. The problem of the first "
                    f"row: {self._problem_of_row}. Correct files or text_column in config/references.yaml, {_REMEDY}."
                )

    def _build_stream_error(self, error: Exception) -> DataError:
        fault = hub_faults.classify_hub_error(error)
        if fault is None:
            return DataError(
                f"{self._label} cannot be read after row {self._row:,} ({to_one_line(error)[:300]}). "
                f"Correct files or text_column in config/references.yaml, {_REMEDY}."
            )
        problem = f"{self._label}, after row {self._row:,}, {fault.reason}"
        if fault.is_transient:
            return hub_faults.HubDataUnreachableError(
                f"{problem} (the next count resumes at the last checkpoint), {_REMEDY}"
            )
        return DataError(f"{problem}, {_REMEDY}")

    def _parse_row(self, row: dict[str, Any], *, parquet: bool) -> TextRow | Skipped | None:
        location = f"{self._label}:{self._row}"
        index = self._row - 1
        if parquet:
            return read_text_row(Row(location, index, row), self._column)
        if not row["text"].strip():
            return None
        return read_text_row(parse_json_row(row["text"].encode(), location, index), self._column)

    def state(self) -> State:
        """Return the index of the current group of files, the number of rows so far, and the state of ``datasets``."""
        inner = self._begin
        if self._rows is not None:
            inner = self._rows.state_dict()
        return {"group": self._group, "row": self._row, "inner": inner}


def corpus_from_hub(hub: str, patterns: Sequence[str], revision: str | None, column: str | None) -> Corpus:
    """Return the corpus of a data set's files that match one of the patterns, at the current commit of ``revision``.

    Raises:
        DataError: If the data set is unreadable or none of its files matches.
    """
    commit, files = list_hub_files(hub, patterns, revision)
    addresses = [build_hub_address(hub, commit, name) for name in files]
    return Corpus(
        digest(hub, commit, files)[:16],
        lambda state: HubStream(f"the data set {hub}", addresses, column or "text", state),
        {f"hub:{hub}": commit},
    )


def list_hub_files(hub: str, patterns: Sequence[str], revision: str | None) -> tuple[str, list[str]]:
    """Return the commit of a data set and its sorted files that match one of the patterns.

    Raises:
        DataError: If the data set is unreadable or none of its files matches.
    """
    with hub_faults.convert_hub_errors(
        f"the data set {hub}", revision, _REMEDY, DataError, hub_faults.HubDataUnreachableError
    ):
        data_set = HfApi().dataset_info(hub, revision=revision)
    files: list[str] = []
    for name in sorted(file.rfilename for file in data_set.siblings or []):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            files.append(name)
    if not files:
        raise DataError(
            f"the data set {hub} has no file that matches {', '.join(patterns)}: correct files in "
            "config/references.yaml"
        )
    return str(data_set.sha), files


def build_hub_address(hub: str, commit: str, name: str) -> str:
    """Return the address at which ``datasets`` opens a file of a data set."""
    return f"hf://datasets/{hub}@{commit}/{name}"


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")
