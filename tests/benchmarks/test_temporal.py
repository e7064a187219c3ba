"""The temporal builder: drawn windows, skipped documents, and independence of order."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import BETWEEN, NEW, OLD, document, documents_table, temporal_spec, words_of
from profiles import max_examples

from audit_pipeline.benchmarks.builders.temporal import draw_temporal_windows
from audit_pipeline.benchmarks.checks import run_checks
from audit_pipeline.errors import DataError
from audit_pipeline.tables import example_id


def windows_by_document(examples: pa.Table) -> dict[str, set[str]]:
    windows: dict[str, set[str]] = defaultdict(set)
    for row in examples.to_pylist():
        windows[row["document_id"]].add(row["text"])
    return dict(windows)


def test_labels_dates_and_reasons() -> None:
    documents = documents_table(
        [
            document("last", date(2021, 12, 31)),
            document("cutoff", date(2022, 1, 1)),
            document("eve", date(2024, 12, 31)),
            document("first", date(2025, 1, 1)),
            document("undated", None),
            document("shortold", OLD, 9),
            document("shortnew", NEW, 9),
            document("exact", NEW, 10),
        ]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(windows_per_document=4, balance="none"), "run")
    rows = drawn.examples.to_pylist()
    labels = {(row["document_id"].rsplit(":")[-1], row["label"], row["published"]) for row in rows}
    assert labels == {
        ("last", 1, date(2021, 12, 31)),
        ("first", 0, date(2025, 1, 1)),
        ("exact", 0, NEW),
    }
    assert Counter(row["label"] for row in rows) == {1: 4, 0: 5}
    assert drawn.documents_left_out == {
        "published between the cutoffs": 2,
        "undated": 1,
        "member, shorter than 10 words": 1,
        "non-member, shorter than 10 words": 1,
    }
    assert drawn.texts_left_out == {}
    row = next(row for row in rows if row["document_id"].endswith(":exact"))
    assert row == {
        "example_id": example_id("made_10", "made:project:exact", words_of("exact", 10)),
        "benchmark": "made_10",
        "document_id": "made:project:exact",
        "text": words_of("exact", 10),
        "context": None,
        "messages": None,
        "scored_part": None,
        "label": 0,
        "split": "evaluation",
        "published": NEW,
        "words": 10,
        "language": "en",
        "collection": "project",
        "group": "made:project:exact",
        "run_id": "run",
    }


def test_repeated_texts_are_used_once_per_side_and_never_on_both() -> None:
    documents = documents_table(
        [
            document("a", OLD, text=words_of("twice", 10)),
            document("b", OLD, text=words_of("twice", 10)),
            document("c", OLD, text=words_of("both", 10)),
            document("d", NEW, text=words_of("both", 10)),
            document("e", NEW, text=words_of("both", 10)),
            document("f", NEW, text=words_of("new", 10)),
        ]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(), "run")
    assert windows_by_document(drawn.examples) == {
        "made:project:a": {words_of("twice", 10)},
        "made:project:f": {words_of("new", 10)},
    }
    assert drawn.texts_left_out == {"the same as another text on its side": 1, "on both sides": 3}


def test_sides_are_balanced_within_each_collection() -> None:
    documents = documents_table(
        [document(f"old{number}n", OLD, 30, collection="a") for number in range(4)]
        + [document("new", NEW, 50, collection="a")]
        + [document("oldb", OLD, 30, collection="b")]
        + [document(f"newb{number}n", NEW, 30, collection="b") for number in range(2)]
        + [document("oldc", OLD, 30, collection="onlyold")]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(windows_per_document=5), "run")
    # a: 12 against 5, b: 3 against 6, onlyold: 3 against none.
    sides = Counter((row["collection"], row["label"]) for row in drawn.examples.to_pylist())
    assert sides == {("a", 1): 5, ("a", 0): 5, ("b", 1): 3, ("b", 0): 3}
    assert drawn.texts_left_out == {"more than the other side has in the collection": 7 + 3 + 3}


def test_documents_take_turns() -> None:
    documents = documents_table(
        [document(f"old{number}n", OLD) for number in range(6)]
        + [document("new", NEW, 100), document("next", NEW, 100)]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(windows_per_document=5), "run")
    of_members = Counter(row["document_id"] for row in drawn.examples.to_pylist() if row["label"] == 1)
    # 10 texts of 6 documents: the first window of each document, and the second window of four.
    assert sorted(of_members.values()) == [1, 1, 2, 2, 2, 2]


def test_per_side_is_spread_over_collections_and_uses_up_small_ones() -> None:
    documents = documents_table(
        [
            document(f"{collection}{side}{number}n", when, 10, collection=collection)
            for side, when in (("old", OLD), ("new", NEW))
            for collection, size in (("big", 20), ("large", 20), ("small", 3))
            for number in range(size)
        ]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(per_side=14), "run")
    sides = Counter((row["collection"], row["label"]) for row in drawn.examples.to_pylist())
    expected = {"big": 6, "large": 5, "small": 3}
    assert sides == {(name, label): count for name, count in expected.items() for label in (0, 1)}
    assert drawn.texts_left_out == {"beyond the limit per_side": 2 * (43 - 14)}


def test_documents_in_other_languages_are_skipped() -> None:
    documents = documents_table(
        [document("old", OLD), document("new", NEW), document("alt", OLD, language="de"), document("mid", BETWEEN)]
    )
    drawn = draw_temporal_windows(documents, temporal_spec(language="en"), "run")
    assert set(windows_by_document(drawn.examples)) == {"made:project:old", "made:project:new"}
    assert drawn.documents_left_out == {"not in the language en": 1, "published between the cutoffs": 1}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([document("old", OLD)], r"no non-member text remains\. Move the cutoff"),
        ([document("new", NEW), document("old", OLD, 3)], "no member text remains .*1 member, shorter than 10 words"),
        (
            [document("old", OLD, collection="a"), document("new", NEW, collection="b")],
            "no collection has texts on both sides.*balance: none",
        ),
        ([], r"no member text remains\."),
        (
            [document("old", OLD, text="a b c d e f g h i j"), document("new", NEW, text="a b c d e f g h i j")],
            r"no member text remains \(skipped: 2 on both sides\)",
        ),
        ([document("same", OLD), document("same", NEW)], "made:project:same occurs twice"),
    ],
)
def test_empty_sides_and_repeated_documents_are_errors(rows: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(DataError, match=told):
        draw_temporal_windows(documents_table(rows), temporal_spec(), "run")


DAYS = st.dates(date(2019, 1, 1), date(2026, 12, 31))


SPECS = st.builds(
    temporal_spec,
    words=st.integers(1, 12),
    windows_per_document=st.integers(1, 5),
    per_side=st.none() | st.integers(1, 10),
    balance=st.sampled_from(["collection", "none"]),
    seed=st.integers(0, 100),
    calibration_fraction=st.sampled_from([0, 0.2, 0.5]),
)


@max_examples(80)
@given(data=st.data(), spec=SPECS, order=st.randoms(use_true_random=False))
def test_examples_of_any_documents_are_sound(data: st.DataObject, spec: Any, order: Any) -> None:
    rows = [document("anchorold", OLD, 40), document("anchornew", NEW, 40)]
    for number in range(data.draw(st.integers(0, 14))):
        # Some texts have a small vocabulary, so that windows of different documents are equal.
        common = data.draw(st.booleans())
        size = data.draw(st.integers(0, 40))
        columns: dict[str, Any] = {
            "collection": data.draw(st.sampled_from(["project", "series"])),
            "group": data.draw(st.sampled_from([None, "shared", "common"])),
        }
        if common:
            columns["text"] = " ".join(data.draw(st.lists(st.sampled_from("xyz"), min_size=size, max_size=size)))
        rows.append(document(f"d{number}n", data.draw(st.none() | DAYS), size, **columns))
    drawn = draw_temporal_windows(documents_table(rows), spec, "run")
    shuffled = list(rows)
    order.shuffle(shuffled)
    assert draw_temporal_windows(documents_table(shuffled), spec, "run").examples.equals(drawn.examples)

    by_id = {row["document_id"]: row for row in rows}
    labels: dict[str, set[int]] = defaultdict(set)
    splits: dict[str, set[str]] = defaultdict(set)
    for row in drawn.examples.to_pylist():
        source = by_id[row["document_id"]]
        assert len(row["text"].split()) == row["words"] == spec.words
        assert f" {row['text']} " in f" {' '.join(source['text'].split())} "
        old = source["published"] < spec.settings.member_before
        assert (row["label"] == 1) is old
        assert old or source["published"] >= spec.settings.nonmember_from
        labels[row["text"]].add(row["label"])
        splits[row["group"]].add(row["split"])
    assert all(len(of_text) == 1 for of_text in labels.values())
    assert all(len(of_group) == 1 for of_group in splits.values())
    assert len(labels) == drawn.examples.num_rows
    sides = Counter(drawn.examples.column("label").to_pylist())
    if spec.settings.per_side is not None:
        assert max(sides.values()) <= spec.settings.per_side
    if spec.settings.balance == "collection":
        assert sides[0] == sides[1]
    # Every window is either used or counted as skipped.
    n_windows = sum(
        min(spec.settings.windows_per_document, len(row["text"].split()) // spec.words)
        for row in rows
        if row["published"] is not None
        and (row["published"] < spec.settings.member_before or row["published"] >= spec.settings.nonmember_from)
    )
    assert drawn.examples.num_rows + sum(drawn.texts_left_out.values()) == n_windows
    blocking = [check for check in run_checks(drawn.examples, spec) if check.blocking and not check.passed]
    assert {check.name for check in blocking} <= {"both_classes"}  # tiny evaluation splits may lose a side


@max_examples(50)
@given(
    sizes=st.lists(st.integers(10, 60), min_size=1, max_size=6),
    added=st.integers(10, 60),
    name=st.text("qrs", min_size=1, max_size=3),
    seed=st.integers(0, 50),
)
def test_an_added_document_moves_no_window_of_others(sizes: list[int], added: int, name: str, seed: int) -> None:
    rows = [document(f"d{number}n", (OLD, NEW)[number % 2], size) for number, size in enumerate([20, 20, *sizes])]
    spec = temporal_spec(balance="none", seed=seed)
    before = windows_by_document(draw_temporal_windows(documents_table(rows), spec, "run").examples)
    more = [*rows, document(name, OLD + timedelta(days=1), added)]
    after = windows_by_document(draw_temporal_windows(documents_table(more), spec, "run").examples)
    assert {identity: after[identity] for identity in before} == before
    assert set(after) - set(before) == {f"made:project:{name}"}


def test_windows_depend_on_seed_and_family_but_not_on_other_settings() -> None:
    rows = documents_table([document("old", OLD, 400), document("new", NEW, 400)])

    def windows(**changes: Any) -> dict[str, set[str]]:
        return windows_by_document(draw_temporal_windows(rows, temporal_spec(**changes), "run").examples)

    assert windows() == windows(calibration_fraction=0.5, balance="none", member_before=date(2021, 1, 1))
    assert windows() != windows(seed=6)
    assert windows() != windows(family="other")
    assert windows() == windows(), "the same twice"


def topics(a_side: int = 12) -> pa.Table:
    """Return documents of ten words. All but the first of each side use a shared vocabulary."""
    rows = []
    for published, own, start in ((OLD, "old", 0), (NEW, "new", 3)):
        for number in range(a_side):
            stock = "all" if number else own
            text = " ".join(f"{stock}{(start + 7 * number + place) % 100:02d}" for place in range(10))
            rows.append(document(f"{own}{number}", published, text=text, collection=f"c{number % 3}"))
    return documents_table(rows)


def test_matching_selects_similar_texts() -> None:
    spec = temporal_spec(windows_per_document=1, match={"per_side": 11})
    pool = draw_temporal_windows(topics(), temporal_spec(windows_per_document=1), "run")
    drawn = draw_temporal_windows(topics(), spec, "run")
    rows = drawn.examples.to_pylist()
    assert Counter(row["label"] for row in rows) == {1: 11, 0: 11}
    assert {row["example_id"] for row in rows} < {row["example_id"] for row in pool.examples.to_pylist()}
    assert all(row["text"].startswith("all") for row in rows)
    assert drawn.texts_left_out == {"not matched": 2}
    assert spec.design == "temporal"
    matched = drawn.notes["matched"]
    assert (matched["per_side"], matched["texts_to_choose_from"]) == (11, 24)
    assert list(matched["achieved"]) == ["before", "at_random", "after", "after_by_all"]
    assert [one["n"] for one in matched["achieved"].values()] == [24, 22, 22, 22]
    assert "there are 24 labelled examples, but 200 are required" in matched["achieved"]["before"]["method"]
    assert not pool.notes


def test_matched_sides_need_not_be_balanced() -> None:
    spec = temporal_spec(windows_per_document=1, match={"per_side": 9})
    checks = run_checks(draw_temporal_windows(topics(), spec, "run").examples, spec)
    assert all(check.passed for check in checks if check.blocking)
    [balanced] = [check for check in checks if check.name == "balanced"]
    assert "not required for this benchmark" in balanced.what
    assert balanced.counts["members"] == balanced.counts["nonmembers"] == 9
