from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.scoring.neighbours.proposer import format_cost, generator_of, select_distinct


def test_distinct_leaves_out_the_original_and_repetitions():
    assert select_distinct("a", ["b", "a", "b", "c", "d"], 2) == ["b", "c"]
    assert select_distinct("a", ["a", "b"], 5) == ["b"]
    assert select_distinct("a", ["b"], 0) == []


def test_distinct_takes_no_more_than_it_needs():
    taken = []
    select_distinct("a", (taken.append(one) or one for one in "bcdef"), 2)
    assert taken == ["b", "c"]


@given(text=st.text(st.characters(exclude_categories=["Cs"])), seed=st.integers(0, 2**31))
def test_random_numbers_depend_on_text_and_seed(text, seed):
    drawn = generator_of(text, seed).integers(2**62)
    assert drawn == generator_of(text, seed).integers(2**62)
    assert drawn != generator_of(text, seed + 1).integers(2**62)
    assert drawn != generator_of(text + "x", seed).integers(2**62)


def test_cost_in_words():
    texts = ["two words", "three more words", "two words"]
    assert format_cost("bert", 3, 1200, texts, 4) == (
        "making neighbours: 1,200 tokens in 3 passes of bert; scoring up to 8 of them: "
        "20 words through the audited model"
    )
    assert "no pass" in format_cost("m", 0, 0, texts, 4)
