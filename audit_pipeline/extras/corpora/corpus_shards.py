"""The shards of a corpus, and their documents.

A shard is a file of the corpus, or all documents of a source. A .txt file is one document, not one document per line,
because a passage can span several lines. A .txt file of more than 64 MiB is read in parts of at most this size. If
possible, a part ends at the end of a line.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.corpora import corpus_stream
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.matching import CorpusDocument
from audit_pipeline.readers.file_bytes import LINE_LIMIT, InputFile, describe_invalid_bytes, open_bytes
from audit_pipeline.readers.formats import compute_file_digest, find_suffix, open_texts
from audit_pipeline.readers.text_rows import EMPTY, Skipped, TextRow
from audit_pipeline.store.paths import DataPaths, to_path_segment
from audit_pipeline.tables import digest

_IDENTITIES = ("id", "document_id", "doc_id", "blob_id", "warc_record_id", "sha256", "sha1")
_URL = "url"
# The maximum is low, because names of folders and of ledger entries contain a benchmark name besides the corpus name.
_MAX_NAME_LENGTH = 100
_MAX_CELL_LENGTH = 1000


@dataclass(frozen=True)
class CorpusShard:
    """A file of a corpus, or all documents of a source.

    Attributes:
        stamp: A text that changes if the content changes. For a local file, it has the size and modification time.
        bytes: Size on disk, or None if it is unknown.
        path: Path of a local file.
        address: Address of a file on the hub.
        source: Name of a source.
    """

    name: str
    stamp: str
    bytes: int | None
    path: Path | None = None
    address: str | None = None
    source: str | None = None
    text_column: str | None = None

    def documents(self) -> Iterator[CorpusDocument | Skipped]:
        """Yield the documents and the skipped rows in order.

        Raises:
            AuditError: If the shard is unreadable.
        """
        if self.bytes == 0:
            return
        for row in self._rows():
            if isinstance(row, Skipped):
                # An empty document cannot contain a passage, so it is not reported.
                if not row.reason.endswith(EMPTY):
                    yield row
                continue
            identity: object = row.location
            for name in _IDENTITIES:
                if row.values.get(name) is not None:
                    identity = row.values[name]
                    break
            url = row.values.get(_URL)
            if url is not None:
                url = _to_cell(url)
            yield CorpusDocument(row.index, _to_cell(identity), url, row.text)

    def digest(self) -> str | None:
        """Return the sha256 of a local file, or None if the shard is no local file or is unreadable."""
        if self.path is None:
            return None
        try:
            return compute_file_digest(self.path)
        except OSError:
            return None

    def has_changed(self) -> bool:
        """Return True if a local file has changed, or has become unreadable, since the corpus was listed."""
        try:
            return self.path is not None and _build_stamp(self.path.stat()) != self.stamp
        except OSError:
            return True

    def _rows(self) -> Iterator[TextRow | Skipped]:
        if self.address is not None:
            stream = corpus_stream.HubStream(
                self.name, [self.address], self.text_column or "text", None, all_columns=True
            )
            return iter(stream)
        if self.source is not None:
            return iter(corpus_stream.corpus_from_source(self.source, DataPaths.from_environment()).open(None))
        assert self.path is not None
        suffix = find_suffix(self.path) or ""
        if suffix.startswith(".txt"):
            return _read_whole_text(self.path, self.name, suffix.removeprefix(".txt"))
        further_columns = (*_IDENTITIES, _URL)
        # The rows are not held in memory, because a compressed file can unpack to any size.
        return open_texts(self.path, self.text_column, further_columns, name=self.name).entries()


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus with its shards.

    Attributes:
        selected: Indices of the shards that the search reads.
        ignored: Names of the files and folders at the corpus path that are no shards, such as files of another format.
    """

    name: str
    shards: Sequence[CorpusShard]
    selected: Sequence[int]
    ignored: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Return True if the search reads all shards."""
        return len(self.selected) == len(self.shards)

    @property
    def stamp(self) -> str:
        """Compute a digest of the names, stamps and text columns of all shards."""
        return digest([[shard.name, shard.stamp, shard.text_column] for shard in self.shards])[:16]


def open_sharded_corpus(corpus: str, text_column: str | None = None, only: str | None = None) -> ShardedCorpus:
    """Open a corpus of config/references.yaml, or the files at a path.

    Args:
        corpus: The name or the path of the corpus.
        text_column: The text column. By default the column that the entry of the corpus names.
        only: A pattern for the names of the shards that the search reads.

    Raises:
        AuditError: If the corpus does not exist, cannot be listed, or has no matching shard.
    """
    references = load_references()
    path = Path(corpus).expanduser()
    if corpus in references.names:
        name = corpus
        shards, ignored = _list_configured_shards(references.get_entry(corpus), text_column)
    else:
        name = os.path.basename(os.path.realpath(path))
        if name in references.names:
            raise ConfigError(
                f"{corpus} has the same name as the corpus {name} of config/references.yaml. Rename the file or the "
                "corpus."
            )
        if not os.path.lexists(path):
            names = ", ".join(references.names)
            raise ConfigError(
                f"{corpus} is neither a file nor a folder nor a corpus of config/references.yaml. The corpora of "
                f"config/references.yaml are: {names or 'none'}."
            )
        shards, ignored = _list_shards(path, text_column)
    selected = [number for number, shard in enumerate(shards) if only is None or fnmatch.fnmatchcase(shard.name, only)]
    if not selected:
        raise DataError(
            f"no shard of {corpus} matches --only {only!r}. The corpus has {len(shards):,} shard(s), and the first is "
            f"{shards[0].name}. Change the pattern."
        )
    if "|" in name or len(to_path_segment(name)) > _MAX_NAME_LENGTH:
        raise ConfigError(
            f"{name[:80]!r} cannot be the name of a corpus, because it contains '|' or more than {_MAX_NAME_LENGTH} "
            "characters. Add the corpus to config/references.yaml under another name, and pass that name."
        )
    return ShardedCorpus(name, shards, selected, ignored)


def _list_configured_shards(entry: ReferenceEntry, text_column: str | None) -> tuple[list[CorpusShard], list[str]]:
    """List the shards of a configured corpus, and the names of the ignored files in its folder."""
    column = text_column or entry.text_column
    if entry.path is not None:
        return _list_shards(entry.path, column)
    if entry.package is not None:
        stamp = corpus_stream.corpus_from_source(entry.package, DataPaths.from_environment()).digest
        return [CorpusShard(entry.package, stamp, None, source=entry.package)], []
    hub = str(entry.hub)
    commit, files = corpus_stream.list_hub_files(hub, entry.files or (), entry.revision)
    shards: list[CorpusShard] = []
    for file in files:
        address = corpus_stream.build_hub_address(hub, commit, file)
        shards.append(CorpusShard(file, commit, None, address=address, text_column=column))
    return shards, []


def _list_shards(path: Path, text_column: str | None) -> tuple[list[CorpusShard], list[str]]:
    """List the readable files at a path as shards, and the names of the ignored files."""
    shards = []
    files, ignored = corpus_stream.list_corpus_files(path)
    for file in files:
        name = corpus_stream.name_corpus_file(file, path)
        status = file.stat()
        shards.append(
            CorpusShard(name, _build_stamp(status), status.st_size, path=file.absolute(), text_column=text_column)
        )
    return shards, ignored


def _build_stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _to_cell(value: object) -> str:
    """Convert a value to a short text that a table can store."""
    return str(value)[:_MAX_CELL_LENGTH].encode("utf-8", "replace").decode()


def _read_whole_text(path: Path, name: str, packed: str) -> Iterator[TextRow | Skipped]:
    with open_bytes(InputFile(path, name, ".txt", packed=packed)) as binary:
        number = 0
        rest = b""
        while piece := binary.read(LINE_LIMIT - len(rest)):
            content = rest + piece
            cut = len(content)
            if len(content) >= LINE_LIMIT:
                cut = content.rfind(b"\n") + 1 or content.rfind(b" ") + 1 or cut
            rest = content[cut:]
            location = f"{name}, part {number + 1}"
            encoding = "utf-8"
            if number == 0:
                encoding = "utf-8-sig"
                if not rest:
                    location = name
            try:
                yield TextRow(location, number, content[:cut].decode(encoding), {})
            except UnicodeDecodeError as error:
                yield Skipped(location, number, describe_invalid_bytes(error))
            number += 1
    if rest:
        yield TextRow(f"{name}, part {number + 1}", number, rest.decode("utf-8", "replace"), {})
