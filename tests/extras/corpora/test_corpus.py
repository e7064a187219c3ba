"""Corpora as streams of documents: formats, unreadable files, and the continuation from any position."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_files import save_dataset, write_rows
from made_settings import source_settings

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora import corpus_stream
from audit_pipeline.extras.corpora.corpus_stream import (
    DocumentStream,
    HubStream,
    corpus_from_files,
    corpus_from_hub,
    corpus_from_source,
)
from audit_pipeline.readers.text_rows import Skipped, TextRow
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.store.paths import DataPaths

TEXTS = ["one text", "zwei Texte", "trois\u2028textes", "四个文本"]
GOOD = "".join(json.dumps({"text": text, "n": 1}, ensure_ascii=False) + "\n" for text in TEXTS).encode()


def write(path: Path, texts: list[str]) -> Path:
    return write_rows(path, [{"id": 1, "text": text} for text in texts])


def read_texts(stream: Iterable[TextRow | Skipped]) -> list[str | Skipped]:
    return [item.text if isinstance(item, TextRow) else item for item in stream]


def test_a_saved_data_set_is_one_corpus_without_its_json_files(tmp_path: Path) -> None:
    save_dataset(tmp_path / "corpus" / "saved", [{"text": text} for text in TEXTS])
    for place in ("corpus", "corpus/saved"):
        assert read_texts(corpus_from_files(tmp_path / place, None).open(None)) == TEXTS
    write(tmp_path / "corpus" / "more.jsonl", TEXTS[:1])
    assert read_texts(corpus_from_files(tmp_path / "corpus", None).open(None)) == [TEXTS[0], *TEXTS]


def test_a_file_that_changes_during_reading_is_named(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{name}.jsonl", TEXTS) for name in "ab")
    read = iter(corpus_from_files(tmp_path, None).open(None))
    assert next(read).text == TEXTS[0]  # type: ignore[union-attr]
    with first.open("a") as file:
        file.write('{"text": "put in later"}\n')
    skipped = [item for item in read if isinstance(item, Skipped)]
    assert [(one.location, "has changed since the command began" in one.reason) for one in skipped] == [
        ("a.jsonl", True)
    ]
    assert second.exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("b.jsonl", b"", "the file contains no rows"),
        ("b.json.gz", gzip.compress(GOOD, mtime=0)[:-12], "the file is not a readable .gz file (Compressed file ended"),
        ("b.parquet", b"PAR1", "the file is not a readable Parquet file"),
        ("b.csv", b"text,text\na,b\n", "the header contains a column name twice: text, text"),
    ],
)
def test_an_unreadable_file_is_named_and_the_others_are_read(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    write(tmp_path / "a.jsonl", TEXTS[:1])
    (tmp_path / name).write_bytes(content)
    write(tmp_path / "c.txt", TEXTS[1:2])
    corpus = corpus_from_files(tmp_path, "text")
    found = read_texts(corpus.open(None))
    texts = [item for item in found if isinstance(item, str)]
    skipped = [item for item in found if isinstance(item, Skipped)]
    assert (texts[0], texts[-1]) == (TEXTS[0], TEXTS[1])
    assert skipped[-1].location == name
    assert reason in skipped[-1].reason


def require_resumable(open_stream: Callable[[object], DocumentStream]) -> None:
    """Check that a stream continues from every position with exactly the remaining items."""
    whole = list(open_stream(None))
    for taken in range(len(whole) + 1):
        stream = open_stream(None)
        # A stream after its last item has another state than a stream at its end, so both positions are checked.
        begun = list(itertools.islice(iter(stream), taken))
        state = json.loads(json.dumps(stream.state()))
        assert [*begun, *open_stream(state)] == whole


def test_a_stream_continues_from_any_position(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", TEXTS)
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(GOOD)[:-12])
    (tmp_path / "d.jsonl").write_bytes(b"{broken\n" + GOOD)
    corpus = corpus_from_files(tmp_path, None)
    assert len(read_texts(corpus.open(None))) >= 2 * len(TEXTS) + 3
    require_resumable(corpus.open)


def test_the_digest_depends_on_names_and_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", TEXTS)
    first = corpus_from_files(tmp_path, None).digest
    assert corpus_from_files(tmp_path, None).digest == first
    write(tmp_path / "b.jsonl", TEXTS)
    second = corpus_from_files(tmp_path, None).digest
    write(tmp_path / "b.jsonl", TEXTS[:1])
    assert len({first, second, corpus_from_files(tmp_path, None).digest}) == 3


def test_the_default_corpus_is_the_same_before_and_after_the_fetch(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    before = corpus_from_source("sotu", paths)
    report = refresh_source("sotu", paths, "run", source_settings())
    after = corpus_from_source("sotu", paths)
    assert before.digest == after.digest
    assert read_texts(before.open(None)) == read_texts(after.open(None))
    assert len(read_texts(after.open(None))) == report.documents
    assert (before.upstream, after.upstream) == ({}, {"documents/sotu": report.data_version})


@pytest.fixture
def hub_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Write the files of a data set to the disk. A stream opens them like files on the hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(GOOD))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'{broken\n\n[]\n{"text": null}\n' + GOOD))
    write(tmp_path / "c.parquet", TEXTS)
    return [str(tmp_path / name) for name in ("a.json.gz", "b.json.gz", "c.parquet")]


def test_a_broken_line_of_a_data_set_skips_one_document(hub_files: list[str]) -> None:
    found = read_texts(HubStream("the data set x/y", hub_files, "text", None))
    assert [item for item in found if isinstance(item, str)] == TEXTS * 3
    assert [item.reason.split(":")[0] for item in found if isinstance(item, Skipped)] == [
        "broken JSON",
        "not a JSON object but list",
        "column 'text' is null",
    ]


def test_a_data_set_continues_from_any_position(hub_files: list[str]) -> None:
    require_resumable(lambda state: HubStream("the data set x/y", hub_files, "text", state))  # type: ignore[arg-type]


def test_a_data_set_without_a_usable_row_is_refused(hub_files: list[str]) -> None:
    lines = b'{"text": null}\n' + b'{"text": 1}\n' * 1500
    Path(hub_files[0]).write_bytes(gzip.compress(lines))
    with pytest.raises(DataError, match=r"none of the first 1,000 rows can be used\. .* column 'text' is null"):
        list(HubStream("x/y", hub_files[:1], "text", None))
    Path(hub_files[0]).write_bytes(gzip.compress(GOOD + lines))
    assert len(list(HubStream("x/y", hub_files[:1], "text", None))) == len(TEXTS) + 1501


def test_a_data_set_is_read_at_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["README.md", "en/c4-train.1.json.gz", "en/c4-train.0.json.gz", "fr/c4-train.0.json.gz"]
    siblings = [SimpleNamespace(rfilename=name) for name in names]

    def describe_data_set(self: object, name: str, revision: str | None) -> SimpleNamespace:
        return SimpleNamespace(sha=f"commit-{revision}", siblings=siblings)

    monkeypatch.setattr(corpus_stream.HfApi, "dataset_info", describe_data_set)
    first = corpus_from_hub("allenai/c4", ["en/c4-train.*.json.gz"], "a", None)
    assert first.upstream == {"hub:allenai/c4": "commit-a"}
    stream = first.open(None)
    assert isinstance(stream, HubStream)
    assert stream._groups == [[f"hf://datasets/allenai/c4@commit-a/en/c4-train.{n}.json.gz" for n in (0, 1)]]
    assert corpus_from_hub("allenai/c4", ["en/c4-train.*.json.gz"], "b", None).digest != first.digest
