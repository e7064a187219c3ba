"""Rules for every detector: the columns that it reads, and texts without a score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.detector import Detector
from audit_pipeline.detectors.detector_inputs import (
    BranchStatistics,
    Need,
    PowerSums,
    StatisticsIndex,
    Temperatures,
    TextStatistics,
    TokenFrequencies,
    UnmetNeed,
)
from audit_pipeline.detectors.max_renyi import POWER_SUMS
from audit_pipeline.errors import DataError
from audit_pipeline.tables import MEASURED

N = 40
OPTIONAL = {column.name for column in MEASURED} - {"logprob"}
INTS = {column.name for column in MEASURED if pa.types.is_integer(column.type.value_type)}


def brought_for(own: TextStatistics, detector: Detector, settings: list[Any]) -> Mapping[Need[Any], object]:
    """Return data of the right form for every need of the detector."""
    numbers = np.linspace(-4.0, -0.5, N, dtype=np.float32)
    extras: dict[str, object] = {
        "reference": own,
        "lowercase": own,
        "neighbours": [own, own],
        "frequencies": TokenFrequencies(np.arange(1, N + 1), N),
        "renyi": PowerSums(numbers, numbers),
        "branches": BranchStatistics(
            10, np.arange(0, N + 1, dtype=np.int32), np.full(N, -1, np.float32), np.full(N, -1, np.float32)
        ),
        "temperatures": Temperatures(*[np.tile(numbers[:, None], (1, 21))] * 3, vocab_size=N),
    }
    return {need: extras[need.name] for need in (*detector.needs, *detector.optional_needs) if need.name in extras}


@pytest.mark.parametrize("name", sorted(registry.REGISTRY))
def test_a_detector_reads_only_declared_columns(name: str, text_statistics: Callable[..., TextStatistics]) -> None:
    detector = registry.get_detector(name)
    own = text_statistics(np.linspace(-9.0, -0.1, N), " ".join(f"word{i}" for i in range(N)))
    for setting in registry.expand_settings(detector, grid=True):
        whole = {**detector.default, **setting}
        read = set(detector.reads(whole))
        assert read <= OPTIONAL
        only = {key: values for key, values in own.columns.items() if key in read | {"logprob", "token_id"}}
        given = replace(own, columns=only)
        extras = brought_for(given, detector, [whole])
        # Reading more raises AttributeError.
        [outcome] = detector.score(replace(given, extras=extras), [setting])
        lacks = {need.name for need in detector.needs} - {need.name for need in extras}
        if lacks:
            assert outcome.status == "not_applicable"
        for column in read:
            rest = {key: values for key, values in given.columns.items() if key != column}
            [without] = detector.score(replace(given, columns=rest, extras=extras), [setting])
            assert without.status == "not_applicable"
            if not lacks:
                assert without.reason is not None
                assert column in without.reason


@pytest.mark.parametrize("name", sorted(registry.REGISTRY))
def test_no_scored_token_is_not_applicable(name: str, text_statistics: Callable[..., TextStatistics]) -> None:
    detector = registry.get_detector(name)
    settings = registry.expand_settings(detector, grid=True)
    outcomes = detector.score(text_statistics([]), settings)
    assert outcomes == [(None, "not_applicable", "the text has no scored token")] * len(settings)


@pytest.mark.parametrize("name", [name for name, detector in registry.REGISTRY.items() if detector.needs])
def test_the_reason_of_an_unmet_need_is_the_reason_of_the_score(
    name: str, text_statistics: Callable[..., TextStatistics]
) -> None:
    detector, own = registry.get_detector(name), text_statistics([-1.0, -2.0])
    settings = registry.expand_settings(detector, grid=True)
    assert {outcome.status for outcome in detector.score(own, settings)} == {"not_applicable"}
    lacking = replace(own, extras={need: UnmetNeed("count the corpus first") for need in detector.needs})
    assert {*detector.score(lacking, settings)} == {(None, "not_applicable", "count the corpus first")}


@pytest.mark.parametrize("name", sorted(registry.REGISTRY))
def test_a_value_that_is_not_finite_fails_every_setting_that_reads_it(
    name: str, text_statistics: Callable[..., TextStatistics]
) -> None:
    """This includes values that a sort puts last, which a small k does not select."""
    detector = registry.get_detector(name)
    words = " ".join(f"word{i}" for i in range(N))
    own = text_statistics(np.linspace(-9.0, -0.1, N), words, argmax_id=range(1, N + 1))
    for setting in registry.expand_settings(detector, grid=True):
        whole = {**detector.default, **setting}
        given = replace(own, extras=brought_for(own, detector, [whole]))
        [complete] = detector.score(given, [setting])
        bad_values = {("logprob", bad) for bad in (math.nan, math.inf, -math.inf)}
        if complete.status == "ok":
            bad_values |= {(column, math.nan) for column in detector.reads(whole) if column not in INTS}
        for column, bad in bad_values:
            values = own.columns[column].copy()
            values[N // 2] = bad
            [outcome] = detector.score(replace(given, columns={**own.columns, column: values}), [setting])
            assert (outcome.score, outcome.status) == (None, "failed"), (setting, column, bad)
            assert "finite" in str(outcome.reason)


def test_a_missing_column_affects_only_the_settings_that_read_it(
    text_statistics: Callable[..., TextStatistics],
) -> None:
    detector = registry.get_detector("max_renyi")
    whole = text_statistics([-1.0, -2.0, -3.0])
    sums = PowerSums(np.zeros(3, np.float32), np.zeros(3, np.float32))
    columns = {key: values for key, values in whole.columns.items() if key not in ("mean", "std")}
    settings = [{"alpha": alpha} for alpha in ("inf", "1", "2")]
    complete = replace(whole, extras={POWER_SUMS: sums})
    expected = detector.score(complete, settings)
    found = detector.score(replace(complete, columns=columns), settings)
    assert [one.status for one in found] == ["ok", "not_applicable", "ok"]
    assert (found[0], found[2]) == (expected[0], expected[2])
    assert found[1].reason == "the model's interface does not give: mean of each token"


def test_a_column_that_is_empty_for_every_text_is_not_given(statistics_table: Callable[..., pa.Table]) -> None:
    table = statistics_table({"one": [-1.0, -2.0], "nothing": [], "two": [-0.5]})
    place = table.schema.get_field_index("std")
    empty = table.set_column(place, table.schema.field("std"), pa.array([[]] * 3, table.schema.field("std").type))
    with pytest.raises(DataError, match="std and token_id differ in length"):
        # A back end that gives it has left it out.
        StatisticsIndex(empty)
    found = StatisticsIndex(empty, lambda name: name != "std").find("one")
    assert found is not None
    assert found.logprob.tolist() == [-1.0, -2.0]
    assert "std" not in found.columns
    assert found.explain_absent_columns(("mean",)) is None
    assert found.explain_absent_columns(("std", "mean")) == "the model's interface does not give: std of each token"
    with pytest.raises(AttributeError, match="no token statistic 'std'"):
        _ = found.std


def test_a_column_that_is_empty_for_some_texts_is_refused(statistics_table: Callable[..., pa.Table]) -> None:
    table = statistics_table({"one": [-1.0, -2.0], "two": [-0.5]})
    place = table.schema.get_field_index("std")
    field = table.schema.field("std")
    broken = table.set_column(place, field, pa.array([[], [0.5]], field.type))
    with pytest.raises(DataError, match="std and token_id differ in length"):
        StatisticsIndex(broken, lambda name: name != "std")
