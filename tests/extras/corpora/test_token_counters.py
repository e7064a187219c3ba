"""The fast count of tokens by distinct pieces equals the plain count."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from audit_pipeline.extras.corpora import token_counters
from audit_pipeline.extras.corpora.token_counters import (
    CheckedCounter,
    TokenCounter,
    build_counting_tokenizer,
    can_split_at_blanks,
    compute_table_size,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.forward import ForwardPass

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SAMPLES = ("the cat's hat,  and\n\n the  dog's   bone; 12 345 6789!", "café  ÉTÉ\tça va? don't  won't \r\n x = y + 1;")
byte_level = pre_tokenizers.ByteLevel


def train_tokenizer(pre: object, *, normalizer: object = None, added: tuple[AddedToken, ...] = ()) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=byte_level.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([*SAMPLES, " in the on the and the  of  of"] * 3, trainer)
    if added:
        tokenizer.add_tokens(list(added))
    return tokenizer


def split_by(pattern: str, *, behavior: str = "isolated", invert: bool = False) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)
    return pre_tokenizers.Sequence([cut, byte_level(add_prefix_space=False, use_regex=False)])


RUNS = tuple(AddedToken(" " * n, normalized=True) for n in (2, 3, 5))
PERMITTED = {
    "gpt2": train_tokenizer(byte_level(add_prefix_space=False)),
    "prefix space": train_tokenizer(byte_level(add_prefix_space=True)),
    "neox, runs of blanks as added tokens": train_tokenizer(
        byte_level(add_prefix_space=False), normalizer=normalizers.NFC(), added=(*RUNS, AddedToken("<sep>"))
    ),
    "digits first": train_tokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)])
    ),
    "llama 3": train_tokenizer(split_by(LLAMA_3)),
    "qwen 2": train_tokenizer(split_by(LLAMA_3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
}
REFUSED = {
    "no border at blanks": train_tokenizer(byte_level(add_prefix_space=False, use_regex=False)),
    "unknown pattern": train_tokenizer(split_by(r"\w+ \w+|\s+")),
    "look-behind": train_tokenizer(split_by(r"(?<=a ) ?\p{L}+|\s+")),
    "borders of digits only": train_tokenizer(split_by(r"\p{N}{1,3}")),
    "merged pieces": train_tokenizer(split_by(r"\s+", behavior="merged_with_next")),
    "normaliser": train_tokenizer(byte_level(), normalizer=normalizers.Replace(" ", "_")),
    "token over a cut": train_tokenizer(byte_level(), added=(AddedToken("on the"),)),
    "token that takes blanks along": train_tokenizer(byte_level(), added=(AddedToken("<mask>", rstrip=True),)),
    "metaspace": train_tokenizer(pre_tokenizers.Metaspace()),
    "words": Tokenizer(models.WordPiece(unk_token="?")),
}
fragments = st.sampled_from(
    [
        *(" ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", "\u180e", "\u200b"),
        *("the", "The", "cat", "'s", "'S", "'", "don't", "ÉTÉ", "é", "e\u0301", "\u0301", "中文", "😀", "<sep>"),
        *("1", "12", "1234", ",", "...", "-", "=", "²", "ª", "\u0000", "ﬁ", "ǆ"),
    ]
)
texts = st.lists(
    st.one_of(st.lists(fragments, max_size=14).map("".join), st.text(st.characters(exclude_categories=["Cs"]))),
    min_size=1,
    max_size=6,
)


def counted(counter: TokenCounter | CheckedCounter, given_texts: list[str]) -> list[int]:
    for text in given_texts:
        counter.add(text)
    counter.count_held_texts()
    return counter.counts.tolist()


@pytest.mark.parametrize("name", PERMITTED)
@max_examples(60)
@given(given_texts=texts)
def test_distinct_pieces_give_the_counts_of_every_text(name: str, given_texts: list[str]) -> None:
    tokenizer = PERMITTED[name]
    vocabulary = tokenizer.get_vocab_size()
    one_by_one = np.zeros(vocabulary, dtype=np.int64)
    for text in given_texts:
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            one_by_one[token] += 1
    assert counted(TokenCounter(tokenizer, vocabulary, splits=False), given_texts) == one_by_one.tolist()
    assert counted(TokenCounter(tokenizer, vocabulary, splits=True), given_texts) == one_by_one.tolist()


@pytest.mark.parametrize(("name", "allowed"), [*((one, True) for one in PERMITTED), *((one, False) for one in REFUSED)])
def test_tokenizers_that_may_be_split_at_blanks(name: str, allowed: bool) -> None:
    tokenizer = {**PERMITTED, **REFUSED}[name]
    assert can_split_at_blanks(json.loads(tokenizer.to_str())) is allowed


@pytest.mark.parametrize(
    "limit", ["_MAX_HELD_CHARACTERS", "_MAX_HELD_UNCUT_CHARACTERS", "_MAX_HELD_PIECES", "_SLICE_CHARACTERS"]
)
def test_the_limits_of_held_texts_do_not_change_counts(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = PERMITTED["gpt2"]
    vocabulary = tokenizer.get_vocab_size()
    whole = counted(TokenCounter(tokenizer, vocabulary, splits=True), list(SAMPLES) * 3)
    monkeypatch.setattr(token_counters, limit, 7)
    monkeypatch.setattr(token_counters, "_BATCH_CHARACTERS", 20)
    counter = TokenCounter(tokenizer, vocabulary, splits=True)
    assert counted(counter, list(SAMPLES) * 3) == whole
    assert counted(TokenCounter(tokenizer, vocabulary, splits=False), list(SAMPLES) * 3) == whole
    assert not counter._pieces
    assert not counter._uncut


@pytest.fixture(scope="module")
def model(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> TokenizedModel:
    return tiny("llama")[0]


def test_the_first_documents_are_counted_both_ways(model: TokenizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counters, "PROBE_CHARACTERS", 60)
    documents = [*SAMPLES] * 4
    plain = counted(TokenCounter(build_counting_tokenizer(model), compute_table_size(model), splits=False), documents)
    good = CheckedCounter(model)
    assert counted(good, documents) == plain
    assert good.way == "distinct pieces"
    # A fast count with other results is not used, even if the tokenizer may be split at blanks.
    original = TokenCounter.count_held_texts
    monkeypatch.setattr(TokenCounter, "count_held_texts", lambda self: None if self._splits else original(self))
    bad = CheckedCounter(model)
    assert counted(bad, documents) == plain
    assert bad.way == "every text"


def test_texts_without_blanks_are_counted_whole(model: TokenizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counters, "PROBE_CHARACTERS", 60)
    monkeypatch.setattr(token_counters, "_BATCH_CHARACTERS", 50)
    documents = ["没有空格的文本" * 3 + str(number) for number in range(20)]
    counter = CheckedCounter(model)
    plain = counted(TokenCounter(build_counting_tokenizer(model), compute_table_size(model), splits=False), documents)
    assert counted(counter, documents) == plain
    assert counter.way == "every text"
    # A call of count_held_texts after every text changes nothing.
    again = CheckedCounter(model)
    for text in documents:
        again.add(text)
        again.count_held_texts()
    assert again.counts.tolist() == plain


def test_the_counting_tokenizer_is_a_copy_without_truncation(model: TokenizedModel) -> None:
    ids = build_counting_tokenizer(model).encode("the nets and the boats and more").ids
    assert len(ids) > 3
    assert len(build_counting_tokenizer(model, 2).encode("the nets and the boats").ids) == 2
    assert model.tokenizer.backend.truncation is None
    assert build_counting_tokenizer(model).encode("the nets and the boats and more").ids == ids
