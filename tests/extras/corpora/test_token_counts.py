"""Counting tokens: every occurrence, no special token, one table for one tokenizer, and from a checkpoint the same."""

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


def ids_of(model: TokenizedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode([text], add_special_tokens=False)[0].ids)


@pytest.fixture(scope="module")
def model(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> TokenizedModel:
    return tiny("llama")[0]


def brute_force(model: TokenizedModel, texts: list[str]) -> Counter[int]:
    special = model.tokenizer.special_ids
    ids = (one for text in texts for one in ids_of(model, text))
    return Counter(one for one in ids if one not in special)


def as_counter(counts: object) -> Counter[int]:
    return Counter({place: int(number) for place, number in enumerate(counts) if number})  # type: ignore[call-overload]


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@max_examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_counts_equal_brute_force(model: TokenizedModel, tmp_path: Path, texts: list[str]) -> None:
    texts = ["!", *(text for text in texts if text.strip())]
    count = count_corpus(model, jsonl(tmp_path / "texts.jsonl", texts))
    assert as_counter(count.counts) == brute_force(model, texts)
    assert count.documents == len(texts)


def test_special_tokens_are_left_out_even_where_a_text_spells_them(model: TokenizedModel, tmp_path: Path) -> None:
    [special] = ids_of(model, "<|endoftext|>")
    # Token id 0 is an ordinary token, '!'.
    text = "<|endoftext|> and <s> nets </s>!"
    counts = count_corpus(model, jsonl(tmp_path / "texts.jsonl", [text])).counts
    assert counts[special] == 0
    assert not any(counts[one] for one in model.tokenizer.special_ids)
    assert counts.sum() == sum(brute_force(model, [text]).values()) > 0
    assert counts[0] == 1


def test_a_folder_is_counted_file_by_file_and_what_is_bad_is_named(model: TokenizedModel, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "deeper").mkdir(parents=True)
    (corpus / "a.jsonl").write_text(json.dumps({"text": TEXTS[0], "n": 1}) + "\n{broken\n")
    (corpus / "b.csv").write_text(f"text,other\n{TEXTS[1]},x\nonly one field\n")
    (corpus / "c.txt").write_bytes(b"")
    (corpus / "deeper" / "d.txt").write_bytes(f"{TEXTS[2]}\n".encode() + b"\xff\xfe broken\n" + TEXTS[3].encode())
    (corpus / "notes.md").write_text("not read")
    counted = count_corpus(model, corpus)
    assert as_counter(counted.counts) == brute_force(model, TEXTS[:4])
    assert (counted.documents, counted.skipped.count) == (4, 4)
    assert counted.tokens == sum(brute_force(model, TEXTS[:4]).values())
    assert counted.bytes == sum(len(text.encode()) for text in TEXTS[:4])
    assert [row.location for row in counted.skipped.first] == ["a.jsonl:2", "b.csv:3", "c.txt", "deeper/d.txt:2"]
    assert counted.skipped.first[2].reason == "the file contains no rows"


def test_the_table_names_tokens_its_corpus_and_its_tokenizer(model: TokenizedModel, tmp_path: Path) -> None:
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
    file = jsonl(tmp_path / "corpus.jsonl", TEXTS)
    first = count_corpus(model, file, limits=CountLimits(max_documents=2))
    assert as_counter(first.counts) == brute_force(model, TEXTS[:2])
    # The first text has 22 bytes; the second one passes 23 and counts, the third does not.
    some = count_corpus(model, file, limits=CountLimits(max_bytes=23))
    assert (some.documents, some.bytes) == (2, 30)
    cut = count_corpus(model, file, limits=CountLimits(max_tokens_per_document=2))
    ids = [ids_of(model, text)[:2] for text in TEXTS]
    assert as_counter(cut.counts) == Counter(one for text in ids for one in text)
    assert cut.way == "every text"


@pytest.mark.parametrize("killed_after", [1, 3, 4, 6])
def test_a_killed_count_goes_on_and_gives_the_same_counts(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    jsonl(corpus / "a.jsonl", TEXTS[:2])
    (corpus / "b.jsonl").write_text("{broken\n")
    jsonl(corpus / "c.jsonl", TEXTS[2:])
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
    # A file that cannot be read is named in one item more: it broke off behind its one broken row.
    assert len(read) == len(TEXTS) + whole.skipped.count - killed_after
    assert np.array_equal(again.counts, whole.counts)
    assert (again.documents, again.bytes) == (whole.documents, whole.bytes)
    assert again.skipped == whole.skipped
    assert not locate_checkpoint(out).exists()
    assert pq.read_table(out).column("count").to_pylist() == whole.counts.tolist()


def test_a_checkpoint_of_something_else_is_not_taken(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_count, "CHECKPOINT_SECONDS", 0.0)
    corpus = jsonl(tmp_path / "corpus.jsonl", TEXTS)
    out = tmp_path / "out.parquet"

    def kill(so_far: CorpusCount) -> None:
        if so_far.documents == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_to_file(model, corpus, out, on_progress=kill)
    jsonl(corpus, TEXTS[3:])
    assert as_counter(count_to_file(model, corpus, out).counts) == brute_force(model, TEXTS[3:])
    locate_checkpoint(out).write_bytes(b"cut short")
    assert as_counter(count_to_file(model, corpus, out).counts) == brute_force(model, TEXTS[3:])


def test_a_checkpoint_with_a_changed_byte_is_not_taken(
    model: TokenizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_count, "CHECKPOINT_SECONDS", 0.0)
    corpus, out = jsonl(tmp_path / "corpus.jsonl", TEXTS), tmp_path / "out.parquet"

    def kill(so_far: CorpusCount) -> None:
        if so_far.documents == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_to_file(model, corpus, out, on_progress=kill)
    # The number of documents so far: it is in the footer, which no checksum of Parquet's covers.
    content = locate_checkpoint(out).read_bytes()
    assert b'"documents": 2' in content
    locate_checkpoint(out).write_bytes(content.replace(b'"documents": 2', b'"documents": 3'))
    again = count_to_file(model, corpus, out)
    assert again.documents == len(TEXTS)
    assert as_counter(again.counts) == brute_force(model, TEXTS)


def test_what_cannot_be_counted(model: TokenizedModel, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("not read")
    with pytest.raises(DataError, match=r"notes\.md: cannot tell its format from its name"):
        count_corpus(model, tmp_path / "notes.md")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt: none of its 1 rows .*, empty.txt: the file contains no rows"):
        count_corpus(model, tmp_path / "empty.txt")
    (tmp_path / "bad.jsonl").write_text("{\n[]\n")
    with pytest.raises(
        DataError, match=r"bad\.jsonl: none of its 2 rows can be used. The first is bad\.jsonl:1: broken"
    ):
        count_corpus(model, tmp_path / "bad.jsonl")
