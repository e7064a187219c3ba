"""Relative cutoffs and the reference day that they count from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.benchmarks import config
from audit_pipeline.benchmarks.build import compute_benchmark_digest
from audit_pipeline.benchmarks.builders.temporal import TemporalSettings
from audit_pipeline.benchmarks.config import (
    ensure_reference_day,
    find_moved_cutoffs,
    load_benchmarks,
    move_reference_day,
    parse_cutoff,
    read_reference_day,
    read_stored_day,
    resolve_benchmarks,
)
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.paths import PROJECT_ROOT, DataPaths

TODAY = date(2026, 11, 21)
VERSIONS = {"made": "1"}
# Entries with dates have the digests that they had before relative cutoffs were added.
SHIPPED_DIGESTS = {
    "release_notes_32": "4048181d51c309d7f08ebe18a4eaa3a96cc1d934b1725971111eb92a81829143",
    "release_notes_64": "032486076e9e233f793d68ccb773e7fac0d571cf71d99eff89d49322366a315e",
    "release_notes_128": "13fd2569bb6e1bf35eef2357304c3eb0b6d56ab054826a2154aaf2cb89790f49",
    "sotu_32": "ecc6462c60dc27695a59d6216319ba1588dbd5dbf97408ef88dee9d80291e7be",
    "sotu_64": "2ea2993b096b3576c3e2fe781437f8d232ead65d88adad74b14f3142fde5a79a",
    "sotu_128": "1374755c5c8b759512d17834c8482d1f7840703796a7b23b4708f8773fb970f2",
    "wikimia_32": "62bae24610d7d6ab19e33def77324a75743af2f16bedd56423d1ace3b00af28f",
    "wikimia_64": "7c2412f6cc3f59a39a64a25394a9665a0ef20b1efc48e9e8773ae7b2a7b4a7b3",
    "wikimia_128": "1e65b6069c0f0ee362446c037822c1a9e02f05a582421b2fd28bee2907b411ee",
    "wikimia_256": "d3fa1462d66dd2ad2e65a1aa1c8107ebf35d0075dd519f36e2e2bf32a6a0c1e4",
}


FIXED = {"builder": "temporal", "description": "made up", "sources": ["made"], "words": [32], "seed": 1}
FIXED |= {"windows_per_document": 2, "member_before": date(2022, 1, 1), "nonmember_from": date(2025, 1, 1)}


def write(folder: Path, **families: dict[str, object]) -> None:
    content = {"benchmarks": {name: {**FIXED, **changes} for name, changes in families.items()}}
    (folder / "benchmarks.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def cutoffs(spec: BenchmarkSpec) -> tuple[date, date]:
    assert isinstance(spec.settings, TemporalSettings)
    return spec.settings.member_before, spec.settings.nonmember_from


def meant(words: str, today: date = TODAY) -> date:
    return parse_cutoff(words, lambda: today)[0]


@pytest.mark.parametrize(
    ("words", "today", "day"),
    [
        ("today", TODAY, date(2026, 11, 21)),
        ("0 days before today", TODAY, date(2026, 11, 21)),
        ("1 day before today", date(2024, 3, 1), date(2024, 2, 29)),
        ("90 days before today", TODAY, date(2026, 8, 23)),
        ("1 week before today", TODAY, date(2026, 11, 14)),
        ("6 months before today", TODAY, date(2026, 5, 21)),
        ("6 months before today", date(2026, 8, 31), date(2026, 2, 28)),
        ("1 month before today", date(2024, 3, 31), date(2024, 2, 29)),
        ("2 years before today", TODAY, date(2024, 11, 21)),
        ("1 year before today", date(2024, 2, 29), date(2023, 2, 28)),
        ("  90  Days Before\tTODAY ", TODAY, date(2026, 8, 23)),
        ("2025-01-31", TODAY, date(2025, 1, 31)),
    ],
)
def test_relative_cutoffs_yield_a_day(words: str, today: date, day: date) -> None:
    assert meant(words, today) == day


def test_dates_stay_unchanged() -> None:
    for cutoff in (date(2022, 1, 1), datetime(2022, 1, 1)):
        day, words = parse_cutoff(cutoff, lambda: TODAY)
        assert (day, type(day), words) == (date(2022, 1, 1), date, None)


@pytest.mark.parametrize(
    "given",
    [
        *("soon", "", "yesterday", "90 days", "90 days after today", "-90 days before today", "1.5 years before today"),
        *("ninety days before today", "90 days before 2025-01-01", "1 decade before today", "days before today"),
        *(20220101, 1.5, True, None, [], datetime(2022, 1, 1, 12), datetime(2022, 1, 1, tzinfo=UTC)),
        "٩٠ days before today",
    ],
)
def test_other_values_are_refused_with_the_accepted_forms(tmp_path: Path, given: object) -> None:
    with pytest.raises(ValueError, match="today, 90 days before today, 1 week before today"):
        parse_cutoff(given, lambda: TODAY)
    write(tmp_path, fine={}, notes={"nonmember_from": given})
    benchmarks = load_benchmarks(tmp_path, TODAY)
    assert list(benchmarks) == ["fine_32"]
    with pytest.raises(ConfigError, match=r"family notes: nonmember_from: must be a date \(2025-01-31\)"):
        resolve_benchmarks("notes_32", benchmarks)


def test_a_family_has_the_dates_and_the_words_of_its_cutoffs(tmp_path: Path) -> None:
    write(tmp_path, fixed={}, moving={"nonmember_from": "90 days  before today"})
    benchmarks = load_benchmarks(tmp_path, TODAY)
    moving, fixed = benchmarks["moving_32"], benchmarks["fixed_32"]
    assert cutoffs(moving) == (date(2022, 1, 1), date(2026, 8, 23))
    assert (moving.has_relative_cutoff, fixed.has_relative_cutoff) == (True, False)
    assert moving.describe_entry()["nonmember_from"] == "2026-08-23"
    assert moving.describe_entry()["relative"] == {"nonmember_from": "90 days before today"}
    assert "relative" not in fixed.describe_entry()
    assert len({moving, fixed, *load_benchmarks(tmp_path, TODAY).values()}) == 2


def test_the_digest_depends_on_the_date_and_not_on_the_words(tmp_path: Path) -> None:
    def digest_on(today: date, told: object) -> str:
        write(tmp_path, notes={"nonmember_from": told})
        return compute_benchmark_digest(load_benchmarks(tmp_path, today)["notes_32"], VERSIONS)

    by_words = digest_on(TODAY, "90 days before today")
    assert by_words == digest_on(TODAY, date(2026, 8, 23)) == digest_on(date(2026, 8, 23), "today")
    assert by_words != digest_on(TODAY + timedelta(days=1), "90 days before today")


def test_digests_of_shipped_entries_are_unchanged() -> None:
    shipped = load_benchmarks(PROJECT_ROOT / "config", TODAY)
    for name, digest in SHIPPED_DIGESTS.items():
        # The shipped demo got infilling_m later, which changed its digest.
        settings_then = shipped[name].settings.model_copy(update={"infilling_m": None})
        assert compute_benchmark_digest(replace(shipped[name], settings=settings_then), VERSIONS) == digest, name


def test_overlapping_sides_are_refused_with_words_and_day(tmp_path: Path) -> None:
    write(tmp_path, notes={"nonmember_from": "5 years before today"})
    told = r"nonmember_from 2021-11-21 is before member_before 2022-01-01.*nonmember_from is 5 years before today, 2021"
    with pytest.raises(ConfigError, match=told):
        resolve_benchmarks("notes", load_benchmarks(tmp_path, TODAY))
    assert load_benchmarks(tmp_path, date(2027, 1, 1))["notes_32"].has_relative_cutoff


units = st.sampled_from(["day", "days", "week", "weeks", "month", "months", "year", "years"])
days = st.dates(date(1990, 1, 1), date(2100, 1, 1))
told = st.one_of(days, st.just("today"), st.builds("{} {} before today".format, st.integers(0, 400), units))


@max_examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(member_before=told, nonmember_from=told, today=days)
def test_sides_never_overlap_on_any_day(
    tmp_path: Path, member_before: object, nonmember_from: object, today: date
) -> None:
    write(tmp_path, notes={"member_before": member_before, "nonmember_from": nonmember_from})
    expected = tuple(meant(one, today) if isinstance(one, str) else one for one in (member_before, nonmember_from))
    try:
        [spec] = resolve_benchmarks("notes_32", load_benchmarks(tmp_path, today))
    except ConfigError:
        assert expected[0] > expected[1]  # type: ignore[operator]
    else:
        assert cutoffs(spec) == expected
        assert expected[0] <= expected[1]  # type: ignore[operator]


@given(words=told.filter(lambda one: isinstance(one, str)), today=days, later=st.integers(0, 3000))
def test_a_later_day_never_moves_a_cutoff_back(words: str, today: date, later: int) -> None:
    assert meant(words, today) <= meant(words, today + timedelta(days=later))


def test_the_reference_day_never_moves_back(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert read_stored_day(paths) is None
    assert move_reference_day(paths, TODAY) is True
    assert move_reference_day(paths, TODAY) is False
    assert move_reference_day(paths, TODAY + timedelta(days=7)) is True
    assert read_stored_day(paths) == date(2026, 11, 28)
    assert json.loads(paths.rolled_day.read_text())["day"] == "2026-11-28"
    with pytest.raises(DataError, match=r"is 2026-11-28, and it cannot move back to 2026-11-21\. .* remove"):
        move_reference_day(paths, TODAY)
    assert read_stored_day(paths) == date(2026, 11, 28)


def test_cutoffs_count_from_the_stored_day_or_from_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(config, "utc_today", lambda: TODAY)
    paths = DataPaths.from_environment()
    write(tmp_path, notes={"nonmember_from": "1 week before today"})
    before = load_benchmarks(tmp_path)
    assert cutoffs(before["notes_32"])[1] == date(2026, 11, 14)
    assert not paths.rolled_day.exists()
    assert ensure_reference_day(paths) == TODAY
    monkeypatch.setattr(config, "utc_today", lambda: TODAY + timedelta(days=5))
    assert ensure_reference_day(paths) == read_reference_day(paths) == TODAY
    assert load_benchmarks(tmp_path) == before
    assert move_reference_day(paths, config.utc_today())
    after = load_benchmarks(tmp_path)
    assert find_moved_cutoffs(before, after) == {"notes_32": ["notes_32 nonmember_from 2026-11-14 -> 2026-11-19"]}
    assert find_moved_cutoffs(after, after) == {}
    assert load_benchmarks(tmp_path, TODAY) == before


def test_fixed_dates_need_no_reference_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path))
    DataPaths(tmp_path).rolled_day.write_text("{", encoding="utf-8")
    write(tmp_path, notes={})
    assert list(load_benchmarks(tmp_path)) == ["notes_32"]
    write(tmp_path, notes={"nonmember_from": "today"})
    with pytest.raises(DataError, match=r"the reference day cannot be read \(.*rolled_day.json\)"):
        load_benchmarks(tmp_path)
