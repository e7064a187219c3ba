"""Each shortcut of the search returns what the plain computation returns."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_corpora import write_corpus

from audit_pipeline.extras.corpora import matching
from audit_pipeline.extras.corpora.alignment import match_in_order
from audit_pipeline.extras.corpora.config import choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.search import prepare_search, search_shard
from audit_pipeline.extras.corpora.text_index import build_hash_table
from audit_pipeline.extras.corpora.word_hashes import Places, hash_words


def match_by_full_table(text: Sequence[int], document: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a longest common subsequence, from a table of the lengths for all prefixes."""
    lengths = np.zeros((len(text) + 1, len(document) + 1), np.int64)
    for at, word in enumerate(text, 1):
        for place, other in enumerate(document, 1):
            if word == other:
                lengths[at, place] = lengths[at - 1, place - 1] + 1
            else:
                lengths[at, place] = max(lengths[at - 1, place], lengths[at, place - 1])
    at = len(text)
    place = len(document)
    while at and place:
        # A last element that does not change the length is dropped, first from the text.
        if lengths[at - 1, place] == lengths[at, place]:
            at -= 1
        elif lengths[at, place - 1] == lengths[at, place]:
            place -= 1
        else:
            at -= 1
            place -= 1
            yield at, place


@given(st.lists(st.integers(0, 6), max_size=14), st.lists(st.integers(3, 9), max_size=14))
def test_matched_pairs_are_those_of_the_table_of_lengths(text: list[int], document: list[int]) -> None:
    assert [*match_in_order(text, document)] == [*match_by_full_table(text, document)]


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_ascii_words_have_the_hashes_of_the_general_case(text: str) -> None:
    words = hash_words(text)
    # The last word is outside ASCII, so the general case hashes the whole text.
    general = hash_words(f"{text} é")
    assert general.hashes[:-1].tolist() == words.hashes.tolist()
    assert general.starts[:-1].tolist() == words.starts.tolist()
    assert general.ends[:-1].tolist() == words.ends.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 100, 5000])
def test_hashes_are_found_with_and_without_the_filter(count: int) -> None:
    draw = np.random.default_rng(count)
    values = np.unique(draw.integers(0, 1 << 64, count, np.uint64, endpoint=False))
    neighbours = np.concatenate([values - np.uint64(1), values + np.uint64(1)])
    hashes = draw.permutation(np.concatenate([values, neighbours, draw.integers(0, 1 << 64, count, np.uint64)]))
    table = build_hash_table(values)
    expected = np.flatnonzero(np.isin(hashes, values))
    for find in (table.find, table.find_frequent):
        found, numbers = find(hashes)
        assert found.tolist() == expected.tolist()
        assert values[numbers].tolist() == hashes[found].tolist()


def keep_all(matcher: matching.Matcher, runs: Places, document: Places) -> tuple[Places, Places]:
    """Return all pairs of a hit and a word whose document and text share enough distinct words that begin runs."""
    index = matcher._index
    hit, at = matcher._expand(runs)
    words: dict[tuple[int, int], set[int]] = defaultdict(set)
    keys = list(zip(document[hit].tolist(), index.find_texts(index.places[at]).tolist(), strict=True))
    for key, word in zip(keys, index.places[at].tolist(), strict=True):
        words[key].add(word)
    is_kept = np.array([len(words[key]) >= matcher._min_seeds[key[1]] for key in keys], np.bool_)
    return hit[is_kept], at[is_kept]


@pytest.mark.parametrize("seed", range(4))
def test_candidates_are_the_documents_with_enough_seeds(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(12)]
    texts = [" ".join(draw.choices(vocabulary, k=draw.choice((4, 7, 30, 90)))) for _ in range(12)]
    documents = []
    for _ in range(15):
        words = draw.choices(vocabulary, k=draw.randrange(60))
        words[len(words) // 2 : len(words) // 2] = draw.choice(texts).split()[: draw.randrange(4, 90)] * draw.choice(
            (1, 2)
        )
        documents.append(" ".join(words))
    corpus = open_sharded_corpus(str(write_corpus(tmp_path_factory.mktemp("corpus"), documents)))
    prepared = prepare_search(texts, corpus, choose_rule())
    records = []
    for keep in (matching.Matcher._keep_candidates, keep_all):
        monkeypatch.setattr(matching.Matcher, "_keep_candidates", keep)
        records.append(search_shard(prepared.index, 0, corpus.shards[0], prepared.evidence)[1])
    assert records[0] == records[1]
    assert records[0]["passages"]
