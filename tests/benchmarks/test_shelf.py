"""The shelf builder: windows that tile documents of unknown membership."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import NEW, OLD, document, documents_table, shelf_spec, words_of
from profiles import max_examples
from pydantic import ValidationError

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.builders.shelf import draw_shelf
from audit_pipeline.errors import DataError
from audit_pipeline.store.paths import DataPaths


def rows_of(documents: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    drawn = draw_shelf(documents_table(documents), shelf_spec(**changes), "run").examples.to_pylist()
    assert isinstance(drawn, list)
    return drawn


def test_windows_tile_a_document_in_its_order() -> None:
    drawn = draw_shelf(
        documents_table([document("a", OLD, 25, group="book"), document("b", None, 10, language="de")]),
        shelf_spec(),
        "run",
    )
    rows = drawn.examples.to_pylist()
    words = words_of("a", 25).split()
    assert [row["text"] for row in rows] == [" ".join(words[:10]), " ".join(words[10:20]), words_of("b", 10)]
    assert [row["label"] for row in rows] == [None] * 3
    assert [row["group"] for row in rows] == ["book", "book", "made:project:b"]
    assert [(row["published"], row["language"], row["split"]) for row in rows][1:] == [
        (OLD, "en", "evaluation"),
        (None, "de", "evaluation"),
    ]
    assert drawn.texts_left_out == {"remainders of documents that are too short for a window": 1}
    assert drawn.documents_left_out == {}


def test_the_seed_selects_windows_in_document_order() -> None:
    documents = [document("long", None, 100)]
    first, again, other = (
        [row["text"] for row in rows_of(documents, windows_per_document=4, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other
    places = [int(text.split()[0].removeprefix("long")) for text in first]
    assert places == sorted(places)
    assert all(place % 10 == 0 for place in places)
    drawn = draw_shelf(documents_table(documents), shelf_spec(windows_per_document=4), "run")
    assert drawn.texts_left_out == {"beyond the limit windows_per_document": 6}


def test_short_documents_are_skipped_or_used_whole() -> None:
    documents = [document("long", None, 12), document("short", None, 9), document("empty", None, text=" \n")]
    drawn = draw_shelf(documents_table(documents), shelf_spec(), "run")
    assert drawn.documents_left_out == {"shorter than 10 words": 2}
    kept = draw_shelf(documents_table(documents), shelf_spec(short="keep"), "run")
    assert [(row["text"], row["words"]) for row in kept.examples.to_pylist()] == [
        (words_of("long", 10), 10),
        (words_of("short", 9), 9),
    ]
    assert kept.documents_left_out == {"shorter than 10 words": 1}


def test_repeated_texts_and_other_languages_are_skipped() -> None:
    twice = words_of("same", 10)
    documents = [document("b", None, text=twice), document("a", None, text=twice), document("c", None, language="de")]
    drawn = draw_shelf(documents_table(documents), shelf_spec(language="en"), "run")
    assert [row["document_id"] for row in drawn.examples.to_pylist()] == ["made:project:a"]
    assert drawn.texts_left_out == {"the same as another text": 1}
    assert drawn.documents_left_out == {"not in the language en": 1}


def test_a_text_on_both_sides_is_used_on_neither_side() -> None:
    both, more = words_of("both", 10), words_of("more", 10)
    new = words_of("new", 10)
    documents = [document("a", OLD, text=f"{both} {more}"), document("b", NEW, text=f"{both.upper()} {new}")]
    held_out = {"published_from": "2024-01-01"}
    rows = rows_of(documents, held_out=held_out, design="temporal")
    assert [(row["text"], row["label"]) for row in rows] == [(more, None), (new, 0)]


def test_no_text_and_repeated_documents_are_errors() -> None:
    with pytest.raises(DataError, match=r"shelf_10: no text remains to audit \(1 shorter than 10 words\)\. Shorten"):
        rows_of([document("short", None, 3)])
    with pytest.raises(DataError, match=r"no text remains to audit \(there is no document\)"):
        rows_of([])
    with pytest.raises(DataError, match="the document id made:project:a occurs twice"):
        rows_of([document("a", None), document("a", OLD)])


def test_a_shelf_is_built_without_labels(tmp_path: Path) -> None:
    documents = documents_table([document(name, date(2020, 1, 1), 40) for name in "abc"])
    report = build(shelf_spec(), DataPaths(tmp_path), "run", lambda source: documents)
    assert report.failed == ()
    assert report.counts["unlabelled"] == report.counts["texts"] == 9
    assert report.manifest["provenance"][0]["kinds of date"] == {"release": 3}
    assert report.manifest["provenance"][0]["licences"] == {"CC0-1.0": 3}


@max_examples(50)
@given(
    lengths=st.lists(st.integers(0, 45), min_size=1, max_size=6),
    words=st.integers(1, 12),
    most=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_windows_never_overlap_and_order_is_irrelevant(lengths: list[int], words: int, most: int, seed: int) -> None:
    documents = [
        document(f"d{number}x", None, text=words_of(f"d{number}x", n) or " ") for number, n in enumerate(lengths)
    ]
    spec = shelf_spec(words, windows_per_document=most, seed=seed)
    shuffled = documents.copy()
    random.Random(seed).shuffle(shuffled)
    if max(lengths) < words:
        with pytest.raises(DataError):
            draw_shelf(documents_table(documents), spec, "run")
        return
    drawn = [draw_shelf(documents_table(some), spec, "run") for some in (documents, shuffled)]
    assert drawn[0].examples.equals(drawn[1].examples)
    rows = drawn[0].examples.to_pylist()
    every = [word for row in rows for word in row["text"].split()]
    assert len(every) == len(set(every))
    assert len(rows) == sum(min(most, n // words) for n in lengths)
    assert {row["words"] for row in rows} == {words}


def test_known_documents_have_labels_and_calibrate() -> None:
    documents = [
        document("audited", OLD, 10),
        document("later", NEW, 10),
        document("undated", None, 10),
        document("read", OLD, 10, collection="classics"),
        # Its windows are of a group that is not held out as a whole.
        document("part", NEW, 10, group="mixed"),
        document("other", OLD, 10, group="mixed"),
        # First filed too early to be held out for sure.
        document("filed", NEW, 10, earliest=OLD),
    ]
    rows = rows_of(
        documents,
        held_out={"published_from": "2024-01-01"},
        members={"collections": ["classics"]},
        design="temporal",
    )
    assert {row["document_id"].split(":")[-1]: (row["label"], row["split"]) for row in rows} == {
        "audited": (None, "evaluation"),
        "undated": (None, "evaluation"),
        "part": (None, "evaluation"),
        "other": (None, "evaluation"),
        "filed": (None, "evaluation"),
        "later": (0, "calibration"),
        "read": (1, "calibration"),
    }


def test_a_shelf_of_known_documents_is_a_labelled_benchmark() -> None:
    known = {
        "held_out": {"published_from": "2024-01-01"},
        "members": {"collections": ["classics"]},
        "design": "temporal",
        "evaluates": "known",
    }
    documents = [
        document("audited", OLD, 10),
        document("later", NEW, 10),
        document("read", OLD, 10, collection="classics"),
    ]
    drawn = draw_shelf(documents_table(documents), shelf_spec(**known), "run")
    assert {row["document_id"].split(":")[-1]: (row["label"], row["split"]) for row in drawn.examples.to_pylist()} == {
        "later": (0, "evaluation"),
        "read": (1, "evaluation"),
    }
    assert drawn.documents_left_out == {"not known to be on either side": 1}
    with pytest.raises(DataError, match="no document matches members"):
        draw_shelf(documents_table(documents[:2]), shelf_spec(**known), "run")


def test_a_source_of_known_documents_yields_only_those() -> None:
    other = {**document("elsewhere", NEW, 10), "source": "other"}
    unknown = {**document("early", OLD, 10), "source": "other"}
    spec = shelf_spec(held_out={"sources": ["other"], "published_from": "2024-01-01"}, design="exchangeable")
    assert spec.sources == ("made", "other")
    drawn = draw_shelf(documents_table([document("mine", NEW, 10), other, unknown]), spec, "run")
    labels = {row["document_id"].split(":")[-1]: row["label"] for row in drawn.examples.to_pylist()}
    assert labels == {"mine": None, "elsewhere": 0}
    assert drawn.documents_left_out == {"of a source of known texts, but not known itself": 1}


def test_missing_and_contradictory_known_documents_are_errors() -> None:
    with pytest.raises(DataError, match="no document matches held_out"):
        rows_of([document("a", OLD, 10)], held_out={"groups": ["b"]}, design="temporal")
    with pytest.raises(DataError, match=r"the group made:project:a is in held_out and in members"):
        rows_of(
            [document("a", OLD, 10), document("b", OLD, 10)],
            held_out={"groups": ["made:project:a"]},
            members={"groups": ["made:project:a"]},
            design="temporal",
        )
    with pytest.raises(DataError, match="no text remains to audit"):
        rows_of([document("a", NEW, 10)], held_out={"published_from": "2024-01-01"}, design="temporal")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"held_out": {}}, "there is no criterion. Set sources"),
        ({"held_out": {"groups": ["a"]}}, "design"),
        ({"evaluates": "known", "members": {"groups": ["a"]}}, "Set both members and held_out"),
        ({"design": "exchangeable"}, "design"),
    ],
)
def test_incomplete_settings_of_known_documents_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        shelf_spec(**changes)


def test_a_shelf_without_known_texts_keeps_its_digest() -> None:
    assert not {"held_out", "members", "evaluates"} & set(shelf_spec().describe_entry())
