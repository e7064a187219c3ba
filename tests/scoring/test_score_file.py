"""The scoring of a user's file: the columns of the table, unusable rows, and the division into chunks."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_files import write_rows, written
from tiny_models import SENTENCES, Tiny, never, save_model, tokenized, twin_statistics
from tiny_models import forward_of as load

from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.errors import DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.formats import open_scored_texts, open_texts
from audit_pipeline.scoring.backends import HeldModel
from audit_pipeline.scoring.file import GROUP, ChunkLimits, FileProgress, FileScores, ProgressListener, score_file
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")
COLUMNS = {
    "example_index": pa.int64(),
    "detector": pa.string(),
    "parameters": pa.string(),
    "score": pa.float64(),
    "status": pa.string(),
    "reason": pa.string(),
    "label": pa.int8(),
    "group": pa.string(),
    "sha256": pa.string(),
    "id": pa.string(),
    "scored_part": pa.string(),
}
FEW = ChunkLimits(texts=3)


Score = Callable[..., FileScores]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "scores.parquet"


@pytest.fixture
def score(tiny: Tiny, tmp_path: Path, out: Path) -> Score:
    model, forward = tiny("llama")

    def run(
        file: Path,
        detectors: list[str] | None = None,
        *,
        text_column: str | None = None,
        label_column: str = "label",
        data: Path = tmp_path / "data",
        audited: TokenizedModel = model,
        **options: Any,
    ) -> FileScores:
        texts = open_texts(file, text_column, [label_column, GROUP, "id"])
        options = {"label_column": label_column, "backend_of": lambda wanted: forward, **options}
        return score_file(texts, out, audited, select_detectors(detectors), DataPaths(data), **options)

    return run


def texts_file(folder: Path, count: int, name: str = "texts.jsonl") -> Path:
    """Write a file of texts of several lengths. The last text repeats the first."""
    chosen = random.Random(count)
    texts = [
        " ".join(chosen.choices(SENTENCES[n % 6].split(), k=chosen.randint(1, 30))) + f" {n}" for n in range(count)
    ]
    texts[-1] = texts[0]
    return write_rows(folder / name, [{"text": text, "label": number % 2} for number, text in enumerate(texts)])


def test_the_table_has_the_documented_columns_and_the_rows_of_the_file(
    score: Score, tiny: Tiny, tmp_path: Path, out: Path
) -> None:
    third, fourth = (
        '{"input": "a third text", "label": 0, "group": 7, "id": "q3"}',
        '{"input": "a first text", "label": "member", "id": "\\ud800"}',
    )
    lines = ['{"input": "a first text"}', '{"input": "broken', third, fourth]
    done = score(written(tmp_path, "t.jsonl", "\n".join(lines)), ["loss", "min_k"])
    table = pq.read_table(out)
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == COLUMNS
    assert len(table) == done.written
    rows = table.to_pylist()
    assert [(row["example_index"], row["detector"]) for row in rows] == [
        (place, detector) for place in (0, 2, 3) for detector in ("loss", "min_k")
    ]
    assert [(row.location, row.index) for row in done.skipped.first] == [("t.jsonl:2", 1)]
    model, forward = tiny("llama")
    expected = {
        place: twin_statistics(model, forward, text)["logprob"].mean()
        for place, text in ((0, "a first text"), (2, "a third text"), (3, "a first text"))
    }
    found = {row["example_index"]: row["score"] for row in rows if row["detector"] == "loss"}
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[place] for place in expected], list(expected.values()), atol=1e-4)
    assert {row["parameters"] for row in rows} == {"{}", '{"k":0.2}'}
    assert [(row["label"], row["group"]) for row in rows[::2]] == [(None, None), (0, "7"), (1, None)]
    assert [row["id"] for row in rows[::2]] == [None, "q3", None], "a lone surrogate is no id"
    texts = ("a first text", "a third text", "a first text")
    assert [row["sha256"] for row in rows] == [sha256(text.encode()).hexdigest() for text in texts for _ in range(2)]
    assert (
        done.summary.text_pass.texts,
        done.summary.text_pass.texts_computed,
        done.summary.text_pass.texts_from_cache,
    ) == (3, 2, 0)


def test_detectors_that_score_no_text_are_named_with_their_reason(score: Score, tmp_path: Path, out: Path) -> None:
    file = written(tmp_path, "t.txt", "one\ntwo\na line of text that is a good deal longer than the others are\n")
    done = score(file, ["loss", "combined", "dc_pdd", "surp"], bounds=ChunkLimits(texts=1))
    rows = pq.read_table(out).to_pylist()
    assert {row["status"] for row in rows if row["detector"] == "surp" and row["example_index"] == 0} != {"ok"}
    scored = {row["detector"] for row in rows if row["status"] == "ok"}
    assert {"loss"} <= scored <= {"loss", "surp"}
    assert done.unscored == {row["detector"]: row["reason"] for row in rows[:4] if row["detector"] not in scored}
    assert "ranks require all texts of a benchmark" in done.unscored["combined"]


def test_scored_texts_are_read_from_the_cache(score: Score, tmp_path: Path, out: Path) -> None:
    score(written(tmp_path, "one.txt", "first line\nsecond line\n"))
    told: list[FileProgress] = []
    file = written(tmp_path, "two.txt", "second line\nthird line\n")
    more = score(file, listener=ProgressListener(progress=told.append))
    assert (more.summary.text_pass.texts_from_cache, more.summary.text_pass.texts_computed) == (1, 1)
    assert (told[-1].texts_done, told[-1].texts_total, told[-1].estimated) == (2, 2, False)
    told.clear()
    before = pq.read_table(out)
    again = score(file, listener=ProgressListener(progress=told.append), backend_of=never)
    assert (again.summary.text_pass.texts_from_cache, again.summary.text_pass.texts_computed) == (2, 0)
    assert told == [FileProgress(2, 2, estimated=False)]
    assert pq.read_table(out).equals(before)


# The file in chunks.


def test_no_score_depends_on_how_the_file_is_divided(score: Score, tmp_path: Path, out: Path) -> None:
    """Each division has its own cache. Scores differ only by the rounding of other batches."""
    file = texts_file(tmp_path, 11)
    score(file, data=tmp_path / "whole")
    whole = pq.read_table(out)
    for number, bounds in enumerate((ChunkLimits(texts=4), ChunkLimits(characters=200))):
        score(file, data=tmp_path / f"divided-{number}", bounds=bounds)
        divided = pq.read_table(out)
        assert divided.drop_columns("score").equals(whole.drop_columns("score"))
        scores = [np.array(table.column("score").to_pylist(), dtype=float) for table in (whole, divided)]
        np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3, atol=1e-3)


def test_a_cached_file_is_scored_to_the_last_digit_however_it_is_divided(
    score: Score, tmp_path: Path, out: Path
) -> None:
    file = texts_file(tmp_path, 11)
    first = score(file, bounds=ChunkLimits(texts=5))
    whole = pq.read_table(out)
    for bounds in (ChunkLimits(), ChunkLimits(texts=1), ChunkLimits(characters=150)):
        again = score(file, bounds=bounds, backend_of=never)
        assert pq.read_table(out).equals(whole)
        assert again.labelled.compute_separations() == first.labelled.compute_separations()
        assert again.summary.text_pass.texts_from_cache >= 10


def test_an_interrupted_run_keeps_the_finished_passes(
    score: Score, tiny: Tiny, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, calls = tiny("llama")[1].begin, itertools.count(1)

    def begin_unless_interrupted(*batch: Any, **options: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return begin(*batch, **options)

    file = texts_file(tmp_path, 10)
    out.write_bytes(b"an earlier table")
    monkeypatch.setattr(tiny("llama")[1], "begin", begin_unless_interrupted)
    with pytest.raises(KeyboardInterrupt):
        score(file, ["loss"], bounds=FEW)
    assert out.read_bytes() == b"an earlier table"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []
    again = score(file, ["loss"], bounds=FEW)
    assert (again.summary.text_pass.texts_from_cache, again.summary.text_pass.texts_computed) == (7, 3)
    assert len(pq.read_table(out)) == 10


def test_a_truncated_file_writes_no_table(score: Score, tmp_path: Path, out: Path) -> None:
    rows = [{"text": f"text {number}"} for number in range(8)]
    file = written(tmp_path, "t.json", json.dumps(rows)[:-20])
    with pytest.raises(DataError, match=r"t\.json: the file is not valid JSON"):
        score(file, ["loss"], bounds=FEW)
    assert not out.exists()


def test_the_reference_model_runs_over_the_whole_file_before_the_audited_one(
    score: Score, tiny: Tiny, tmp_path: Path, out: Path
) -> None:
    """One model at a time is in memory, so alternating models per chunk would load each model once per chunk."""
    other = save_model(tmp_path / "other", "llama", seed=1)
    model = tiny("llama")[0]
    entry = model.entry.model_copy(update={"reference_model": str(other)})
    audited = replace(model, located=replace(model.located, entry=entry))
    loaded: list[str] = []

    def making_ready(wanted: TokenizedModel) -> ForwardPass:
        loaded.append(wanted.entry.name)
        return load(wanted)

    file = texts_file(tmp_path, 10)
    backend_of = partial(HeldModel().ensure_loaded, load=making_ready)
    done = score(file, ["loss", "reference"], audited=audited, bounds=FEW, backend_of=backend_of)
    assert [Path(name).name for name in loaded] == ["other", "llama"]
    assert (done.summary.extra_passes["reference"].texts, done.summary.extra_passes["reference"].texts_computed) == (
        10,
        9,
    )
    reference = tokenized(other, tmp_path / "other-data")
    expected = [
        float(np.mean(twin_statistics(model, tiny("llama")[1], text)["logprob"]))
        - float(np.mean(twin_statistics(reference, load(reference), text)["logprob"]))
        for text in (row.text for row in open_texts(file))
    ]
    rows = pq.read_table(out).to_pylist()
    np.testing.assert_allclose([row["score"] for row in rows if row["detector"] == "reference"], expected, atol=1e-3)


def test_neighbours_are_those_of_the_text_however_the_file_is_divided(score: Score, tmp_path: Path, out: Path) -> None:
    file = texts_file(tmp_path, 5)
    score(file, ["neighbour"])
    whole = pq.read_table(out)
    assert whole.column("status").to_pylist() == ["ok"] * 5
    score(file, ["neighbour"], bounds=ChunkLimits(texts=2), backend_of=never)
    assert pq.read_table(out).equals(whole)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(score: Score, tmp_path: Path) -> None:
    """With four times the rows, Python's peak memory grows by a few bytes per text only."""
    rows = [{"text": f"{SENTENCES[n % 6]} {n % 50}", "label": n % 2} for n in range(6000)]
    peaks = []
    for count in (1500, 6000):
        file = write_rows(tmp_path / f"{count}.jsonl", rows[:count])
        score(file, ["loss", "zlib"], bounds=ChunkLimits(texts=200))
        tracemalloc.start()
        try:
            score(file, ["loss", "zlib"], bounds=ChunkLimits(texts=200), backend_of=never)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4500 * 60


# Labels.


def test_a_file_without_a_usable_row_writes_nothing(score: Score, tmp_path: Path, out: Path) -> None:
    with pytest.raises(DataError, match="none of the 2 rows can be used"):
        score(written(tmp_path, "t.jsonl", "{\n}"))
    assert not out.exists()
    assert not (tmp_path / "data").exists()


def test_no_separation_without_both_sides_and_the_reason(score: Score, tmp_path: Path) -> None:
    members = write_rows(tmp_path / "m.jsonl", [{"text": f"words {number}", "label": 1} for number in range(3)])
    labelled = score(members, ["loss"]).labelled
    assert labelled.compute_separations() == []
    requirement = "the AUROC is not computed, because it requires members and non-members, but the labels name "
    assert labelled.problem == requirement + "only 3 members"
    strange = write_rows(tmp_path / "s.jsonl", [{"text": "words", "label": "seen"}])
    assert score(strange, ["loss"]).labelled.problem == requirement + "no member and no non-member"
    plain = score(written(tmp_path, "plain.txt", "one line\nanother"), ["loss"]).labelled
    assert (plain.compute_separations(), plain.problem) == ([], None)


def test_parts_of_conversations_share_the_pass_of_the_whole_text(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    messages = [
        {"role": "user", "content": SENTENCES[4]},
        {"role": "assistant", "content": "quiet"},
        {"role": "user", "content": "why"},
        {"role": "assistant", "content": SENTENCES[2]},
    ]
    file = write_rows(tmp_path / "c.jsonl", [{"messages": messages}])
    scores: dict[str, dict[str, Any]] = {}
    computed = {}
    selection = select_detectors(["loss", "min_k_plus_plus", "infilling", "max_renyi"])
    for part in ("response", "last_response", "all"):
        texts = open_scored_texts(file, None, part)
        out = tmp_path / f"{part}.parquet"
        result = score_file(texts, out, model, selection, DataPaths(tmp_path / "data"), lambda _: forward)
        computed[part] = result.summary.text_pass.texts_computed
        scores[part] = {row["detector"]: row for row in pq.read_table(out).to_pylist()}
    assert computed == {"response": 1, "last_response": 0, "all": 0}

    [row] = open_scored_texts(file, None, "response")
    twin = twin_statistics(model, forward, row.text)
    [encoded] = encode(model, [row.text])
    ends = encoded.char_end[encoded.first_scored :]
    is_scored = {part: np.zeros(len(ends), bool) for part in scores}
    for part, spans in (("response", row.spans), ("last_response", row.spans[-1:]), ("all", [(0, len(row.text))])):
        for start, end in spans:
            is_scored[part] |= (ends > start) & (ends <= end)
        expected = twin["logprob"][is_scored[part]].mean()
        assert scores[part]["loss"]["score"] == pytest.approx(expected, abs=1e-4)
        assert scores[part]["max_renyi"]["status"] == "ok"
    assert 0 < is_scored["last_response"].sum() < is_scored["response"].sum() < len(ends)
    assert scores["last_response"]["infilling"]["status"] == "ok"
    assert "several parts of the text are scored" in scores["response"]["infilling"]["reason"]
    assert scores["response"]["loss"]["sha256"] == sha256(row.text.encode()).hexdigest()
