"""The random draw of roles and occurrences, and the choices that do not change it."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from control_corpus import table_of
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.extras.controls.draw import DrawnText, draw_texts
from audit_pipeline.tables import DOCUMENTS


def documents(count: int = 12, words: int = 60) -> pa.Table:
    """Return documents of distinct words: d0w0 d0w1 …"""
    return table_of([" ".join(f"d{number}w{place}" for place in range(words)) for number in range(count)])


def entry(**fields: object) -> ControlEntry:
    given = {"members": 10, "held_out": 8, "occurrences": 3, "words": 5, "seed": 7, **fields}
    return ControlEntry.model_validate({"name": "c", "description": "made", "sources": ["made"], **given})


def by_role(texts: list[DrawnText]) -> dict[str, list[DrawnText]]:
    return {role: [text for text in texts if text.role == role] for role in {text.role for text in texts}}


def test_members_held_out_twin_and_surrounding_share_no_text() -> None:
    texts = draw_texts(documents(), entry(surrounding=20))
    assert Counter(text.role for text in texts) == {"member": 10, "held_out": 8, "twin": 10, "surrounding": 20}
    assert len({text.text for text in texts}) == len(texts) == 48
    assert all(len(text.text.split()) == 5 for text in texts)
    roles = by_role(texts)
    assert {(text.exposed, text.twin) for text in roles["member"]} == {(3, 0)}
    assert {(text.exposed, text.twin) for text in roles["held_out"]} == {(0, 0)}
    assert {(text.exposed, text.twin) for text in roles["twin"]} == {(0, 3)}
    assert {(text.exposed, text.twin) for text in roles["surrounding"]} == {(1, 1)}


def test_every_window_is_a_group_unless_documents_are_randomised() -> None:
    texts = draw_texts(documents(), entry())
    assert len({text.group for text in texts}) == len(texts)
    whole = draw_texts(documents(), entry(randomise="document"))
    roles_of_document: dict[str, set[str]] = {}
    for text in whole:
        assert text.group == text.document_id
        roles_of_document.setdefault(text.document_id, set()).add(text.role)
    assert {len(roles) for roles in roles_of_document.values()} == {1}
    assert Counter(text.role for text in whole) == {"member": 10, "held_out": 8, "twin": 10}


@max_examples(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_of_documents_is_irrelevant(seed: int) -> None:
    table = documents()
    order = list(range(table.num_rows))
    random.Random(seed).shuffle(order)
    assert draw_texts(table.take(order), entry(seed=seed)) == draw_texts(table, entry(seed=seed))


def test_more_surrounding_texts_do_not_change_the_other_roles() -> None:
    few, many = draw_texts(documents(), entry(surrounding=5)), draw_texts(documents(), entry(surrounding=60))
    assert [text for text in few if text.role != "surrounding"] == [text for text in many if text.role != "surrounding"]
    assert [text for text in many if text.role == "surrounding"][:5] == [t for t in few if t.role == "surrounding"]


def test_a_poisson_draw_has_its_mean_and_members_without_occurrences_are_held_out() -> None:
    table = documents(count=60, words=500)
    texts = draw_texts(table, entry(members=2000, held_out=100, draw="poisson", occurrences=1.5))
    drawn = Counter(text.exposed for text in texts[:2000])
    # The expected number is 2,000 * exp(-1.5) = 446, with a standard deviation of 19.
    assert 446 - 80 < drawn[0] < 446 + 80
    mean = sum(times * count for times, count in drawn.items()) / 2000
    assert abs(mean - 1.5) < 4 * (1.5 / 2000) ** 0.5
    assert {text.role for text in texts if text.role in ("member", "held_out") and not text.exposed} == {"held_out"}
    assert all(text.exposed for text in texts if text.role == "member")


@max_examples(30)
@given(
    numbers=st.lists(st.integers(1, 64), min_size=1, max_size=8, unique=True),
    more=st.integers(0, 20),
    randomise=st.sampled_from(["window", "document"]),
)
def test_each_number_gets_its_share_of_the_members(numbers: list[int], more: int, randomise: str) -> None:
    members = len(numbers) + more
    one, several = (
        draw_texts(documents(count=40), entry(members=members, occurrences=occurrences, randomise=randomise))
        for occurrences in (1, numbers)
    )
    assert [(text.text, text.role) for text in several] == [(text.text, text.role) for text in one]
    roles = by_role(several)
    for times in ([text.exposed for text in roles["member"]], [text.twin for text in roles["twin"]]):
        parts = Counter(times)
        assert sorted(parts) == sorted(numbers)
        assert sum(parts.values()) == members
        assert max(parts.values()) - min(parts.values()) <= 1
    assert {(text.exposed, text.twin) for text in roles["held_out"]} == {(0, 0)}


def test_the_numbers_of_members_are_random() -> None:
    table = documents(count=3, words=10)
    drawn = [draw_texts(table, entry(members=2, held_out=2, occurrences=[1, 64], seed=seed)) for seed in range(400)]
    times = Counter((text.text, text.exposed) for texts in drawn for text in texts if text.role == "member")
    # Each of six windows is a member with each number in a sixth of 400 draws: 67, with a standard deviation of 7.5.
    assert len(times) == 12
    assert all(67 - 30 < count < 67 + 30 for count in times.values())


def test_a_repeated_text_has_no_role() -> None:
    table = documents(count=2, words=60)
    others = pa.Table.from_pylist(
        [{**row, "document_id": f"{row['document_id']}x"} for row in table.to_pylist()], schema=DOCUMENTS.schema
    )
    with pytest.raises(
        DataError, match=r"requires 28 windows of 5 words .*made contains 0, and the roles are drawn by window"
    ):
        draw_texts(pa.concat_tables([table, others]), entry())


def test_a_corpus_with_too_few_windows_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"Control c requires 28 windows of 5 words .* contains 24, and the roles are drawn by window"
    ):
        draw_texts(documents(count=2), entry())
    with pytest.raises(DataError, match="by document"):
        draw_texts(documents(count=2), entry(randomise="document"))
