"""The online builder: inputs of both sides, chunk by chunk, with the preceding text as context."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import online_spec, words_of, write_jsonl
from profiles import max_examples
from pydantic import ValidationError

from audit_pipeline.benchmarks.build import BenchmarkReport, build
from audit_pipeline.benchmarks.builder_interface import LabelledText
from audit_pipeline.benchmarks.builders.online import JoinedText, draw_online, read_online_rows, split_into_chunks
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.benchmarks.settings import get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.store.paths import DataPaths

Rows = list[dict[str, Any]]


def article(name: str, label: int | None, longest: int = 8) -> dict[int, dict[str, Any]]:
    """Return the row of an article at every length up to its longest."""
    return {
        length: {"input": words_of(name, length), "label": label, "id": name} for length in (4, 8) if length <= longest
    }


def lay_out(folder: Path, *articles: dict[int, dict[str, Any]]) -> Path:
    for length in (4, 8):
        write_jsonl(folder / f"Rows_length{length}.jsonl", [one[length] for one in articles if length in one])
    return folder


def spec_of(folder: Path, **changes: Any) -> BenchmarkSpec:
    return online_spec(path=folder, id_column="id", **changes)


def built(folder: Path, **changes: Any) -> BenchmarkReport:
    return build(spec_of(folder, **changes), DataPaths(folder / "data"), "run")


def some(folder: Path) -> Path:
    articles = [article(f"m{number}x", 1, 4 if number % 3 == 0 else 8) for number in range(9)]
    return lay_out(folder, *articles, *(article(f"n{number}x", 0, 4 if number % 2 else 8) for number in range(7)))


def test_an_input_is_a_non_member_followed_by_a_member(tmp_path: Path) -> None:
    report = built(lay_out(tmp_path, article("m", 1, 4), article("n", 0, 4)), lengths=[4])
    first, second = report.examples.to_pylist()
    assert (first["text"], first["context"], first["label"]) == (words_of("n", 4), None, 0)
    assert (second["text"], second["context"], second["label"]) == (words_of("m", 4), words_of("n", 4) + " ", 1)
    assert first["group"] == second["group"]
    assert (first["document_id"], second["document_id"]) == ("online:n", "online:m")
    assert (first["words"], first["benchmark"]) == (4, "online_4")
    assert report.failed == ()


def test_chunks_of_many_inputs(tmp_path: Path) -> None:
    report = built(some(tmp_path), calibration_fraction=0.3)
    rows = report.examples.to_pylist()
    by_group: dict[str, Rows] = defaultdict(list)
    for row in rows:
        by_group[row["group"]].append(row)
    assert len(by_group) == 7
    for chunks in by_group.values():
        whole = (chunks[-1]["context"] or "") + chunks[-1]["text"]
        lengths = [sum(row["label"] == label for row in chunks) for label in (0, 1)]
        assert set(lengths) <= {1, 2}
        assert [row["label"] for row in chunks] == [0] * lengths[0] + [1] * lengths[1]
        for row in chunks:
            assert whole.startswith((row["context"] or "") + row["text"])
        assert [row["text"] for row in chunks] == [
            " ".join(whole.split()[start : start + 4]) for start in range(0, 4 * sum(lengths), 4)
        ]
        assert len({row["split"] for row in chunks}) == 1
    assert report.texts_left_out["no partner on the other side"] == 2
    # Both lengths are drawn on both sides: with these seeds, not each on one.
    assert {row["label"] for row in rows if row["text"].split()[0].endswith("x4")} == {0, 1}
    assert report.failed == ()


def test_the_seed_decides_a_random_order(tmp_path: Path) -> None:
    starts = {
        order: [row["label"] for row in built(some(tmp_path), order=order).examples.to_pylist() if not row["context"]]
        for order in ("member_last", "random")
    }
    assert starts["member_last"] == [0] * 7
    assert sorted(set(starts["random"])) == [0, 1]


def test_chunks_keep_white_space_and_have_one_side() -> None:
    def text(content: str, label: int) -> LabelledText:
        return LabelledText(f"d{label}", f"d{label}", "made", content, label, None, "en")

    first, second = text("a  b\tc\n d e f g h ", 0), text("  i j\n\nk l", 1)
    whole = f"{first.text} {second.text}"
    one = JoinedText("g", whole, len(whole) - len(second.text), first, second)
    chunks = split_into_chunks(one, 4, get_word_unit("whitespace"))
    assert [(chunk.context, chunk.text, chunk.label) for chunk in chunks] == [
        (None, "a  b\tc\n d", 0),
        ("a  b\tc\n d ", "e f g h", 0),
        ("a  b\tc\n d e f g h    ", "i j\n\nk l", 1),
    ]


def test_jieba_chunks() -> None:
    unit = get_word_unit("jieba")
    left, right = "今天天气很好", "我们一起去公园"
    words = len(unit.split(left))
    first = LabelledText("a", "a", "made", left, 0, None, "zh")
    second = LabelledText("b", "b", "made", right, 1, None, "zh")
    chunks = split_into_chunks(JoinedText("g", left + right, len(left), first, second), words, unit)
    assert chunks[0].text == left
    assert chunks[1].context == left
    assert right.startswith(chunks[1].text)


def test_unused_rows_are_counted(tmp_path: Path) -> None:
    torn = {4: article("t", 1)[4], 8: article("t", 0)[8]}
    folder = lay_out(tmp_path, article("m", 1), article("n", 0), article("u", None), torn)
    report = built(folder)
    assert report.texts_left_out == {
        "another length of a document that is used": 2,
        "not labelled": 2,
        "of a document with different labels": 2,
    }
    write_jsonl(folder / "Rows_length8.jsonl", [{"input": "too short", "label": 1, "id": "s"}, article("m", 1)[8]])
    report = built(folder)
    assert [(entry.location, entry.reason) for entry in report.skipped] == [
        ("Rows_length8.jsonl:1", "has 2 words, not 8")
    ]


def test_repeated_chunks_are_used_once(tmp_path: Path) -> None:
    def row(name: str, beginning: str, label: int) -> dict[int, dict[str, Any]]:
        return {8: {"input": f"{beginning} {words_of(name, 4)}", "label": label, "id": name}}

    shared, same = words_of("shared", 4), words_of("same", 4)
    articles = [
        row("m", shared, 1),
        row("n", shared, 0),
        row("o", same, 0),
        row("p", same, 0),
        row("q", words_of("z", 4), 1),
    ]
    articles.append(row("r", words_of("y", 4), 1))
    report = built(lay_out(tmp_path, article("filler", 1, 4), *articles), lengths=[8], split="Rows_length8")
    assert report.texts_left_out["chunks that are on both sides"] == 2
    assert report.texts_left_out["chunks that are the same as another chunk"] == 1
    assert report.failed == ()
    assert any(shared in (text or "") for text in report.examples.column("context").to_pylist())


def test_an_empty_side_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"all 4 labelled rows of .* are members"):
        built(lay_out(tmp_path, article("m", 1), article("o", 1)))
    torn = {4: article("n", 0)[4], 8: article("n", 1)[8]}
    with pytest.raises(DataError, match="contains no non-member text, so no input can be joined"):
        built(lay_out(tmp_path, article("m", 1), torn))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lengths": [4, 6]}, "lengths: 6 is not a multiple of 4"),
        ({"lengths": [8, 8]}, r"lengths\n.*must be a list without duplicates"),
        ({"words": "any"}, "words: this builder cuts texts, so it does not accept any"),
        ({"group_column": "book"}, "Extra inputs"),
    ],
)
def test_mistakes_in_the_entry_are_reported(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        online_spec(**changes)


@max_examples(25)
@given(
    sides=st.lists(st.tuples(st.sampled_from((0, 1, None)), st.booleans()), min_size=2, max_size=10),
    seed=st.integers(0, 3),
)
def test_the_order_of_rows_is_irrelevant(
    tmp_path_factory: pytest.TempPathFactory, sides: list[tuple[int | None, bool]], seed: int
) -> None:
    articles = [article(f"a{number}x", label, 8 if long else 4) for number, (label, long) in enumerate(sides)]
    articles += [article("m", 1), article("n", 0)]
    shuffled = articles.copy()
    random.Random(seed).shuffle(shuffled)
    found = []
    for some_articles in (articles, shuffled):
        folder = lay_out(tmp_path_factory.mktemp("rows"), *some_articles)
        spec = spec_of(folder, seed=seed)
        rows = read_online_rows(spec, DataPaths(folder / "data"), lambda source: None).content
        found.append(draw_online(rows, spec, "run").examples)
    assert found[0].equals(found[1])
    assert found[0].num_rows
