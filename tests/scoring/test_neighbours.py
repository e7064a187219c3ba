from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from tiny_models import SENTENCES

from audit_pipeline.errors import DataError
from audit_pipeline.scoring.needs import neighbours as neighbours_need
from audit_pipeline.scoring.needs.neighbours import NeighbourProposer, select_distinct
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TOKEN_STATISTICS, TOPK, TOPK_ENTRIES, text_sha256
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = (
    *SENTENCES,
    "a",
    "",
    "naïve 数据 🙂🙂 and <s> in a text",
    "if the wind turns " * 30,  # longer than the context
)


@pytest.fixture(scope="module")
def proposer(tiny, tmp_path_factory) -> NeighbourProposer:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path_factory.mktemp("topk"))
    compute(model, TEXTS, paths, lambda: forward, kinds=("base", "topk"))
    return NeighbourProposer(model, paths)


@max_examples(12)
@given(order=st.permutations(range(len(TEXTS))), n_texts=st.integers(1, 4), seed=st.integers(0, 3))
def test_neighbours_depend_on_text_and_seed_alone(proposer, order, n_texts, seed):
    chosen = [TEXTS[i] for i in order[:n_texts]]
    together = proposer.propose([*chosen, chosen[0]], 6, seed)
    assert together == [*(proposer.propose([text], 6, seed)[0] for text in chosen), together[0]]


def test_another_seed_yields_other_neighbours(proposer):
    text = SENTENCES[1]
    [first], [second] = proposer.propose([text], 12, 0), proposer.propose([text], 12, 1)
    assert first != second


@max_examples(20)
@given(n=st.integers(0, 40), more=st.integers(0, 40), seed=st.integers(0, 100))
def test_fewer_neighbours_are_the_first_of_more(proposer, n, more, seed):
    [few], [many] = proposer.propose(TEXTS[1:2], n, seed), proposer.propose(TEXTS[1:2], n + more, seed)
    assert few == many[:n]


def test_select_distinct_skips_the_original_and_repetitions_and_computes_no_more_than_n():
    assert select_distinct("a", ["b", "a", "b", "c", "d"], 2) == ["b", "c"]
    assert select_distinct("a", ["a", "b"], 5) == ["b"]
    assert select_distinct("a", ["b"], 0) == []
    candidates = iter("bcdef")
    assert select_distinct("a", candidates, 2) == ["b", "c"]
    assert next(candidates) == "d"


def test_every_neighbour_is_the_text_with_one_token_replaced_by_one_of_its_top_k(proposer, tiny):
    model, _ = tiny("llama")
    proposed = proposer.propose(TEXTS, 12, seed=1)
    table = read_statistics(model, TEXTS, proposer._location, kind="topk")
    rows = {row["text_sha256"]: row for row in table.to_pylist()}
    for text, neighbours in zip(TEXTS, proposed, strict=True):
        [encoded] = encode(model, [text])
        best = np.array(rows[text_sha256(text)]["token_id"], dtype=int).reshape(-1, TOPK_ENTRIES)
        possible = {
            text[:start] + model.tokenizer.decode([candidate]) + text[end:]
            for start, end, own, candidates in zip(
                encoded.char_start, encoded.char_end, encoded.token_id, best, strict=True
            )
            for candidate in candidates.tolist()
            if candidate != own
        }
        assert set(neighbours) <= possible
        assert len(set(neighbours)) == len(neighbours)
        assert text not in neighbours
        assert not any("\ufffd" in one or "</s>" in one or "<|endoftext|>" in one for one in neighbours)
    assert [len(one) for one in proposed[: len(SENTENCES)]] == [12] * len(SENTENCES)


def test_a_short_text_has_fewer_neighbours(proposer):
    short, empty = proposer.propose(["a", ""], 1000, seed=0)
    assert 0 < len(short) < 20
    assert empty == []


def test_a_character_of_several_tokens_is_never_cut(proposer):
    [neighbours] = proposer.propose([TEXTS[-2]], 500, seed=0)
    assert neighbours
    assert all("数据" in one and "🙂🙂" in one and "<s>" in one for one in neighbours)


def test_the_cost_is_known_before_a_model_runs(tiny, tmp_path):
    model, forward = tiny("llama")
    fresh = NeighbourProposer(model, DataPaths(tmp_path))
    texts = [SENTENCES[0], SENTENCES[1], SENTENCES[0]]
    tokens = sum(len(one.token_id) + 1 for one in encode(model, texts[:2]))
    words = sum(len(text.split()) for text in texts[:2])
    assert fresh.describe_cost(texts, 5) == (
        f"the model reads {tokens} tokens in 2 passes to make neighbours, and {5 * words:,} words to score up to "
        "10 neighbours"
    )
    with pytest.raises(DataError, match=r"2 texts have no cached top-k tokens of llama. Run the model"):
        fresh.propose(texts, 5, 0)
    compute(model, texts, DataPaths(tmp_path), lambda: forward, kinds=("base", "topk"))
    assert "reads no tokens" in fresh.describe_cost(texts, 5)


class WordTokenizer:
    """A tokenizer of words with the blank before them. Decoding drops a blank at the beginning, as in Llama 2."""

    words = ("a", " the", " cat", " sat", " dog", " ran", "<unk>", "\ufffd")
    special_ids = frozenset({6})

    def encode(self, texts, **_):
        return [SimpleNamespace(ids=[0]) for _ in texts]

    def __len__(self):
        return len(self.words)

    def decode(self, tokens, **_):
        return "".join(self.words[token] for token in tokens).lstrip(" ")


def build_proposer(monkeypatch, tmp_path, text, own, spans, topk, logprob) -> NeighbourProposer:
    """Build a proposer whose cache contains one text with the given tokens and top-k tokens."""
    n = len(own)
    base = {name: [0] * n for name in TOKEN_STATISTICS.names[2:]}
    base |= {"token_id": own, "char_start": [a for a, _ in spans], "char_end": [b for _, b in spans]}
    keys = {"key": "k", "text_sha256": text_sha256(text)}
    tables = {
        "base": pa.Table.from_pylist([{**keys, **base}], schema=TOKEN_STATISTICS.schema),
        "topk": pa.Table.from_pylist(
            [{**keys, "k": len(topk) // n, "token_id": topk, "logprob": logprob}], schema=TOPK.schema
        ),
    }
    monkeypatch.setattr(neighbours_need, "read_statistics", lambda model, texts, paths, kind: tables[kind])
    model = SimpleNamespace(tokenizer=WordTokenizer(), entry=SimpleNamespace(name="made"))
    return NeighbourProposer(model, DataPaths(tmp_path))


@pytest.mark.parametrize("spans", [[(0, 3), (4, 7)], [(0, 3), (3, 7)]], ids=["bare", "with blanks"])
def test_neighbours_by_hand(monkeypatch, tmp_path, spans):
    # Special tokens, incomplete characters, the original token and ids without a token are skipped.
    topk = [1, 4, 6, 7, 99, 3]
    proposer = build_proposer(monkeypatch, tmp_path, "the cat", [1, 2], spans, topk * 2, [-1.0] * 12)
    [neighbours] = proposer.propose(["the cat"], 50, seed=0)
    assert sorted(neighbours) == ["dog cat", "sat cat", "the dog", "the sat", "the the"]


def test_a_token_with_other_characters_than_its_span_is_never_replaced(monkeypatch, tmp_path):
    proposer = build_proposer(monkeypatch, tmp_path, "THE cat", [1, 2], [(0, 3), (3, 7)], [4, 5] * 2, [-1.0] * 4)
    [neighbours] = proposer.propose(["THE cat"], 50, seed=0)
    assert sorted(neighbours) == ["THE dog", "THE ran"]


def test_candidates_are_drawn_in_proportion_to_their_probability(monkeypatch, tmp_path):
    logs = [math.log(0.45), math.log(0.3), math.log(0.15)]  # The original has 0.1. Renormalised: 1/2, 1/3, 1/6.
    proposer = build_proposer(monkeypatch, tmp_path, "the", [1], [(0, 3)], [2, 3, 4], logs)
    drawn = Counter(proposer.propose(["the"], 1, seed)[0][0] for seed in range(3000))
    assert {word: count / 3000 for word, count in drawn.items()} == pytest.approx(
        {"cat": 1 / 2, "sat": 1 / 3, "dog": 1 / 6}, abs=0.04
    )
