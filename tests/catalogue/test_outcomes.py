"""Why a run left a pair undone: the first word of a run stays, the last run's is the latest, and all fits a line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from written import read_all

from audit_pipeline.catalogue import outcomes
from audit_pipeline.catalogue.contracts import OUTCOMES, Pair
from audit_pipeline.catalogue.outcomes import (
    MAX_REASON,
    PairOutcome,
    read_latest_outcome,
    read_run_outcome,
    record_outcome,
)
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError

PAIR = Pair("notes_32", "owner/name")


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path / "data")


def at(paths: DataPaths, monkeypatch: pytest.MonkeyPatch, hour: int, run_id: str, pair: Pair = PAIR) -> PairOutcome:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 3, 1, hour, tzinfo=UTC)

    monkeypatch.setattr(outcomes, "datetime", Clock)
    return record_outcome(paths, pair, "scores", "failed", f"at {hour}", run_id)


def test_what_was_recorded_is_read_back_and_nothing_else_is_there(paths: DataPaths) -> None:
    assert read_run_outcome(paths, PAIR, "r1") is None
    assert read_latest_outcome(paths, PAIR) is None
    before = datetime.now(UTC)
    written = record_outcome(paths, PAIR, "token_statistics", "not_applicable", "no such model", "r1")
    assert (written.pair, written.stage, written.status) == (PAIR, "token_statistics", "not_applicable")
    assert (written.reason, written.run_id) == ("no such model", "r1")
    assert before <= written.at <= datetime.now(UTC)
    assert read_run_outcome(paths, PAIR, "r1") == read_latest_outcome(paths, PAIR) == written
    assert read_run_outcome(paths, PAIR, "r2") is None
    assert read_latest_outcome(paths, Pair("notes_64", "owner/name")) is None
    assert read_all(paths.table("outcomes"), OUTCOMES).num_rows == 1


def test_the_first_outcome_of_a_run_stays(paths: DataPaths) -> None:
    first = record_outcome(paths, PAIR, "token_statistics", "failed", "the device is gone", "r1")
    again = record_outcome(paths, PAIR, "scores", "not_applicable", "has been run on none of these texts", "r1")
    assert again == first
    assert read_run_outcome(paths, PAIR, "r1") == first
    other = record_outcome(paths, PAIR, "scores", "failed", "another fault", "r2")
    assert other.reason == "another fault"
    assert read_run_outcome(paths, PAIR, "r1") == first


def test_the_latest_is_told_by_time_not_by_name(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    at(paths, monkeypatch, 9, "b")
    last = at(paths, monkeypatch, 11, "a")
    at(paths, monkeypatch, 10, "c")
    at(paths, monkeypatch, 12, "d", Pair("notes_32", "other"))
    assert read_latest_outcome(paths, PAIR) == last


@pytest.mark.parametrize(
    ("given_reason", "kept"),
    [
        ("two\n lines\tand\r\n blanks ", "two lines and blanks"),
        ("", "no reason was given"),
        (" \n", "no reason was given"),
        ("\x1b[31mred\x00", "\ufffd[31mred\ufffd"),
        ("name \udcff of a file", "name \ufffd of a file"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
    ],
)
def test_reasons(paths: DataPaths, given_reason: str, kept: str) -> None:
    assert record_outcome(paths, PAIR, "scores", "failed", given_reason, "r1").reason == kept
    assert read_latest_outcome(paths, PAIR) == read_run_outcome(paths, PAIR, "r1")


@max_examples(25)
@given(st.text(st.characters(), max_size=700))
def test_any_reason_is_one_short_line_that_can_be_read_back(
    tmp_path_factory: pytest.TempPathFactory, reason: str
) -> None:
    paths = DataPaths(tmp_path_factory.mktemp("outcomes"))
    written = record_outcome(paths, PAIR, "scores", "failed", reason, "r1")
    assert read_run_outcome(paths, PAIR, "r1") == written
    assert len(written.reason.splitlines()) == 1
    assert 0 < len(written.reason) <= MAX_REASON
    assert written.reason.isprintable() or "\ufffd" in written.reason


def test_a_damaged_file_is_an_error_that_names_it(paths: DataPaths) -> None:
    record_outcome(paths, PAIR, "scores", "failed", "a fault", "r1")
    file = paths.run_file("outcomes", PAIR.partition, "r1")
    file.write_bytes(b"half")
    for ask in (lambda: read_run_outcome(paths, PAIR, "r1"), lambda: read_latest_outcome(paths, PAIR)):
        with pytest.raises(DataError, match=r"run_id=r1\.parquet"):
            ask()
    with pytest.raises(DataError, match=r"cannot be read"):
        record_outcome(paths, PAIR, "scores", "failed", "another", "r1")
    assert file.read_bytes() == b"half"
