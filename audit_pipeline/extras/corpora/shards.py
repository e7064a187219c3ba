"""A corpus as shards: files or parts of a data set that are read one by one, and the documents in each.

A .txt file is one document here, and not one a line: a passage may run over lines. One of more than 64 MiB is read in
parts of that size, cut at line ends.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.corpora.config import load_references
from audit_pipeline.extras.corpora.corpus import (
    HubStream,
    build_hub_address,
    corpus_from_source,
    list_corpus_files,
    list_hub_files,
)
from audit_pipeline.extras.corpora.matching import CorpusDocument
from audit_pipeline.readers.file_bytes import LINE_LIMIT, InputFile, open_bytes
from audit_pipeline.readers.formats import compute_file_digest, find_suffix, open_texts
from audit_pipeline.readers.rows import EMPTY, Skipped, TextRow
from audit_pipeline.store.paths import DataPaths, to_path_segment
from audit_pipeline.tables import digest

_IDENTITIES = ("id", "document_id", "doc_id", "blob_id", "warc_record_id", "sha256", "sha1")
_URL = "url"
# Folders of tables and of the lineage carry it beside a benchmark's name.
_LONGEST_NAME = 100
_LONGEST_IDENTITY = 1000


@dataclass(frozen=True)
class Shard:
    """One file of a corpus, or all documents of a source. ``stamp``: changes with what lies there. ``bytes``: its size
    on disk; None where that is not known."""

    name: str
    stamp: str
    bytes: int | None
    path: Path | None = None
    address: str | None = None
    source: str | None = None
    text_column: str | None = None

    def documents(self) -> Iterator[CorpusDocument | Skipped]:
        """Its documents in their order; raises UnreadableFileError, or another AuditError, where it cannot be read."""
        if self.bytes == 0:
            return
        for row in self._rows():
            if isinstance(row, Skipped):
                # An empty document holds nothing that would be missed.
                if not row.reason.endswith(EMPTY):
                    yield row
                continue
            identities = (row.values.get(name) for name in _IDENTITIES)
            identity = next((value for value in identities if value is not None), row.location)
            url = row.values.get(_URL)
            yield CorpusDocument(row.index, _to_cell(identity), None if url is None else _to_cell(url), row.text)

    def digest(self) -> str | None:
        """Return the sha256 of its bytes; of what is not a file here None: its stamp says what it is."""
        try:
            return None if self.path is None else compute_file_digest(self.path)
        except OSError:
            return None

    def has_changed(self) -> bool:
        """Return whether its file is another one than when the corpus was listed."""
        try:
            return self.path is not None and _build_stamp(self.path.stat()) != self.stamp
        except OSError:
            return True

    def _rows(self) -> Iterator[TextRow | Skipped]:
        if self.address is not None:
            stream = HubStream(self.name, [self.address], self.text_column or "text", None, all_columns=True)
            return iter(stream)
        if self.source is not None:
            return iter(corpus_from_source(self.source, DataPaths.from_environment()).open(None))
        assert self.path is not None
        suffix = find_suffix(self.path) or ""
        if suffix.startswith(".txt"):
            return _read_whole_text(self.path, self.name, suffix.removeprefix(".txt"))
        also = (*_IDENTITIES, _URL)
        # Nothing is kept of what a file unpacks to: it may be any amount.
        return open_texts(self.path, self.text_column, also, name=self.name).entries()


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus by its name, with all of its shards, and those that are to be read, by their numbers.

    ``ignored``: what else lies in its folder and is not read, by name.
    """

    name: str
    shards: Sequence[Shard]
    selected: Sequence[int]
    ignored: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of it is to be read."""
        return len(self.selected) == len(self.shards)

    @property
    def stamp(self) -> str:
        """Changes with the names of its shards, what lies there, and the column that is read."""
        return digest([[shard.name, shard.stamp, shard.text_column] for shard in self.shards])[:16]


def open_sharded_corpus(corpus: str, text_column: str | None = None, only: str | None = None) -> ShardedCorpus:
    """Return a corpus of config/references.yaml by its name, or the files at a path.

    ``only``: the shards whose names match this pattern are to be read, the others are left unread. Raises an AuditError
    where there is no such corpus, it cannot be listed, or no shard matches.
    """
    references, path = load_references(), Path(corpus).expanduser()
    name = corpus if corpus in references.names else path.resolve().name
    if corpus in references.names:
        entry = references.named(corpus)
        column, ignored = text_column or entry.text_column, list[str]()
        if entry.path is not None:
            shards, ignored = _list_shards(entry.path, column)
        elif entry.package is not None:
            stamp = corpus_from_source(entry.package, DataPaths.from_environment()).digest
            shards = [Shard(entry.package, stamp, None, source=entry.package)]
        else:
            commit, files = list_hub_files(str(entry.hub), entry.files or (), entry.revision)
            shards = [
                Shard(file, commit, None, address=build_hub_address(str(entry.hub), commit, file), text_column=column)
                for file in files
            ]
    elif name in references.names:
        raise ConfigError(f"{corpus} is called as the corpus {name} of config/references.yaml: rename one of the two")
    elif path.exists():
        shards, ignored = _list_shards(path, text_column)
    else:
        names = ", ".join(references.names)
        raise ConfigError(f"{corpus} is neither a file or folder nor a corpus of config/references.yaml ({names})")
    selected = [number for number, shard in enumerate(shards) if only is None or fnmatch.fnmatchcase(shard.name, only)]
    if not selected:
        raise DataError(f"none of the {len(shards):,} shards of {corpus} is called {only}; the first: {shards[0].name}")
    if "|" in name or len(to_path_segment(name)) > _LONGEST_NAME:
        raise ConfigError(f"{name[:80]!r} cannot name a corpus in tables and folders: give it one in references.yaml")
    return ShardedCorpus(name, shards, selected, ignored)


def _list_shards(path: Path, text_column: str | None) -> tuple[list[Shard], list[str]]:
    """The files at a path as shards, and what else lies there."""
    shards = []
    files, ignored = list_corpus_files(path)
    for file in files:
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        status = file.stat()
        shards.append(Shard(name, _build_stamp(status), status.st_size, path=file.absolute(), text_column=text_column))
    return shards, ignored


def _build_stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _to_cell(value: object) -> str:
    """As tables can hold it."""
    return str(value)[:_LONGEST_IDENTITY].encode("utf-8", "replace").decode()


def _read_whole_text(path: Path, name: str, packed: str) -> Iterator[TextRow | Skipped]:
    with open_bytes(InputFile(path, name, ".txt", packed=packed)) as binary:
        number, kept = 0, b""
        while piece := binary.read(LINE_LIMIT - len(kept)):
            content = kept + piece
            cut = len(content)
            if len(content) >= LINE_LIMIT:
                cut = content.rfind(b"\n") + 1 or content.rfind(b" ") + 1 or cut
            content, kept = content[:cut], content[cut:]
            location = name if number == 0 and not kept else f"{name}, part {number + 1}"
            try:
                yield TextRow(location, number, content.decode("utf-8-sig" if number == 0 else "utf-8"), {})
            except UnicodeDecodeError as error:
                yield Skipped(location, number, f"invalid UTF-8 at byte {error.start}")
            number += 1
    if kept:
        yield TextRow(f"{name}, part {number + 1}", number, kept.decode("utf-8", "replace"), {})
