"""Automatic rebuilds of the warehouse and the report: after any pair, without waiting for the others."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster.conditions import PUBLISHING_IS_ON
from audit_pipeline.pipeline.dagster.partitions import register_partitions

WAREHOUSE, REPORT = dg.AssetKey("warehouse"), dg.AssetKey("contamination_report")
PAIRS = [f"{benchmark}|{model}" for benchmark in ("b1", "b2", "b3") for model in ("m1", "m2")]


class Ticks:
    """The conditions of the publishing sensor, tick by tick."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.definitions = defs()
        self.cursor = None

    def done(self, asset: str, partition: str | None = None) -> None:
        key = (
            dg.MultiPartitionKey(dict(zip(("benchmark", "model"), partition.split("|"), strict=True)))
            if partition
            else None
        )
        self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=key))

    def requested(self) -> set[dg.AssetKey]:
        result = dg.evaluate_automation_conditions(
            self.definitions,
            self.instance,
            asset_selection=dg.AssetSelection.groups("5_reports"),
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        return {key for key in (WAREHOUSE, REPORT) if result.get_num_requested(key)}


@pytest.fixture
def ticks() -> Iterator[Ticks]:
    with dg.DagsterInstance.ephemeral() as instance:
        register_partitions(instance, benchmarks=["b1", "b2", "b3"], models=["m1", "m2"])
        made = Ticks(instance)
        assert made.requested() == set(), "nothing has happened yet"
        yield made


@pytest.mark.parametrize(("variable", "status"), [("", "STOPPED"), ("1", "RUNNING")])
def test_publishing_is_on_if_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, variable: str, status: str
) -> None:
    monkeypatch.setenv(PUBLISHING_IS_ON, variable)
    sensor = defs().get_repository_def().get_sensor_def("publish_what_is_new")
    assert sensor.default_status.name == status
    assert PUBLISHING_IS_ON in (sensor.description or "")


def test_one_pair_of_six_is_enough(ticks: Ticks) -> None:
    ticks.done("evaluations", PAIRS[0])
    assert ticks.requested() == {WAREHOUSE}
    ticks.done("warehouse")
    assert ticks.requested() == {REPORT}
    ticks.done("contamination_report")
    assert ticks.requested() == set(), "once for one pair"


@pytest.mark.parametrize("pairs", [PAIRS[1:2], PAIRS[1:]])
def test_a_pair_that_is_done_while_the_warehouse_is_rebuilt_is_not_left_out(ticks: Ticks, pairs: list[str]) -> None:
    ticks.done("evaluations", PAIRS[0])
    assert ticks.requested() == {WAREHOUSE}
    # All of it between two ticks: the rebuild reads, further pairs come in, the rebuild ends.
    for pair in pairs:
        ticks.done("evaluations", pair)
    ticks.done("warehouse")
    assert ticks.requested() == {WAREHOUSE, REPORT}
    ticks.done("warehouse")
    ticks.done("contamination_report")
    assert ticks.requested() == {REPORT}, "which of the two warehouses it was made of is not known"
    ticks.done("contamination_report")
    assert ticks.requested() == set()


def test_a_warehouse_that_is_rebuilt_while_the_report_is_made_is_not_left_out(ticks: Ticks) -> None:
    ticks.done("warehouse")
    assert ticks.requested() == {REPORT}
    # All of it between two ticks: the report reads, the warehouse is built anew, and the report ends.
    ticks.done("warehouse")
    ticks.done("contamination_report")
    assert ticks.requested() == {REPORT}


@pytest.mark.parametrize("asset", ["benchmark", "scores"])
def test_every_input_of_the_warehouse_requests_its_rebuild(ticks: Ticks, asset: str) -> None:
    ticks.done(asset, PAIRS[0]) if asset == "scores" else ticks.instance.report_runless_asset_event(
        dg.AssetMaterialization(asset, partition="b1")
    )
    assert ticks.requested() == {WAREHOUSE}
