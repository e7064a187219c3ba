"""What is handed on comes back as the same benchmark, whatever its texts, groups, days and labels are."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from handed_on import DAY, built_of, digests_read_back, entries_in, example, write
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.benchmarks.built_benchmark import compute_content_digest, to_export_names
from audit_pipeline.errors import DataError

FOUR = [
    example("old words stand here", 1),
    example("new words stand here", 0, group="made:tree:new"),
    example("more old words", 1, split="calibration", group="other:1"),
    example("more new words", 0, split="calibration", group="other:2"),
]

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", " ", "made:x", "made:", "7", "x" * 300, "😀", "a\tb", "\u00a0"]
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


@st.composite
def benchmarks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Examples as builders leave them: each text once (behind its context), a group in one split, both sides there."""
    read = draw(st.lists(st.tuples(st.none() | _TEXTS, _TEXTS), min_size=2, max_size=6, unique=True))
    splits: dict[str, str] = {}
    rows = []
    for place, (context, text) in enumerate(read):
        group = draw(_NAMES)
        splits.setdefault(group, draw(st.sampled_from(["calibration", "evaluation"])))
        rows.append(
            example(
                text,
                place if place < 2 else draw(st.sampled_from([0, 1, None])),
                context=context,
                group=group,
                document_id=draw(_NAMES),
                split=splits[group],
                published=draw(st.none() | st.dates(date(1500, 1, 1), date(2025, 12, 31))),
                language=draw(st.sampled_from(["en", "zh", "und", ""])),
                collection=draw(_NAMES),
            )
        )
    return rows


@max_examples(15)
@given(benchmarks())
def test_any_benchmark_comes_back_with_the_same_digest(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("any")
    built = built_of(rows, root / "data")
    done = write([built], root / "out")
    assert digests_read_back(root / "out") == list(done.values())
    assert done == {"made": compute_content_digest(built.examples)}


def test_the_digest_is_what_the_card_says_it_is(tmp_path: Path) -> None:
    """Computed with nothing of ours, by the words of the card, from the files alone."""
    built = built_of(FOUR, tmp_path / "data")
    done = write([built], tmp_path / "out")
    names = ["text", "context", "label", "split", "published", "language", "collection", "document_id", "group"]
    as_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    texts, of_place = [], {"document_id": {}, "group": {}}
    for file in sorted((tmp_path / "out" / "data").rglob("*.parquet")):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            texts.append(row)
            own = hashlib.sha256(as_json([row["context"], row["text"]]).encode()).hexdigest()
            for name, digests in of_place.items():
                digests.setdefault(row[name], []).append(own)
    for row in texts:
        row |= {name: min(digests[row[name]]) for name, digests in of_place.items()}
    lists = [[None if row[name] is None else str(row[name]) for name in names] for row in texts]
    whole = f"[[{','.join(sorted(map(as_json, lists)))}]]"
    assert done["made"] == hashlib.sha256(whole.encode()).hexdigest()


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"text": "old words stand there"}),
        (0, {"label": 0}),
        (0, {"label": None}),
        (0, {"context": "before"}),
        (0, {"split": "calibration"}),
        (0, {"published": None}),
        (0, {"language": "de"}),
        (0, {"collection": "bush"}),
        (0, {"group": FOUR[1]["group"]}),
        (0, {"document_id": FOUR[1]["document_id"]}),
    ],
)
def test_the_digest_sees_whatever_a_result_may_depend_on(tmp_path: Path, place: int, change: dict[str, Any]) -> None:
    def digest(rows: list[dict[str, Any]], name: str, family: str = "made") -> str:
        return compute_content_digest(built_of(rows, tmp_path / name, family=family).examples)

    changed = [{**row, **change} if number == place else row for number, row in enumerate(FOUR)]
    before = digest(FOUR, "before")
    assert digest(changed, "after") != before
    assert digest(FOUR[::-1], "turned") == before
    renamed = [{**row, "group": f"a:{row['group']}", "document_id": f"b:{row['document_id']}"} for row in FOUR]
    assert digest(renamed, "renamed", "other-name") == before


def test_names_are_told_apart_and_read_back() -> None:
    long = "x" * 300
    names = to_export_names(["f:a", "f:f:a", "f:", f"f:{long}", "f: a"], "f")
    assert names[:2] == ["a", "f:a"]
    assert len(set(names)) == 5
    assert all(name.strip() == name and 0 < len(name) <= 200 for name in names)
    assert to_export_names([f"g:{name}" for name in names], "g") == names
    assert to_export_names(["f:a", "b"], "f") == ["f:a", "b"], "only where all have it"


def test_datasets_loads_every_configuration_and_split(tmp_path: Path) -> None:
    lengths = {
        words: [
            example(" ".join([f"{side}{number}"] * words), label, split=split, published=None if number else DAY)
            for side, label in (("old", 1), ("new", 0), ("any", None))
            for number, split in enumerate(("evaluation", "calibration"))
        ]
        for words in (2, 3)
    }
    done = write([built_of(rows, tmp_path / "data", words) for words, rows in lengths.items()], tmp_path / "out")
    assert list(done) == ["made_2", "made_3"]
    for words, rows in lengths.items():
        loaded = load_dataset(str(tmp_path / "out"), f"made_{words}", cache_dir=str(tmp_path / "cache"))
        assert sorted(loaded) == ["calibration", "evaluation"]
        for split, found in loaded.items():
            expected = [(row["text"], row["label"], row["published"]) for row in rows if row["split"] == split]
            assert list(zip(found["text"], found["label"], found["published"], strict=True)) == expected
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["words"] == [2, 3]
    assert entry["files"] == ["data/made_{words}/calibration.parquet", "data/made_{words}/evaluation.parquet"]
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_lengths_with_other_splits_have_entries_of_their_own(tmp_path: Path) -> None:
    both = [
        example("a b"),
        example("c d", 0),
        example("e f", split="calibration"),
        example("g h", 0, split="calibration"),
    ]
    one = [example("a b c"), example("d e f", 0)]
    done = write([built_of(both, tmp_path / "data", 2), built_of(one, tmp_path / "data", 3)], tmp_path / "out")
    entries = entries_in(tmp_path / "out")
    assert {name: entry["words"] for name, entry in entries.items()} == {"made": [2], "made_splits_2": [3]}
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_texts_that_are_not_of_the_length_stay(tmp_path: Path) -> None:
    write([built_of([example("a b"), example("a b c", 0)], tmp_path / "data", 2)], tmp_path / "out")
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["exact_words"] is False


def test_a_shelf_comes_back(tmp_path: Path) -> None:
    """Unlabelled texts that are evaluated, beside held-out ones that are for calibration."""
    rows = [example("shelf one", None), example("shelf two", None), example("held out", 0, split="calibration")]
    done = write([built_of(rows, tmp_path / "data", design="exchangeable")], tmp_path / "out")
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_a_text_that_stands_twice_is_refused(tmp_path: Path) -> None:
    rows = [*FOUR, example(FOUR[0]["text"], 1, document_id="elsewhere", group="elsewhere")]
    with pytest.raises(DataError, match=r"1 of its texts cannot be read from the export\. The first is .* the same as"):
        write([built_of(rows, tmp_path / "data")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matched_sides_stay_matched(tmp_path: Path) -> None:
    """Else their split would look better than it is."""
    write([built_of(FOUR, tmp_path / "data", matched={"achieved": {}})], tmp_path / "out")
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["matched"] is True


def test_what_is_written_is_read_by_columns_that_are_named(tmp_path: Path) -> None:
    write([built_of(FOUR, tmp_path / "data")], tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "data" / "made" / "evaluation.parquet", partitioning=None)
    assert table.schema.field("published").type == pa.date32()
    assert table.schema.field("label").type == pa.int8()
    assert table.column("title").to_pylist() == [None, None]
