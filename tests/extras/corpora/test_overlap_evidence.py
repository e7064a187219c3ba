"""The rule of evidence against its definitions word by word, and verdicts worked out by hand."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_corpora import search_texts, write_corpus

from audit_pipeline.extras.corpora.alignment import (
    Alignment,
    Seeds,
    align_copies,
    find_longest_stretch,
    match_in_order,
)
from audit_pipeline.extras.corpora.config import choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.evidence_rule import compute_shared_threshold, find_question
from audit_pipeline.extras.corpora.search import AuditedTexts, SearchResult, prepare_search, search_corpus, search_shard
from audit_pipeline.extras.corpora.text_index import PassageSet

RULE = choose_rule()
WORDS = [f"{first}{second}{third}" for first in "bdfgklm" for second in "aeiou" for third in "nrst"]


@given(st.lists(st.booleans(), min_size=1, max_size=30).filter(any), st.sampled_from([0.5, 0.8, 0.9, 1.0]))
def test_the_longest_stretch_with_enough_matches(matched: list[bool], share: float) -> None:
    stretches = [
        (first - end, first, end)
        for first in range(len(matched))
        for end in range(first + 1, len(matched) + 1)
        if matched[first] and matched[end - 1] and sum(matched[first:end]) >= share * (end - first) - 1e-9
    ]
    _, first, end = min(stretches)
    assert find_longest_stretch(np.array(matched), share) == (first, end)


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_a_longest_common_subsequence(own: list[int], other: list[int]) -> None:
    lengths = np.zeros((len(own) + 1, len(other) + 1), int)
    for at, word in enumerate(own):
        for place, found in enumerate(other):
            longest = max(lengths[at, place + 1], lengths[at + 1, place])
            lengths[at + 1, place + 1] = lengths[at, place] + 1 if word == found else longest
    pairs = [*match_in_order(own, other)]
    assert len(pairs) == lengths[-1, -1]
    assert all(own[at] == other[place] for at, place in pairs)
    assert all(at > before and place > earlier for (at, place), (before, earlier) in pairwise(pairs))


def align_numbers(own: Sequence[int], document: Sequence[int], least_seeds: int = 1) -> list[Alignment]:
    """Align sequences of numbers by their common runs of five numbers."""
    seeds = [
        (place, word)
        for place in range(len(document) - 4)
        for word in range(len(own) - 4)
        if document[place : place + 5] == own[word : word + 5]
    ]
    places, words = np.array(seeds).T
    hashes = np.array(own, np.uint64), np.array(document, np.uint64)
    return align_copies(*hashes, Seeds(places, words, 5), 0.8, least_seeds)


def test_replaced_added_and_omitted_words_are_aligned_in_order() -> None:
    own = [*range(40)]
    edited = [word for word in own if word not in (7, 21)]
    edited[5], edited[30] = 100, 101
    edited[12:12] = [102, 103]
    [copy] = align_numbers(own, [*range(200, 230), *edited, *range(300, 330)])
    assert (copy.first, copy.end, copy.begin, copy.stop) == (0, 40, 30, 70)
    assert np.flatnonzero(~copy.matched).tolist() == [5, 7, 21, 32]


def test_groups_of_five_in_another_order_are_no_copy() -> None:
    own = [*range(40)]
    groups = [own[at : at + 5] for at in range(0, 40, 5)]
    swapped = [word for first, second in zip(groups[::2], groups[1::2], strict=True) for word in second + first]
    # A chain in order contains one group of each pair. The longest stretch with 80% matches has two adjacent groups.
    assert all(np.count_nonzero(copy.matched) <= 10 for copy in align_numbers(own, swapped))


def test_every_copy_in_a_document_is_aligned() -> None:
    own = [*range(10)]
    copies = align_numbers(own, [*own, *range(100, 150), *own])
    assert [(copy.begin, copy.stop) for copy in copies] == [(0, 10), (60, 70)]


def make_documents(seed: int, count: int = 300) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=30)) for _ in range(count)]


@settings(max_examples=15)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_the_order_of_shards_changes_neither_frequencies_nor_passages(seed: int, shards: int) -> None:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS[:8], k=draw.randint(1, 25))) for _ in range(6)] + [" ".join(WORDS[:20])]
    documents = [" ".join(draw.choices(WORDS[:8], k=40)) for _ in range(12)]
    for number in range(4):
        copied = texts[draw.randrange(len(texts))].split()
        copied[draw.randrange(len(copied))] = "other"
        documents[number * 3] += f". {' '.join(copied)}."
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_sharded_corpus(str(write_corpus(Path(folder) / "c", documents, shards)))
        prepared = prepare_search(texts, corpus, RULE)
        assert prepared.evidence is not None
        records = [
            search_shard(prepared.index, number, shard, prepared.evidence)[1]
            for number, shard in enumerate(corpus.shards)
        ]
    found = []
    for order in (records, draw.sample(records, len(records))):
        merged = PassageSet(len(prepared.index.runs), len(prepared.evidence.words), RULE.share)
        for record in order:
            merged.merge_record(record)
        found.append(merged)
    assert found[0].to_record() == found[1].to_record()
    split = [document.replace(".", "").split() for document in documents]
    own = [word for text in texts for word in text.split()]
    for word, at in zip(own, prepared.evidence.word_at.tolist(), strict=True):
        assert found[0].documents_of_word[at] == sum(word in document for document in split)
    for first, run in enumerate(prepared.index.run_at.tolist()):
        if run >= 0:
            length = min(5, len(texts[int(prepared.index.find_texts(np.array([first]))[0])].split()))
            wanted = own[first : first + length]
            holders = [any(document[at : at + length] == wanted for at in range(len(document))) for document in split]
            assert found[0].documents_of_run[run] == sum(holders)


def search(
    folder: Path, documents: Sequence[str], items: Sequence[str | tuple[str, str]], **options: Any
) -> tuple[SearchResult, list[dict[str, Any]]]:
    """Search documents for items, which are texts or pairs of question and answer, by the rule of evidence."""
    pairs = [item if isinstance(item, tuple) else (item, "") for item in items]
    texts = [f"{question}\n{answer}" if answer else question for question, answer in pairs]
    borders = [len(question) + bool(answer) for question, answer in pairs]
    result, rows, _ = search_texts(folder, documents, AuditedTexts(texts, borders, **options), RULE, shards=3)
    return result, rows


QUESTION = (
    "nuclear fission releases neutrons which split further uranium atoms inside a moderated graphite reactor core"
)
ANSWER = "cadmium rods absorb surplus neutrons"
SHORT = "xylem transports dissolved minerals"
CHINESE = "春眠不觉晓处处闻啼鸟夜来风雨声花落知多少"


def verdict_of(row: dict[str, Any]) -> tuple[str, bool | None, str | None]:
    return row["verdict"], row["contaminated"], row["part"]


@pytest.mark.parametrize(
    ("item", "planted", "expected"),
    [
        (QUESTION, [QUESTION], ("found", True, "text")),
        (QUESTION, [QUESTION.upper().replace(" ", ",\n")], ("found", True, "text")),
        (QUESTION, [QUESTION.replace("further", "more").replace("graphite", "carbon")], ("found", True, "text")),
        (QUESTION, [QUESTION.replace("atoms", "heavy atoms")], ("found", True, "text")),
        (QUESTION, [], ("not found", False, None)),
        (QUESTION, ["nuclear fission releases neutrons which"], ("found", False, "part")),
        (QUESTION, [QUESTION] * 3, ("shared text", False, None)),
        (SHORT, [SHORT], ("found", True, "text")),
        (SHORT, ["xylem transports dissolved salts"], ("not found", False, None)),
        ("12 14 16 18 20 22 24 26", ["12 14 16 18 20 22 24 26"], ("too short to tell", None, None)),
        (CHINESE, [f"诗曰：{CHINESE}。", "春 夜 来 的", "花 的 鸟", *["的 一 是"] * 40], ("found", True, "text")),
        ((QUESTION, ANSWER), [f"{QUESTION}. {ANSWER}"], ("found", True, "question and answer")),
        ((QUESTION, "boron"), [f"{QUESTION}. It is boron."], ("found", True, "question and answer")),
        ((QUESTION, "boron"), [f"{QUESTION}. {'no ' * 60} boron."], ("found", False, "question")),
        ((QUESTION, "A"), [f"{QUESTION}. A"], ("found", False, "question")),
        ((QUESTION, "yes"), [f"{QUESTION}. Yes!"], ("found", False, "question")),
        ((QUESTION, "4"), [f"{QUESTION}. 4"], ("found", False, "question")),
        ((QUESTION, "uranium"), [f"{QUESTION}. Natural uranium."], ("found", False, "question")),
        ((f"{QUESTION}: {ANSWER}?", ANSWER), [f"{QUESTION}: {ANSWER}?"], ("found", False, "question")),
        ((QUESTION, ANSWER), [f"{ANSWER} {'no ' * 60} {QUESTION}. {ANSWER}"], ("found", True, "question and answer")),
        ((QUESTION, ANSWER), [f"{QUESTION} {'no ' * 60} {QUESTION}. {ANSWER}"], ("found", True, "question and answer")),
        ((QUESTION, ANSWER), [QUESTION], ("found", False, "question")),
        ((QUESTION, ANSWER), [ANSWER], ("found", False, "answer")),
        (f"{QUESTION}. Which metal absorbs those particles?", [QUESTION], ("shared text", False, "context")),
    ],
)
def test_verdicts(
    tmp_path: Path,
    item: str | tuple[str, str],
    planted: Sequence[str],
    expected: tuple[str, bool | None, str | None],
) -> None:
    documents = make_documents(1)
    for number, text in enumerate(planted):
        documents[number * 5] += f".\n{text}.\n{documents[number * 5 + 1]}"
    _, [row] = search(tmp_path, documents, [item])
    assert verdict_of(row) == expected


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("It rains. Who is wet? Nobody.", " Who is wet?"),
        ("Who? See a.b/c?d=1 and go.", "Who?"),
        ("النص هنا. ما هي العاصمة؟", " ما هي العاصمة؟"),
        ("Το κείμενο. Ποια είναι η πρωτεύουσα\u037e", " Ποια είναι η πρωτεύουσα\u037e"),
        ("Το κείμενο. Ποια είναι;", " Ποια είναι;"),
        ("let a = 1; let b = 2;", None),
        ("文です。何ですか？", "何ですか？"),
        ("文です。何ですか\uff1f答え。", "何ですか\uff1f"),
        ("Տեքստ։ Ո՞վ է նա։ Վերջ։", " Ո՞վ է նա։"),
        ("पाठ है। राजधानी क्या है? उत्तर।", " राजधानी क्या है?"),
        ("no question here.", None),
        ("?", None),
    ],
)
def test_the_sentence_that_is_the_question(text: str, question: str | None) -> None:
    found = find_question(text)
    assert (None if found is None else text[slice(*found)]) == question


LICENCE = [f"licence{number} {word}" for number, word in enumerate(WORDS[60:100])]


def test_own_words_within_a_shared_licence_are_found(tmp_path: Path) -> None:
    head, tail = " ".join(LICENCE[:30]), " ".join(LICENCE[30:])
    # The copies of the licence lack only the item's own words, which are less than a fifth of the stretch.
    documents = [*make_documents(3), *[f"{head} {tail}"] * 4, f"x {QUESTION} y"]
    result, [row] = search(tmp_path, documents, [f"{head} {QUESTION} {tail}"])
    assert verdict_of(row) == ("found", True, "text")
    passages = [(kept.end - kept.first, kept.documents) for kept in result.passages]
    assert (len(QUESTION.split()), 1) in passages


def test_documents_with_up_to_a_fifth_changed_are_counted(tmp_path: Path) -> None:
    words = QUESTION.split()
    copies = [QUESTION]
    for number in (0, 4, 9, 14):
        changed = [*words]
        changed[number] = "other"
        copies.append(" ".join(changed))
    half = " ".join(words[:8])
    documents = [*make_documents(4, 3000), *copies, half, f"{QUESTION} {QUESTION}"]
    result, [row] = search(tmp_path, documents, [QUESTION])
    assert row["documents"] == len(copies) + 1
    assert max(kept.documents for kept in result.passages) == len(copies) + 1


def test_text_in_several_items_of_a_test_set_is_no_evidence(tmp_path: Path) -> None:
    template = "decide whether the proposition below follows logically from these numbered premises alone"
    items = [f"{template} {' '.join(WORDS[at : at + 4])}" for at in (0, 50)]
    documents = [*make_documents(2), f"{template} and other words"]
    _, rows = search(tmp_path / "a", documents, items)
    assert [verdict_of(row)[0] for row in rows] == ["shared text", "shared text"]
    # If the items belong to two test sets, neither set repeats the template.
    _, rows = search(tmp_path / "b", documents, items, sets=[0, 1])
    assert [row["verdict"] for row in rows] == ["found", "found"]
    # A repeated item counts once.
    _, rows = search(tmp_path / "c", documents, [template, template])
    assert [row["verdict"] for row in rows] == ["found", "found"]


def test_the_expected_number_of_documents_with_the_words(tmp_path: Path) -> None:
    documents = ["the xylem"] * 3 + ["the"] * 5 + ["the phloem carries sugar 7 a", "none of it"]
    _, [row] = search(tmp_path, documents, ["the phloem carries sugar 7 a"])
    # Nine of ten documents contain "the", and one contains each other word. 7 and "a" are no evidence. The text itself
    # counts as one more document.
    expected = 10 * (10 / 11) * (2 / 11) ** 3
    # The passage is a whole sentence, and its four words have 24 possible orders.
    assert row["by_chance"] == pytest.approx(0.01 / 24 * expected)
    assert row["verdict"] == "found"


@pytest.mark.parametrize(("documents", "expected"), [(1, 3), (400, 3), (2500, 4), (10**6, 10), (10**9, 32)])
def test_the_threshold_of_shared_text(documents: int, expected: int) -> None:
    assert compute_shared_threshold(documents) == expected


def test_a_copy_at_the_end_of_a_document_is_stored_in_the_checkpoint(tmp_path: Path) -> None:
    text = " ".join(WORDS[:20])
    folder = write_corpus(tmp_path / "corpus", [f"Before. {text}", *make_documents(3, 20)])
    checkpoint = tmp_path / "checkpoint"
    search_corpus([text], open_sharded_corpus(str(folder)), RULE, checkpoint=checkpoint)
    [passage] = json.loads(checkpoint.read_text())["found"]["passages"]
    assert passage["is_sentence"] is True
