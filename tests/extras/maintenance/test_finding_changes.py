"""The changes of findings that an alert reports."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance.sensors import WatchedFinding, compare_findings, read_findings
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.paths import DataPaths

LOSS = WatchedFinding("tiny", "notes_32", "loss", 0.6, 0.55, 0.65, "mild shift", True, "screening only")
MIN_K = LOSS._replace(setting='min_k {"k":0.2}', auroc=0.62, low=0.57, high=0.67)
NARROW = LOSS._replace(low=0.595, high=0.605)
BARE = LOSS._replace(low=None, high=None)
UNREAD = BARE._replace(auroc=None)
STALE = LOSS._replace(is_current=False)
CHANCE = LOSS._replace(auroc=0.0, low=0.0, high=0.0)


def words(old: list[WatchedFinding], new: list[WatchedFinding]) -> list[str]:
    changes = compare_findings(old, new)
    assert {*changes} <= {("tiny", "notes_32")}
    return [words.removeprefix("tiny on notes_32: ") for words in changes.values()]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([LOSS, MIN_K], [MIN_K, LOSS], []),
        (
            [],
            [LOSS, MIN_K],
            [
                "first findings: loss AUROC 0.600 (95% interval 0.550 to 0.650), "
                'min_k {"k":0.2} AUROC 0.620 (95% interval 0.570 to 0.670); split: mild shift; claim: screening only'
            ],
        ),
        ([LOSS, MIN_K], [], ["there are no findings any more"]),
        (
            [LOSS],
            [MIN_K],
            ['first finding of min_k {"k":0.2} AUROC 0.620 (95% interval 0.570 to 0.670); no finding of loss any more'],
        ),
        ([LOSS], [STALE], ["the findings are stale, because the benchmark was rebuilt"]),
        ([STALE], [STALE], []),
        ([STALE], [LOSS], []),
        (
            [LOSS],
            [LOSS._replace(auroc=0.71234, low=0.66, high=None)],
            ["loss AUROC 0.712 (no interval), was 0.600 (95% interval 0.550 to 0.650)"],
        ),
        ([LOSS], [UNREAD], ["loss AUROC not computed, was 0.600 (95% interval 0.550 to 0.650)"]),
    ],
)
def test_a_changed_pair_is_one_line(old: list[WatchedFinding], new: list[WatchedFinding], expected: list[str]) -> None:
    assert words(old, new) == expected


def test_levels_and_verdicts_are_reported_once_per_pair() -> None:
    better = {"claim_level": "statistical evidence", "split_verdict": "randomised by design"}
    assert words([LOSS, MIN_K], [LOSS._replace(**better), MIN_K._replace(**better)]) == [
        "claim level is statistical evidence, was screening only; split verdict is randomised by design, was mild shift"
    ]


def test_pairs_are_sorted() -> None:
    pairs = [("b", "x"), ("a", "y"), ("a", "x")]
    changes = compare_findings([LOSS], [LOSS, *(LOSS._replace(model=m, benchmark=b) for m, b in pairs)])
    assert list(changes) == sorted(pairs)


@pytest.mark.parametrize(
    ("old", "auroc", "is_reported"),
    [
        (LOSS, 0.65, False),  # the end of the interval is inside
        (LOSS, 0.6501, True),
        (LOSS, 0.55, False),
        (LOSS, 0.5499, True),
        (NARROW, 0.6199, False),  # outside of a narrow interval, moved by less than 0.02
        (NARROW, 0.6201, True),
        (NARROW, 0.5799, True),
        (LOSS._replace(low=0.2, high=0.9), 0.3, False),  # moved far, but within what was known
        (BARE, 0.6199, False),
        (BARE, 0.63, True),
        (CHANCE, 0.0, False),
        (CHANCE, 0.03, True),
        (UNREAD, 0.6, True),
        (UNREAD, None, False),
    ],
)
def test_an_auroc_is_reported_if_it_left_its_interval_by_enough(
    old: WatchedFinding, auroc: float | None, is_reported: bool
) -> None:
    assert bool(compare_findings([old, MIN_K], [old._replace(auroc=auroc), MIN_K])) is is_reported


def test_findings_are_read_from_the_leaderboard(tmp_path: Path) -> None:
    level = ("sound test", "randomised by design", True, "the file's author")
    rows = [
        ("tiny", "notes_32", "min_k", '{"k":0.2}', 0.62, 0.57, 0.67, "screening only", "mild shift", True, None, 0.55),
        ("tiny", "notes_32", "loss", "{}", None, None, None, "screening only", "undetermined", False, None, None),
        ("tiny", "checked", "loss", "{}", 0.6, 0.5, 0.7, *level, 0.51),
        ("tiny", "stated", "loss", "{}", 0.6, 0.5, 0.7, *level, None),
    ]
    sound = WatchedFinding("tiny", "checked", "loss", 0.6, 0.5, 0.7, "randomised by design", True, "sound test")
    columns = (
        "model VARCHAR, benchmark VARCHAR, detector VARCHAR, parameters VARCHAR, auroc DOUBLE, auroc_low DOUBLE, "
        "auroc_high DOUBLE, claim_level VARCHAR, split_verdict VARCHAR, is_current BOOLEAN, design_stated_by VARCHAR, "
        "blind_auroc DOUBLE"
    )
    with duckdb.connect(str(tmp_path / "audit.duckdb")) as connection:
        connection.execute(f"CREATE TABLE leaderboard ({columns})")
        connection.executemany("INSERT INTO leaderboard VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    assert read_findings(tmp_path / "audit.duckdb") == [
        sound,
        UNREAD._replace(split_verdict="undetermined", is_current=False),
        MIN_K,
        sound._replace(benchmark="stated", claim_level="sound test, as stated by the file's author"),
    ]


def test_the_view_of_an_empty_warehouse_has_the_columns(tmp_path: Path) -> None:
    assert read_findings(build_warehouse(DataPaths(tmp_path)).path) == []


def test_a_missing_warehouse_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"warehouse .* does not exist yet"):
        read_findings(tmp_path / "audit.duckdb")
