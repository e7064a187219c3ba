"""Counting tokens: every occurrence, no special token, one table for one tokenizer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit_pipeline.contracts import TOKEN_FREQUENCIES
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.references import count
from audit_pipeline.references.count import count_corpus, count_tokens, write_count
from audit_pipeline.token_statistics.forward import ForwardPass

TEXTS = ["the nets and the boats", "the nets", "café 😀 12, 345!", "!!", "a" * 300]


@pytest.fixture(scope="module")
def model(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> TokenizedModel:
    return tiny("llama")[0]


def brute_force(model: TokenizedModel, texts: list[str]) -> Counter[int]:
    special = set(model.tokenizer.all_special_ids)
    ids = (one for text in texts for one in model.tokenizer(text, add_special_tokens=False)["input_ids"])
    return Counter(one for one in ids if one not in special)


def as_counter(counts: object) -> Counter[int]:
    return Counter({place: int(number) for place, number in enumerate(counts) if number})  # type: ignore[call-overload]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_counts_equal_brute_force(model: TokenizedModel, texts: list[str]) -> None:
    counts, read = count_tokens(model, texts)
    assert as_counter(counts) == brute_force(model, texts)
    assert read == len(texts)


def test_every_occurrence_counts_over_more_than_one_call(
    model: TokenizedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count, "_TEXTS_A_CALL", 2)
    counts, read = count_tokens(model, iter(TEXTS * 3))
    assert read == 3 * len(TEXTS)
    assert as_counter(counts) == Counter({one: 3 * number for one, number in brute_force(model, TEXTS).items()})
    assert max(brute_force(model, TEXTS).values()) > 1


def test_special_tokens_are_left_out_even_where_a_text_spells_them(model: TokenizedModel) -> None:
    [special] = model.tokenizer("<|endoftext|>", add_special_tokens=False)["input_ids"]
    counts, _ = count_tokens(model, ["<|endoftext|> and <s> nets </s>"])
    assert counts[special] == 0
    assert not any(counts[one] for one in model.tokenizer.all_special_ids)
    assert counts.sum() == sum(brute_force(model, ["<|endoftext|> and <s> nets </s>"]).values()) > 0
    # Token id 0 is an ordinary token, '!'.
    assert count_tokens(model, ["!"])[0][0] == 1


def test_a_folder_is_counted_file_by_file_and_bad_rows_are_named(model: TokenizedModel, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "deeper").mkdir(parents=True)
    (corpus / "a.jsonl").write_text(json.dumps({"text": TEXTS[0], "n": 1}) + "\n{broken\n")
    (corpus / "b.csv").write_text(f"text,other\n{TEXTS[1]},x\nonly one field\n")
    (corpus / "deeper" / "c.txt").write_bytes(f"{TEXTS[2]}\n".encode() + b"\xff\xfe broken\n" + TEXTS[3].encode())
    (corpus / "notes.md").write_text("not read")
    counted = count_corpus(model, corpus)
    assert as_counter(counted.counts) == brute_force(model, TEXTS[:4])
    assert counted.texts == 4
    assert counted.tokens == sum(brute_force(model, TEXTS[:4]).values())
    assert [row.location for row in counted.skipped] == ["a.jsonl:2", "b.csv:3", "c.txt:2"]


def test_the_table_names_tokens_and_its_tokenizer(model: TokenizedModel, tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(TEXTS))
    counted = count_corpus(model, file)
    write_count(tmp_path / "out" / "frequencies.parquet", counted, model)
    table = pq.read_table(tmp_path / "out" / "frequencies.parquet")
    assert table.select(TOKEN_FREQUENCIES.names).schema.equals(TOKEN_FREQUENCIES, check_metadata=False)
    rows = table.to_pylist()
    assert [row["token_id"] for row in rows] == list(range(max(model.vocab_size, len(model.tokenizer))))
    assert {row["token"]: row["count"] for row in rows}["!"] == sum(text.count("!") for text in TEXTS)
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert metadata == {
        "tokens": str(counted.tokens),
        "texts": str(len(TEXTS)),
        "vocab_size": str(model.vocab_size),
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
    }


def test_what_cannot_be_counted(model: TokenizedModel, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("not read")
    with pytest.raises(DataError, match="holds no file of a kind that can be read"):
        count_corpus(model, tmp_path)
    with pytest.raises(DataError, match=r"missing\.txt: no such file or folder"):
        count_corpus(model, tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt: the file holds no rows"):
        count_corpus(model, tmp_path / "empty.txt")
