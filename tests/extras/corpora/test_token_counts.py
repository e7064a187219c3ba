"""The count of tokens: every occurrence except special tokens, one table per tokenizer, and resumable."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from made_files import write_rows
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora import token_count
from audit_pipeline.extras.corpora.token_count import (
    CorpusCount,
    CountLimits,
    build_frequency_table,
    compute_counts_sha256,
    count_corpus,
    count_to_file,
    locate_checkpoint,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.files import write_table
from audit_pipeline.tables import TOKEN_FREQUENCIES
from audit_pipeline.token_statistics.forward import ForwardPass

TEXTS = ["the nets and the boats", "the nets", "café 😀 12, 345!", "!!", "a" * 300]


@pytest.fixture(scope="module")
def model(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> TokenizedModel:
    return tiny("llama")[0]


def encode(model: TokenizedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode([text], add_special_tokens=False)[0].ids)


def count_by_definition(model: TokenizedModel, texts: list[str], limit: int | None = None) -> list[int]:
    """Count every token except special tokens."""
    counts = Counter(token for text in texts for token in encode(model, text)[:limit])
    size = max(model.vocab_size, len(model.tokenizer))
    return [0 if token in model.tokenizer.special_ids else counts[token] for token in range(size)]


def write_texts(path: Path, texts: list[str]) -> Path:
    return write_rows(path, [{"text": text} for text in texts])


@max_examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_counts_follow_their_definition(model: TokenizedModel, tmp_path: Path, texts: list[str]) -> None:
    texts = ["!", *(text for text in texts if text.strip())]
    count = count_corpus(model, write_texts(tmp_path / "texts.jsonl", texts))
    assert count.counts.tolist() == count_by_definition(model, texts)
    assert count.documents == len(texts)


def test_special_tokens_in_a_text_are_not_counted(model: TokenizedModel, tmp_path: Path) -> None:
    [special] = encode(model, "<|endoftext|>")
    # The token with id 0 is '!', which is no special token.
    text = "<|endoftext|> and <s> nets </s>!"
    counts = count_corpus(model, write_texts(tmp_path / "texts.jsonl", [text])).counts
    assert counts[special] == 0
    assert not any(counts[one] for one in model.tokenizer.special_ids)
    assert counts.sum() == sum(count_by_definition(model, [text])) > 0
    assert counts[0] == 1


def test_unreadable_rows_and_files_of_a_folder_are_named(model: TokenizedModel, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "deeper").mkdir(parents=True)
    (corpus / "a.jsonl").write_text(json.dumps({"text": TEXTS[0], "n": 1}) + "\n{broken\n")
    (corpus / "b.csv").write_text(f"text,other\n{TEXTS[1]},x\nonly one field\n")
    (corpus / "c.txt").write_bytes(b"")
    (corpus / "deeper" / "d.txt").write_bytes(f"{TEXTS[2]}\n".encode() + b"\xff\xfe broken\n" + TEXTS[3].encode())
    (corpus / "notes.md").write_text("not read")
    counted = count_corpus(model, corpus)
    assert counted.counts.tolist() == count_by_definition(model, TEXTS[:4])
    assert (counted.documents, counted.skipped.count) == (4, 4)
    assert counted.tokens == sum(count_by_definition(model, TEXTS[:4]))
    assert counted.bytes == sum(len(text.encode()) for text in TEXTS[:4])
    assert [row.location for row in counted.skipped.first] == ["a.jsonl:2", "b.csv:3", "c.txt", "deeper/d.txt:2"]
    assert counted.skipped.first[2].reason == "the file contains no rows"


def test_the_table_contains_tokens_and_metadata(model: TokenizedModel, tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(TEXTS))
    counted = count_corpus(model, file, limits=CountLimits(max_tokens_per_document=1024))
    write_table(
        tmp_path / "out" / "frequencies.parquet", build_frequency_table(counted, model, corpus="mine", run_id="r")
    )
    table = pq.read_table(tmp_path / "out" / "frequencies.parquet")
    assert table.select(TOKEN_FREQUENCIES.names).schema.equals(TOKEN_FREQUENCIES.schema, check_metadata=False)
    rows = table.to_pylist()
    assert [row["token_id"] for row in rows] == list(range(max(model.vocab_size, len(model.tokenizer))))
    assert {row["token"]: row["count"] for row in rows}["!"] == sum(text.count("!") for text in TEXTS)
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert metadata == {
        "corpus": "mine",
        "corpus_digest": counted.corpus_digest,
        "settings_digest": "",
        "tokens": str(counted.tokens),
        "documents": str(len(TEXTS)),
        "bytes": str(sum(len(text.encode()) for text in TEXTS)),
        "skipped_rows": "0",
        "max_documents": "",
        "max_bytes": "",
        "max_tokens_per_document": "1024",
        "vocab_size": str(model.vocab_size),
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
        "data_version": "",
        "run_id": "r",
        "counts_sha256": compute_counts_sha256(counted.counts),
    }
    assert len(counted.corpus_digest) == 16


def test_limits(model: TokenizedModel, tmp_path: Path) -> None:
    file = write_texts(tmp_path / "corpus.jsonl", TEXTS)
    first = count_corpus(model, file, limits=CountLimits(max_documents=2))
    assert first.counts.tolist() == count_by_definition(model, TEXTS[:2])
    # The first text has 22 bytes. The second text exceeds 23 bytes and counts, and the third does not count.
    some = count_corpus(model, file, limits=CountLimits(max_bytes=23))
    assert (some.documents, some.bytes) == (2, 30)
    cut = count_corpus(model, file, limits=CountLimits(max_tokens_per_document=2))
    assert cut.counts.tolist() == count_by_definition(model, TEXTS, limit=2)
    assert cut.way == "every text"


@pytest.mark.parametrize("killed_after", [1, 3, 4, 6])
def test_a_killed_count_continues_and_has_the_same_counts(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_texts(corpus / "a.jsonl", TEXTS[:2])
    (corpus / "b.jsonl").write_text("{broken\n")
    write_texts(corpus / "c.jsonl", TEXTS[2:])
    whole = count_corpus(model, corpus)
    monkeypatch.setattr(token_count, "CHECKPOINT_SECONDS", 0.0)
    told: list[CorpusCount] = []

    def kill(so_far: CorpusCount) -> None:
        told.append(so_far)
        if so_far.documents + so_far.skipped.count == killed_after:
            raise KeyboardInterrupt

    out = tmp_path / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        count_to_file(model, corpus, out, on_progress=kill)
    assert locate_checkpoint(out).exists()
    assert not out.exists()
    read = []
    original = token_count.corpus_from_files

    def seen(path: Path, column: str | None) -> token_count.Corpus:
        found = original(path, column)

        class Seen:
            def __init__(self, state: token_count.State | None) -> None:
                self.stream = found.open(state)

            def __iter__(self) -> Iterator[object]:
                for item in self.stream:
                    read.append(item)
                    yield item

            def state(self) -> token_count.State:
                return self.stream.state()

        return token_count.Corpus(found.digest, Seen)  # type: ignore[arg-type]

    monkeypatch.setattr(token_count, "corpus_from_files", seen)
    again = count_to_file(model, corpus, out)
    # An unreadable file yields one more skipped item after its broken row.
    assert len(read) == len(TEXTS) + whole.skipped.count - killed_after
    assert np.array_equal(again.counts, whole.counts)
    assert (again.documents, again.bytes) == (whole.documents, whole.bytes)
    assert again.skipped == whole.skipped
    assert not locate_checkpoint(out).exists()
    assert pq.read_table(out).column("count").to_pylist() == whole.counts.tolist()


def test_a_checkpoint_of_another_corpus_is_not_used(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_count, "CHECKPOINT_SECONDS", 0.0)
    corpus = write_texts(tmp_path / "corpus.jsonl", TEXTS)
    out = tmp_path / "out.parquet"

    def kill(so_far: CorpusCount) -> None:
        if so_far.documents == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_to_file(model, corpus, out, on_progress=kill)
    write_texts(corpus, TEXTS[3:])
    assert count_to_file(model, corpus, out).counts.tolist() == count_by_definition(model, TEXTS[3:])
    locate_checkpoint(out).write_bytes(b"cut short")
    assert count_to_file(model, corpus, out).counts.tolist() == count_by_definition(model, TEXTS[3:])


def test_a_checkpoint_with_a_changed_byte_is_not_used(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_count, "CHECKPOINT_SECONDS", 0.0)
    corpus, out = write_texts(tmp_path / "corpus.jsonl", TEXTS), tmp_path / "out.parquet"

    def kill(so_far: CorpusCount) -> None:
        if so_far.documents == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_to_file(model, corpus, out, on_progress=kill)
    # No checksum of Parquet covers the number of documents in the footer.
    content = locate_checkpoint(out).read_bytes()
    assert b'"documents": 2' in content
    locate_checkpoint(out).write_bytes(content.replace(b'"documents": 2', b'"documents": 3'))
    again = count_to_file(model, corpus, out)
    assert again.documents == len(TEXTS)
    assert again.counts.tolist() == count_by_definition(model, TEXTS)


def test_files_without_texts_cannot_be_counted(model: TokenizedModel, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("not read")
    with pytest.raises(DataError, match=r"notes\.md: unknown file format"):
        count_corpus(model, tmp_path / "notes.md")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt: none of the 1 rows .* is empty.txt: the file contains no rows"):
        count_corpus(model, tmp_path / "empty.txt")
    (tmp_path / "bad.jsonl").write_text("{\n[]\n")
    with pytest.raises(
        DataError, match=r"bad\.jsonl: none of the 2 rows can be used. The first row is bad\.jsonl:1: broken"
    ):
        count_corpus(model, tmp_path / "bad.jsonl")
