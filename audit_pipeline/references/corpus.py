"""Reference corpora as streams of documents: one row at a time, and from where an earlier stream broke off.

What belongs here: what a corpus is, and the documents of files on disk and of the embedded default. What does not: file
formats (fetch/), data sets of the hub (hub.py), counting (tally.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from audit_pipeline.catalogue.contracts import digest, text_sha256
from audit_pipeline.catalogue.documents import read_documents
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.read import SUFFIXES, digest_of, holds_rows, open_texts
from audit_pipeline.fetch.rows import Skipped, UnreadableFileError
from audit_pipeline.sources.registry import source_named

State = Mapping[str, Any]


class DocumentStream(Protocol):
    """Documents in a fixed order; an iterator begins where ``state`` says."""

    def __iter__(self) -> Iterator[str | Skipped]: ...

    def state(self) -> State:
        """The place behind the last document that was yielded, as values that JSON can hold."""
        ...


@dataclass(frozen=True)
class Corpus:
    """Documents to be counted. ``digest`` changes with them; ``upstream`` are data versions that they come from."""

    digest: str
    open: Callable[[State | None], DocumentStream]
    upstream: Mapping[str, str] = field(default_factory=dict)


class FileStream:
    """The documents of files, one after the other; a file that cannot be read is named, and the others go on."""

    def __init__(self, files: Sequence[Path], names: Sequence[str], column: str | None, state: State | None) -> None:
        self._files, self._names, self._column = files, names, column
        self._file, self._row = (0, 0) if state is None else (int(state["file"]), int(state["row"]))

    def __iter__(self) -> Iterator[str | Skipped]:
        while self._file < len(self._files):
            begin, seen = self._row, 0
            name = self._names[self._file]
            try:
                # Nothing is kept of what a .gz unpacks to: it may be any amount.
                texts = open_texts(self._files[self._file], self._column, name=name, unpacked_limit=None)
                for item in texts.entries():
                    seen += 1
                    if seen > begin:
                        self._row = seen
                        yield item if isinstance(item, Skipped) else item.text
            except UnreadableFileError as error:
                if seen >= begin:
                    self._row = seen + 1
                    yield Skipped(name, seen, error.reason)
            self._file, self._row = self._file + 1, 0

    def state(self) -> State:
        return {"file": self._file, "row": self._row}


class TextsInMemory:
    """Documents that are in memory."""

    def __init__(self, texts: Sequence[str], state: State | None) -> None:
        self._texts = texts
        self._next = 0 if state is None else int(state["next"])

    def __iter__(self) -> Iterator[str | Skipped]:
        while self._next < len(self._texts):
            self._next += 1
            yield self._texts[self._next - 1]

    def state(self) -> State:
        return {"next": self._next}


def files_corpus(path: Path, column: str | None) -> Corpus:
    """The file at ``path``, or every file of a readable kind in that folder and the folders in it.

    The digest covers the names and bytes of the files: it reads all of them once. Raises DataError where there is no
    such file, and none of a readable kind in the folder.
    """
    files = _files(path)
    names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
    try:
        version = digest([[name, digest_of(file)] for name, file in zip(names, files, strict=True)])
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return Corpus(version[:16], lambda state: FileStream(files, names, column, state))


def source_corpus(source: str, paths: DataPaths) -> Corpus:
    """The documents of a source as they were last fetched, or, before that, as the source has them now.

    Only for a source that fits into memory. Raises DataError or SourceError where they cannot be had.
    """
    upstream: dict[str, str] = {}
    if paths.documents(source).exists():
        texts: list[str] = read_documents(paths, source).column("text").to_pylist()
        manifest = paths.source_manifest(source)
        if manifest.exists():
            upstream = {f"documents/{source}": str(read_json(manifest)["data_version"])}
    else:
        known = source_named(source)
        harvest = known.fetch(known.settings(), paths.downloads)
        texts = [document.text for document in harvest.documents]
    by_digest = sorted((text_sha256(text), text) for text in texts)
    version = digest([sha256 for sha256, _ in by_digest])
    return Corpus(version[:16], lambda state: TextsInMemory([text for _, text in by_digest], state), upstream)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if holds_rows(path):
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: cannot tell its format from its name; use one of {', '.join(SUFFIXES)}")
    files = sorted(_inside(path))
    if not files:
        raise DataError(f"{path} holds no file of a kind that can be read: {', '.join(SUFFIXES)}")
    return files


def _inside(folder: Path) -> Iterator[Path]:
    """The files of a readable kind in a folder and the folders in it; a data set that was saved is one of them."""
    for path in folder.iterdir():
        if holds_rows(path) and (path.is_file() or path.is_dir()):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _inside(path)
