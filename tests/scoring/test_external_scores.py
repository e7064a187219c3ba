"""Tables of scores of a user: the meaning of their columns, and unusable rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import SkippedRows
from audit_pipeline.scoring.external_scores import (
    ExternallyScoredTexts,
    ExternalScores,
    read_external_scores,
    read_scored_texts,
)
from audit_pipeline.tables import Pair, canonical_json, text_sha256

PAIR = Pair("mine", "a model")


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "scores.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def read(folder: Path, rows: list[dict[str, Any]], calibration: float = 0.5) -> ExternalScores:
    return read_external_scores(written(folder, rows), PAIR, "run", calibration=calibration, seed=1, language="en")


def labels_and_splits(given: ExternalScores) -> dict[str, tuple[int | None, str]]:
    return {row["example_id"]: (row["label"], row["split"]) for row in given.examples.to_pylist()}


def test_texts_are_joined_by_their_digests(tmp_path: Path) -> None:
    texts = ["a first text", "another one", "a third", "another one", "edited later", "gone"]
    rows = [
        {"score": float(n), "label": 1, "example_index": n, "sha256": text_sha256(text)} for n, text in enumerate(texts)
    ]
    lines = ["a third", "another one", "", "edited since", "a first text", "not scored"]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"words": line}) + "\n" for line in lines))
    scores = written(tmp_path, rows)
    found = read_scored_texts(file, "words")
    given = read_external_scores(scores, PAIR, "run", calibration=0, seed=1, language="en", texts=found)
    assert {row["example_id"]: row["text"] for row in given.examples.to_pylist()} == {
        "0": "a first text", "1": "another one", "2": "a third", "3": "another one"
    }  # fmt: skip
    assert given.scores["score"].to_pylist() == [0, 1, 2, 3]
    assert given.unused_counts == {"the text is not in the file of texts": 2}
    assert given.has_text
    notes = [note.replace(str(file), "FILE") for note in given.notes[:3] + given.notes[-1:]]
    assert notes == [
        "2 texts of FILE have no score",
        "1 texts repeat other texts of the table. Each repetition counts as a text: scores.parquet:4",
        "1 row(s) of FILE have no usable text. The first is texts.jsonl:3: column 'words' is empty",
        "2 texts are not in FILE (missing there, or edited since they were scored), so they are skipped: "
        "scores.parquet:5, scores.parquet:6",
    ]
    without = read_external_scores(scores, PAIR, "run", calibration=0, seed=1, language="en")
    assert without.notes[-1].endswith("was not computed. Name the scored file with --texts")


def test_a_file_of_other_texts_and_a_table_without_digests_are_refused(tmp_path: Path) -> None:
    other = ExternallyScoredTexts(Path("t.jsonl"), {text_sha256("other"): "other"}, SkippedRows())
    for row, problem in (
        (
            {"score": 1.0, "label": 1, "sha256": text_sha256("a text")},
            "t.jsonl: the file contains none of the 1 texts of",
        ),
        ({"score": 1.0, "label": 1}, "there is no column 'sha256'"),
    ):
        with pytest.raises(DataError, match=problem):
            read_external_scores(
                written(tmp_path, [row]), PAIR, "run", calibration=0, seed=1, language="en", texts=other
            )


@pytest.mark.parametrize("name", REGISTRY)
def test_every_spelling_of_the_default_parameters_is_the_default(name: str, tmp_path: Path) -> None:
    labels = [None, "{}", REGISTRY[name].to_json({}), canonical_json(REGISTRY[name].default)]
    rows = [
        {"example_id": str(place), "score": 1.0, "label": 1, "detector": name, "parameters": label}
        for place, label in enumerate(labels)
    ]
    found = read(tmp_path, rows).scores
    assert set(found.column("parameters").to_pylist()) == {REGISTRY[name].to_json({})}
    assert found.column("is_default").to_pylist() == [True] * len(labels)


def test_labelled_groups_are_split_and_unlabelled_groups_are_audited(tmp_path: Path) -> None:
    rows = [
        {"example_id": f"{side}{one}", "score": 0.0, "label": side, "group": f"{side} {one}"}
        for side in (1, 0, None)
        for one in range(10)
    ]
    found = labels_and_splits(read(tmp_path, rows, calibration=0.4))
    counted: dict[tuple[int | None, str], int] = {}
    for pair in found.values():
        counted[pair] = counted.get(pair, 0) + 1
    assert counted == {
        (1, "calibration"): 4,
        (1, "evaluation"): 6,
        (0, "calibration"): 4,
        (0, "evaluation"): 6,
        (None, "evaluation"): 10,
    }


def test_without_members_every_known_text_is_held_out(tmp_path: Path) -> None:
    rows = [{"example_id": name, "score": 0.0, "label": label} for name, label in (("a", None), ("b", 0), ("c", 0))]
    assert labels_and_splits(read(tmp_path, rows)) == {
        "a": (None, "evaluation"),
        "b": (0, "calibration"),
        "c": (0, "calibration"),
    }


def test_unusable_rows_are_counted_by_reason(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text(
        "example_id,score,label,published\n"
        "good,1.5,true,2024-05-31\n"
        "words,high,1,\n"
        "side,1.0,maybe,\n"
        "day,1.0,0,yesterday\n"
        ",1.0,0,\n"
        "empty,,0,\n"
        "not a number,NaN,0,\n"
        "infinite,inf,,\n"
    )
    given = read_external_scores(file, PAIR, "run", calibration=0.5, seed=1, language="en")
    assert given.unused_counts == {
        "label is neither 1, 0 nor empty": 1,
        "published is not a date such as 2024-05-31": 1,
        "the score is not a number": 1,
        "the file has no score of the text": 1,
        "the row has no example_id": 1,
        "the score is NaN": 1,
    }
    assert given.notes[0] == (
        "1 label(s) have an unknown spelling (so their rows are skipped): 'maybe' (1). Valid labels are 1 or member, 0 "
        "or non-member, or empty."
    )
    assert given.notes[1].startswith("1 infinite score(s) were replaced by finite scores")


def test_the_split_depends_only_on_the_texts_and_the_seed(tmp_path: Path) -> None:
    rows = [{"example_id": f"t{n}", "score": float(n), "label": n % 2, "group": f"g{n // 2}"} for n in range(120)]
    file = written(tmp_path, rows)

    def splits(file: Path, pair: Pair, seed: int = 0) -> dict[str, tuple[int | None, str]]:
        return labels_and_splits(read_external_scores(file, pair, "run", calibration=0.5, seed=seed, language="en"))

    first = splits(file, PAIR)
    assert {split for _, split in first.values()} == {"calibration", "evaluation"}
    for name in ("other", "another.one", "z"):
        renamed = tmp_path / f"{name}.parquet"
        renamed.write_bytes(file.read_bytes())
        assert splits(renamed, Pair(name, f"model {name}")) == first
    assert splits(written(tmp_path, rows[::-1]), PAIR) == first, "nor on the order of rows"
    assert splits(file, PAIR, seed=1) != first
    other = [{**row, "group": f"other {row['group']}"} for row in rows]
    assert splits(written(tmp_path, other), PAIR) != first


def test_the_only_setting_of_a_detector_is_its_default(tmp_path: Path) -> None:
    """An example is a benchmark's list of combined detectors, which the file does not contain."""
    settings = [("combined", '{"of":"loss,zlib"}'), ("min_k", '{"k":0.3}'), ("min_k", '{"k":0.2}')]
    named = [dict(zip(("detector", "parameters"), one, strict=True)) for one in settings]
    rows = [{"example_id": "a", "score": 1.0, "label": 1, **one} for one in named]
    found = read(tmp_path, rows).scores.to_pylist()
    assert {(row["detector"], row["parameters"]): row["is_default"] for row in found} == {
        settings[0]: True,
        settings[1]: False,
        settings[2]: True,
    }
