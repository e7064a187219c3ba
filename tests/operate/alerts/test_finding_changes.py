"""Which changes of findings are told, in which words; and the state that is remembered between two looks."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.operate.alerts import (
    FindingKey,
    WatchedFinding,
    compare_findings,
    findings_from_text,
    findings_to_text,
    read_findings,
)
from audit_pipeline.operate.stages.warehouse import build_warehouse

LOSS = WatchedFinding("tiny", "notes_32", "loss", "{}", 0.6, 0.55, 0.65, "screening only", "mild shift", True)
MIN_K = replace(LOSS, detector="min_k", parameters='{"k":0.2}', auroc=0.62, low=0.57, high=0.67)


def state(*findings: WatchedFinding) -> dict[FindingKey, WatchedFinding]:
    return {finding.key: finding for finding in findings}


def told(
    old: dict[FindingKey, WatchedFinding], new: dict[FindingKey, WatchedFinding]
) -> list[tuple[tuple[str, ...], str]]:
    return [(change.kinds, change.words) for change in compare_findings(old, new)]


def test_the_same_is_no_change() -> None:
    assert compare_findings(state(LOSS, MIN_K), state(MIN_K, LOSS)) == []
    assert compare_findings({}, {}) == []


def test_a_new_pair_is_told_once_with_all_its_detectors() -> None:
    assert told({}, state(LOSS, MIN_K)) == [
        (
            ("first",),
            "tiny on notes_32: first findings: loss AUROC 0.600 (95% interval 0.550 to 0.650), "
            'min_k {"k":0.2} AUROC 0.620 (95% interval 0.570 to 0.670); split: mild shift; claim: screening only',
        )
    ]


def test_a_pair_that_is_gone_is_told() -> None:
    assert told(state(LOSS, MIN_K), {}) == [(("gone",), "tiny on notes_32: its findings are gone")]


def test_detectors_that_come_and_go_are_told_of_their_pair() -> None:
    assert told(state(LOSS), state(MIN_K)) == [
        (
            ("first", "gone"),
            'tiny on notes_32: first finding of min_k {"k":0.2} AUROC 0.620 (95% interval 0.570 to 0.670); '
            "no finding of loss any more",
        )
    ]


def test_levels_and_verdicts_are_told_once_a_pair() -> None:
    better = {"claim_level": "statistical evidence", "split_verdict": "randomised by design"}
    assert told(state(LOSS, MIN_K), state(replace(LOSS, **better), replace(MIN_K, **better))) == [
        (
            ("claim_level", "split_verdict"),
            "tiny on notes_32: claim level is statistical evidence, was screening only; "
            "split verdict is randomised by design, was mild shift",
        )
    ]


def test_a_finding_that_became_stale_is_told_and_one_that_is_current_again_is_not() -> None:
    stale = replace(LOSS, is_current=False)
    assert told(state(LOSS), state(stale)) == [
        (("stale",), "tiny on notes_32: became stale: its benchmark has been rebuilt since")
    ]
    assert told(state(stale), state(stale)) == []
    assert told(state(stale), state(LOSS)) == []


@pytest.mark.parametrize(
    ("was", "auroc", "is_told"),
    [
        (LOSS, 0.65, False),  # the end of the interval is inside
        (LOSS, 0.6501, True),
        (LOSS, 0.55, False),
        (LOSS, 0.5499, True),
        (replace(LOSS, low=0.595, high=0.605), 0.62, False),  # outside of a narrow interval, moved by exactly 0.02
        (replace(LOSS, low=0.595, high=0.605), 0.6201, True),
        (replace(LOSS, low=0.595, high=0.605), 0.5799, True),
        (replace(LOSS, low=0.2, high=0.9), 0.3, False),  # moved far, but within what was known
        (replace(LOSS, low=None, high=None), 0.62, False),
        (replace(LOSS, low=None, high=None), 0.63, True),
        (replace(LOSS, auroc=0.0, low=0.0, high=0.0), 0.0, False),
        (replace(LOSS, auroc=0.0, low=0.0, high=0.0), 0.03, True),
        (replace(LOSS, auroc=None, low=None, high=None), 0.6, True),
        (LOSS, None, True),
        (replace(LOSS, auroc=None, low=None, high=None), None, False),
    ],
)
def test_an_auroc_is_told_where_it_left_its_interval_by_enough(
    was: WatchedFinding, auroc: float | None, is_told: bool
) -> None:
    found = compare_findings(state(was, MIN_K), state(replace(was, auroc=auroc), MIN_K))
    assert [change.kinds for change in found] == ([("auroc",)] if is_told else [])


def test_a_moved_auroc_is_told_with_both_intervals() -> None:
    moved = replace(LOSS, auroc=0.71234, low=0.66, high=None)
    assert told(state(LOSS), state(moved)) == [
        (
            ("auroc",),
            "tiny on notes_32: loss AUROC 0.712 (no interval), was 0.600 (95% interval 0.550 to 0.650)",
        )
    ]
    unread = replace(LOSS, auroc=None, low=None, high=None)
    assert "loss AUROC not computed, was 0.600" in compare_findings(state(LOSS), state(unread))[0].words


levels = st.sampled_from([*ClaimLevel.__args__])  # type: ignore[attr-defined]
verdicts = st.sampled_from([*SplitVerdict.__args__])  # type: ignore[attr-defined]
numbers = st.one_of(st.none(), st.floats(0, 1).map(lambda value: round(value, 4)))
names = st.sampled_from(["tiny", "owner/m\n2", "a|b", "数"])
found = st.builds(
    WatchedFinding,
    names,
    st.sampled_from(["b_1", "b_2"]),
    st.sampled_from(["loss", "min_k"]),
    st.sampled_from(["{}", '{"k":0.2}']),
    numbers,
    numbers,
    numbers,
    levels,
    verdicts,
    st.booleans(),
)
states = st.lists(found, max_size=12).map(lambda findings: state(*findings))


@given(old=states, new=states)
def test_one_line_a_pair_that_claims_nothing(
    old: dict[FindingKey, WatchedFinding], new: dict[FindingKey, WatchedFinding]
) -> None:
    found = compare_findings(old, new)
    pairs = [(change.model, change.benchmark) for change in found]
    assert pairs == sorted(set(pairs))
    for change in found:
        assert "\n" not in change.words
        assert "prove" not in change.words.lower()
        assert change.kinds
    assert compare_findings(old, old) == []
    # By hand: exactly the pairs that only one side has, among others.
    one_sided = {key[:2] for key in old} ^ {key[:2] for key in new}
    assert one_sided <= set(pairs)
    assert {change.kinds for change in found if (change.model, change.benchmark) in one_sided} <= {
        ("first",),
        ("gone",),
    }


@given(given=states)
def test_the_state_reads_back_as_it_was(given: dict[FindingKey, WatchedFinding]) -> None:
    assert findings_from_text(findings_to_text(given)) == given
    assert findings_to_text(findings_from_text(findings_to_text(given))) == findings_to_text(given)


def test_the_state_of_five_thousand_pairs_is_small_and_quick() -> None:
    detectors = [("loss", "{}"), ("zlib", "{}"), ("min_k", '{"k":0.2}'), ("min_k_plus_plus", '{"k":0.2}')]
    made = (
        WatchedFinding(
            f"organisation/model-{m}",
            f"benchmark_{b}",
            detector,
            parameters,
            round(0.5 + (m * b) % 997 / 2000, 4),
            0.4321,
            0.8765,
            "screening only",
            "separable without a model",
            True,
        )
        for m, b, (detector, parameters) in itertools.product(range(100), range(50), detectors)
    )
    many = state(*made)
    assert len(many) == 20_000
    begun = time.process_time()
    text = findings_to_text(many)
    assert findings_from_text(text) == many
    assert compare_findings(many, many) == []
    assert time.process_time() - begun < 5
    assert len(text.encode()) < 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "5", "{}", '{"state": 2, "names": [], "pairs": []}'),
        *(
            '{"state": 1, "names": [], "pairs": [[0, 1, 2, 3]]}',
            '{"state": 1, "names": ["m", "b"], "pairs": [[0, 1, 5]]}',
        ),
    ],
)
def test_a_state_that_is_none_says_what_to_do(text: str) -> None:
    with pytest.raises(DataError, match="reset the sensor's cursor"):
        findings_from_text(text)


COLUMNS = (
    "model VARCHAR, benchmark VARCHAR, detector VARCHAR, parameters VARCHAR, auroc DOUBLE, auroc_low DOUBLE, "
    "auroc_high DOUBLE, claim_level VARCHAR, split_verdict VARCHAR, is_current BOOLEAN, "
    "design_stated_by VARCHAR, blind_auroc DOUBLE"
)


def write_leaderboard(path: Path, *rows: tuple[Any, ...]) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE leaderboard ({COLUMNS})")
        if rows:
            connection.executemany("INSERT INTO leaderboard VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    return path


def test_findings_are_read_from_the_leaderboard(tmp_path: Path) -> None:
    rows = [
        ("tiny", "notes_32", "zlib", "{}", None, None, None, "screening only", "undetermined", False, None, None),
        ("tiny", "notes_32", "loss", "{}", 0.60004, 0.549951, 0.65, "screening only", "mild shift", True, None, 0.55),
    ]
    found = read_findings(write_leaderboard(tmp_path / "audit.duckdb", *rows))
    assert found == state(
        LOSS,
        WatchedFinding("tiny", "notes_32", "zlib", "{}", None, None, None, "screening only", "undetermined", False),
    ) | {LOSS.key: replace(LOSS, low=0.55)}
    assert found == findings_from_text(findings_to_text(found))


def test_a_level_that_is_somebodys_word_is_told_as_such(tmp_path: Path) -> None:
    level = ("sound test", "randomised by design", True, "whoever wrote it")
    rows = [
        ("tiny", "checked", "loss", "{}", 0.6, 0.5, 0.7, *level, 0.51),
        ("tiny", "stated", "loss", "{}", 0.6, 0.5, 0.7, *level, None),
    ]
    found = read_findings(write_leaderboard(tmp_path / "audit.duckdb", *rows))
    assert {one.benchmark: one.claim_level for one in found.values()} == {
        "checked": "sound test",
        "stated": "sound test, as stated by whoever wrote it",
    }


def test_an_empty_leaderboard_has_no_findings(tmp_path: Path) -> None:
    assert read_findings(write_leaderboard(tmp_path / "audit.duckdb")) == {}


def test_the_warehouse_has_what_is_read(tmp_path: Path) -> None:
    """The real view, of a data folder in which nothing was audited yet."""
    assert read_findings(build_warehouse(DataPaths(tmp_path)).path) == {}


def test_a_warehouse_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no warehouse"):
        read_findings(tmp_path / "audit.duckdb")


def test_json_is_what_a_cursor_may_hold() -> None:
    content = json.loads(findings_to_text(state(LOSS, MIN_K)))
    assert content["names"] == [
        *("tiny", "notes_32", ["loss", "{}"], ["screening only", "mild shift", True]),
        ["min_k", '{"k":0.2}'],
    ]
    assert content["pairs"] == [[0, 1, 2, 3, 0.6, 0.55, 0.65, 4, 3, 0.62, 0.57, 0.67]]
