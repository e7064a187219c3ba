"""What the sensors ask for, tick after tick, on made-up states of the configuration and of what is built."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.errors import DataError
from audit_pipeline.operate.dagster.planning import (
    ChangedBenchmarks,
    DagsterState,
    LastRequest,
    NewModels,
    SeenBenchmarks,
    SeenModel,
    benchmarks_cursor,
    benchmarks_state,
    group_neighbours,
    models_cursor,
    models_state,
    plan_changed_benchmarks,
    plan_new_models,
)
from audit_pipeline.operate.facts import BenchmarkFacts, PlannedStep, PlanRequest, Situation, SourceFacts, SplitFacts
from audit_pipeline.operate.plan import plan as steps_of

BUILT = {"b1": "d1", "b2": "d2", "b3": "d3"}


def of_pairs(benchmarks: Iterable[str], models: Iterable[str], done: Collection[Pair]) -> list[PlannedStep]:
    """The planner's step of each pair that is not done."""
    pairs = [Pair(benchmark, model) for benchmark in benchmarks for model in models]
    return [PlannedStep("run", pair.partition, "never audited") for pair in pairs if pair not in done]


def tick(
    plan: NewModels | None, models: dict[str, str], registered: list[str], **changes: Any
) -> tuple[NewModels, list[str]]:
    """One tick of new_models after ``plan``; returns what it asks for, and the partitions that there are then."""
    dagster = DagsterState(registered, changes.pop("registered_benchmarks", [*BUILT]), changes.pop("preparing", None))
    arguments: dict[str, Any] = {"benchmarks": BUILT, "dagster": dagster, "done": set(), **changes}
    arguments["steps"] = of_pairs(arguments["benchmarks"], models, arguments.pop("done"))
    made = plan_new_models(plan.seen if plan else {}, models, **arguments)
    return made, [*registered, *made.add_models]


def test_one_range_run_a_new_model_over_all_benchmarks() -> None:
    plan, registered = tick(None, {"m1": "v1", "m2": "v1"}, [])
    assert plan.add_models == ("m1", "m2")
    assert [(run.first, run.last) for run in plan.runs] == [
        (Pair("b1", "m1"), Pair("b3", "m1")),
        (Pair("b1", "m2"), Pair("b3", "m2")),
    ]
    plan, registered = tick(plan, {"m1": "v1", "m2": "v1"}, registered)
    assert (plan.add_models, plan.runs) == ((), ()), "nothing new"
    plan, registered = tick(plan, {"m1": "v1", "m2": "v1", "m3": "v1"}, registered)
    assert plan.add_models == ("m3",)
    assert [(run.first, run.last) for run in plan.runs] == [(Pair("b1", "m3"), Pair("b3", "m3"))]


def test_the_range_follows_the_order_of_the_partitions_and_adds_what_they_lack() -> None:
    plan, _ = tick(None, {"m1": "v1"}, [], registered_benchmarks=["b3", "b1"])
    assert plan.add_benchmarks == ("b2",)
    assert [(run.first.benchmark, run.last.benchmark) for run in plan.runs] == [("b3", "b2")]


def test_what_is_not_built_is_in_no_range_and_named_until_it_is() -> None:
    plan, registered = tick(None, {"m1": "v1"}, [], benchmarks={**BUILT, "b2": None})
    assert [(run.first.benchmark, run.last.benchmark) for run in plan.runs] == [("b1", "b1"), ("b3", "b3")]
    assert plan.not_built == ("b2",)
    plan, registered = tick(plan, {"m1": "v1"}, registered, benchmarks={**BUILT, "b2": None})
    assert (plan.runs, plan.not_built) == ((), ("b2",))
    plan, _ = tick(plan, {"m1": "v1"}, registered)
    assert (plan.runs, plan.not_built) == ((), ()), "its pairs are for the sensor that builds benchmarks to request"


def test_what_is_no_longer_configured_is_in_no_range() -> None:
    plan, _ = tick(None, {"m1": "v1"}, [], registered_benchmarks=["b3", "old", "b1"])
    assert [(run.first.benchmark, run.last.benchmark) for run in plan.runs] == [("b3", "b3"), ("b1", "b2")]
    now = {"b1": BenchmarkFacts("e1", "e1")}
    rerun = changed(SEEN, now, models=["m1", "m3"], registered_models=["m1", "typed once", "m3"])
    assert [(run.first.model, run.last.model) for run in rerun.pairs] == [("m1", "m1"), ("m3", "m3")]
    assert len({run.key for run in rerun.pairs}) == 2


def test_another_version_is_run_again_and_a_model_that_goes_loses_nothing() -> None:
    plan, registered = tick(None, {"m1": "v1", "m2": "v1"}, [])
    again, registered = tick(plan, {"m1": "v2", "m2": "v1"}, registered, done={Pair(b, "m1") for b in BUILT})
    assert [run.first.model for run in again.runs] == ["m1"], "findings of the earlier version are of no use"
    assert again.runs[0].key not in {run.key for run in plan.runs}
    gone, registered = tick(again, {"m2": "v1"}, registered)
    assert (gone.add_models, gone.runs) == ((), ())
    assert registered == ["m1", "m2"], "no partition goes because an entry went"
    back, registered = tick(gone, {"m1": "v2", "m2": "v1"}, registered)
    assert [run.first.model for run in back.runs] == ["m1"]
    assert back.runs[0].key != again.runs[0].key, "Dagster runs no key twice"


def test_a_model_that_was_forgotten_and_is_still_configured_comes_back() -> None:
    plan, _ = tick(None, {"m1": "v1"}, [])
    back, _ = tick(plan, {"m1": "v1"}, [])
    assert back.add_models == ("m1",)
    assert len(back.runs) == 1
    assert back.runs[0].key != plan.runs[0].key


def test_a_lost_cursor_asks_for_the_same_keys_and_not_for_what_is_done() -> None:
    plan, registered = tick(None, {"m1": "v1", "m2": "v1"}, [])
    lost, _ = tick(None, {"m1": "v1", "m2": "v1"}, registered)
    assert [run.key for run in lost.runs] == [run.key for run in plan.runs]
    audited, _ = tick(None, {"m1": "v1", "m2": "v1"}, registered, done={Pair(b, "m1") for b in BUILT})
    assert [run.first.model for run in audited.runs] == ["m2"]


@pytest.mark.parametrize("changes", [{"preparing": "waiting for run 1"}, {"benchmarks": {"b1": None}}])
def test_while_benchmarks_change_nothing_is_asked_for_and_nothing_is_missed(changes: dict[str, object]) -> None:
    waiting, registered = tick(None, {"m1": "v1"}, [], **changes)
    assert waiting.waiting
    assert (waiting.add_models, waiting.runs) == ((), ())
    plan, _ = tick(waiting, {"m1": "v1"}, registered)
    assert plan.add_models == ("m1",)
    assert len(plan.runs) == 1


names = st.sampled_from(["m1", "m2", "m3"])
configurations = st.dictionaries(names, st.sampled_from(["v1", "v2"]))


@given(st.lists(st.tuples(configurations, st.booleans()), max_size=12))
def test_every_change_is_asked_for_exactly_once(history: list[tuple[dict[str, str], bool]]) -> None:
    plan: NewModels | None = None
    registered: list[str] = []
    last: dict[str, str] = {}
    keys: set[str] = set()
    for models, busy in history:
        plan, registered = tick(plan, models, registered, preparing="waiting for run 1" if busy else None)
        # The twin: what was last audited, forgotten as soon as the entry goes.
        last = {name: version for name, version in last.items() if name in models}
        wanted = [name for name, version in models.items() if last.get(name) != version]
        assert [run.first.model for run in plan.runs] == ([] if busy else wanted)
        if not busy:
            last |= {name: models[name] for name in wanted}
        assert not keys & {run.key for run in plan.runs}
        keys |= {run.key for run in plan.runs}
        assert models_state(models_cursor(plan.seen)) == plan.seen


def changed(seen: SeenBenchmarks, now: dict[str, BenchmarkFacts], **changes: Any) -> ChangedBenchmarks:
    """One tick of changed_benchmarks, with the planner's steps of these benchmarks and of the pairs not done."""
    arguments: dict[str, Any] = {
        "models": ["m1", "m2"],
        "registered_models": ["m1", "m2"],
        "registered_benchmarks": ["b1", "b2", "b3"],
        "preparing": None,
        "auditing": None,
        "source_version": "1",
        "done": set(),
        **changes,
    }
    dagster = DagsterState(
        arguments.pop("registered_models"),
        arguments.pop("registered_benchmarks"),
        arguments.pop("preparing"),
        arguments.pop("auditing"),
    )
    sources, code = {"s": SourceFacts(arguments.pop("source_version"), None)}, {"split_quality": "2"}
    situation = Situation(sources=sources, benchmarks=now, code=code)
    steps = [
        *steps_of(situation, PlanRequest(benchmarks=tuple(now))),
        *of_pairs(now, arguments["models"], arguments.pop("done")),
    ]
    return plan_changed_benchmarks(seen, situation, steps, dagster=dagster, **arguments)


NOW = {name: BenchmarkFacts(version, version) for name, version in BUILT.items()}
SEEN = SeenBenchmarks({name: LastRequest(version, 1) for name, version in BUILT.items()})


def test_an_edited_cutoff_asks_for_exactly_that_partition_and_then_its_pairs() -> None:
    edited = changed(SEEN, {**NOW, "b2": BenchmarkFacts("e2", "d2")})
    assert [build.step.what for build in edited.builds] == ["b2"]
    assert (edited.fetches, edited.pairs) == ((), ())
    running = changed(edited.seen, {**NOW, "b2": BenchmarkFacts("e2", "d2")}, preparing="waiting for run 1")
    assert (running.builds, running.pairs, running.problems, running.seen) == ((), (), (), edited.seen)
    built = changed(running.seen, {**NOW, "b2": BenchmarkFacts("e2", "e2")})
    assert built.builds == ()
    assert [(run.first, run.last) for run in built.pairs] == [(Pair("b2", "m1"), Pair("b2", "m2"))]
    after = changed(built.seen, {**NOW, "b2": BenchmarkFacts("e2", "e2")})
    assert (after.builds, after.pairs, after.waiting) == ((), (), None)


def test_a_split_of_an_earlier_version_is_assessed_once_and_pairs_follow_where_it_came_out_different() -> None:
    def assessed(code: str, version: str) -> dict[str, BenchmarkFacts]:
        return {"b1": BenchmarkFacts("d1", "d1", split=SplitFacts("d1", code, (("split_quality/b1", version),), "run"))}

    handled = changed(SEEN, assessed("2", "v1")).seen
    older = changed(handled, assessed("1", "v1"))
    assert [(one.step.kind, one.step.what) for one in older.builds] == [("assess", "b1")]
    assert older.pairs == ()
    assert changed(older.seen, assessed("1", "v1")).builds == (), "it was asked for"
    same = changed(older.seen, assessed("2", "v1"))
    assert (same.builds, same.pairs) == ((), ())
    other = changed(older.seen, assessed("2", "v2"))
    assert [(run.first, run.last) for run in other.pairs] == [(Pair("b1", "m1"), Pair("b1", "m2"))]


def test_a_cutoff_that_is_moved_and_moved_back_is_built_and_audited_twice_more() -> None:
    seen, keys, built = SEEN, [], "d1"
    for wanted in ("e1", "d1", "e1"):
        plan = changed(seen, {"b1": BenchmarkFacts(wanted, built)})
        keys += [build.key for build in plan.builds]
        built = wanted
        plan = changed(plan.seen, {"b1": BenchmarkFacts(wanted, built)})
        keys += [run.key for run in plan.pairs]
        seen = plan.seen
    assert len(keys) == len(set(keys)) == 6


def test_a_benchmark_that_was_forgotten_and_is_still_configured_is_built_and_audited_again() -> None:
    forgotten = changed(SEEN, {"b1": BenchmarkFacts("d1", None)}, registered_benchmarks=["b2", "b3"])
    assert forgotten.add_benchmarks == ("b1",)
    assert [build.step.what for build in forgotten.builds] == ["b1"]
    again = changed(forgotten.seen, {"b1": BenchmarkFacts("d1", "d1")}, registered_benchmarks=["b2", "b3", "b1"])
    assert [run.first.benchmark for run in again.pairs] == ["b1"]


def test_while_another_run_changes_benchmarks_nothing_is_built_beside_it_and_nothing_is_missed() -> None:
    now = {"b1": BenchmarkFacts("e1", "d1"), "b2": BenchmarkFacts(None, None, sources=("s",))}
    waiting = changed(SEEN, now, preparing="waiting for the weekly audit")
    assert (waiting.builds, waiting.fetches, waiting.pairs) == ((), (), ())
    after = changed(waiting.seen, now)
    assert ([build.step.what for build in after.builds], [fetch.step.what for fetch in after.fetches]) == (
        ["b1"],
        ["s"],
    )


def test_pairs_wait_for_the_run_that_may_be_at_them() -> None:
    now = {"b1": BenchmarkFacts("e1", "e1")}
    waiting = changed(SEEN, now, auditing="waiting for run 1")
    assert (waiting.pairs, waiting.waiting) == ((), "waiting for run 1")
    assert len(changed(waiting.seen, now).pairs) == 1
    assert changed(waiting.seen, now, done={Pair("b1", "m1"), Pair("b1", "m2")}).pairs == ()


def test_benchmarks_that_change_together_share_a_run_where_they_are_neighbours() -> None:
    now = {name: BenchmarkFacts(f"e{name}", f"e{name}") for name in BUILT}
    both = changed(SEEN, {**now, "b3": NOW["b3"]})
    assert [(run.first, run.last) for run in both.pairs] == [(Pair("b1", "m1"), Pair("b2", "m2"))]
    apart = changed(SEEN, {**now, "b2": NOW["b2"]})
    assert [run.first.benchmark for run in apart.pairs] == ["b1", "b3"]


def test_a_source_is_fetched_once_and_a_build_that_came_to_nothing_is_named_and_not_repeated() -> None:
    lacking = {"b1": BenchmarkFacts(None, None, sources=("s",))}
    first = changed(SeenBenchmarks(), lacking, registered_benchmarks=[])
    assert first.add_benchmarks == ("b1",)
    assert [fetch.step.what for fetch in first.fetches] == ["s"]
    failed = changed(first.seen, lacking)
    assert failed.fetches == ()
    assert failed.problems == ("s: was asked for and did not come about, see its run",)
    other_settings = changed(failed.seen, lacking, source_version="2")
    assert [fetch.step.what for fetch in other_settings.fetches] == ["s"]
    build = changed(SeenBenchmarks(), {"b1": BenchmarkFacts("d1", None)})
    assert [one.step.what for one in build.builds] == ["b1"]
    assert changed(build.seen, {"b1": BenchmarkFacts("d1", None)}).builds == ()


def test_a_benchmark_that_cannot_be_told_of_stops_no_other() -> None:
    now = {"b1": BenchmarkFacts(None, None, problem="the folder is gone"), "b2": BenchmarkFacts("e2", "e2")}
    plan = changed(SEEN, now)
    assert plan.problems == ("b1: the folder is gone",)
    assert [run.first.benchmark for run in plan.pairs] == ["b2"]


def test_pairs_that_are_done_and_no_models_at_all_ask_for_nothing() -> None:
    now = {"b1": BenchmarkFacts("e1", "e1")}
    assert changed(SEEN, now, done={Pair("b1", "m1"), Pair("b1", "m2")}).pairs == ()
    assert len(changed(SEEN, now, done={Pair("b1", "m1")}).pairs) == 1
    assert changed(SEEN, now, models=[], registered_models=[]).pairs == ()


@given(st.permutations(["a", "b", "c", "d", "e"]), st.sets(st.sampled_from("abcde")))
def test_neighbours_are_maximal_runs_in_order(order: list[str], wanted: set[str]) -> None:
    groups = group_neighbours(order, wanted)
    assert [name for group in groups for name in group] == [name for name in order if name in wanted]
    places = [[order.index(name) for name in group] for group in groups]
    assert all(place == list(range(place[0], place[0] + len(place))) for place in places)
    assert all(after[0] - before[-1] > 1 for before, after in itertools.pairwise(places))


@pytest.mark.parametrize("cursor", ["{", "[]", "3", '{"m": 1}', '{"m": {"version": "v"}}'])
def test_a_cursor_that_is_none_of_ours_is_an_error_in_words(cursor: str) -> None:
    with pytest.raises(DataError, match="reset it in the UI"):
        models_state(cursor)
    with pytest.raises(DataError, match="reset it in the UI"):
        benchmarks_state(cursor)


def test_states_survive_the_cursor() -> None:
    assert models_state(None) == {}
    assert models_state(models_cursor({"m": SeenModel(None, 3)})) == {"m": SeenModel(None, 3)}
    assert benchmarks_state(None) == SeenBenchmarks()
    seen = dataclasses.replace(SEEN, builds={"b1": LastRequest("k", 2)}, fetches={"s": LastRequest(None, 1)})
    assert benchmarks_state(benchmarks_cursor(seen)) == seen
