"""What holds for every way of making neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_proposers import proposer_of, save_bert
from profiles import max_examples
from tiny_models import SENTENCES

from audit_pipeline.scoring.neighbours.own_topk import OwnTopkProposer
from audit_pipeline.scoring.neighbours.proposer import Proposer, create_random_generator, format_cost, select_distinct
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.run import compute

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = (*SENTENCES, "数据 harbour 🙂 CAT and <s>", "", "a", "if the wind turns " * 30)


@pytest.fixture(scope="module", params=["own-topk", "masked"])
def proposer(request, tiny, tmp_path_factory) -> Proposer:
    folder = tmp_path_factory.mktemp("proposer")
    if request.param == "masked":
        return proposer_of(save_bert(folder))
    model, forward = tiny("llama")
    compute(model, TEXTS, DataPaths(folder), lambda: forward, kinds=("base", "topk"))
    return OwnTopkProposer(model, DataPaths(folder))


@max_examples(12)
@given(order=st.permutations(range(len(TEXTS))), some=st.integers(1, 4), seed=st.integers(0, 3))
def test_neighbours_depend_on_text_and_seed_alone(proposer, order, some, seed):
    chosen = [TEXTS[i] for i in order[:some]]
    together = proposer.propose([*chosen, chosen[0]], 6, seed)
    assert together == [*(proposer.propose([text], 6, seed)[0] for text in chosen), together[0]]


@max_examples(20)
@given(n=st.integers(0, 40), more=st.integers(0, 40), seed=st.integers(0, 100))
def test_fewer_neighbours_are_the_first_of_more(proposer, n, more, seed):
    [few], [many] = proposer.propose(TEXTS[1:2], n, seed), proposer.propose(TEXTS[1:2], n + more, seed)
    assert few == many[:n]


def test_distinct_leaves_out_the_original_and_repetitions():
    assert select_distinct("a", ["b", "a", "b", "c", "d"], 2) == ["b", "c"]
    assert select_distinct("a", ["a", "b"], 5) == ["b"]
    assert select_distinct("a", ["b"], 0) == []


def test_distinct_takes_no_more_than_it_needs():
    taken = []
    select_distinct("a", (taken.append(text) or text for text in "bcdef"), 2)
    assert taken == ["b", "c"]


@given(text=st.text(st.characters(exclude_categories=["Cs"])), seed=st.integers(0, 2**31))
def test_random_numbers_depend_on_text_and_seed(text, seed):
    drawn = create_random_generator(text, seed).integers(2**62)
    assert drawn == create_random_generator(text, seed).integers(2**62)
    assert drawn != create_random_generator(text, seed + 1).integers(2**62)
    assert drawn != create_random_generator(text + "x", seed).integers(2**62)


def test_cost_in_words():
    texts = ["two words", "three more words", "two words"]
    assert format_cost("bert", 3, 1200, texts, 4) == (
        "making neighbours: 1,200 tokens in 3 passes of bert; scoring up to 8 of them: "
        "20 words through the audited model"
    )
    assert "no pass" in format_cost("m", 0, 0, texts, 4)
