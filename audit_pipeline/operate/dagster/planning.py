"""What the sensors request of Dagster: from the planner's steps, and earlier requests, to partitions and runs.

What belongs here: pure functions, and the state they hand from one tick to the next: ranges, run keys, cursors. What
does not: which steps there are (operate/plan.py), and reading files or asking Dagster (sensors.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from audit_pipeline.catalogue.contracts import Pair, digest
from audit_pipeline.errors import DataError
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, Situation
from audit_pipeline.operate.plan import find_benchmark_problems


@dataclass(frozen=True)
class PairRange:
    """One run over every pair of a rectangle of neighbouring partitions; the same ``key`` is never run twice."""

    key: str
    first: Pair
    last: Pair
    why: str


def _is_never_broken(name: str) -> bool:
    return False


@dataclass(frozen=True)
class BrokenEntries:
    """Of a name of each kind: whether its entry is in the configuration, but cannot be used as it is."""

    model: Callable[[str], bool] = _is_never_broken
    benchmark: Callable[[str], bool] = _is_never_broken
    source: Callable[[str], bool] = _is_never_broken


NOTHING_BROKEN = BrokenEntries()


@dataclass(frozen=True)
class DagsterState:
    """What Dagster has at a tick: partitions in order, and unfinished runs in words, None where there is none.

    ``preparing``: a run that changes sources or benchmarks. ``auditing``: a run that audits pairs.
    """

    models: Sequence[str]
    benchmarks: Sequence[str]
    preparing: str | None = None
    auditing: str | None = None


@dataclass(frozen=True)
class SeenModel:
    """A model as it was when a run was last requested for it; ``times`` counts how often it had been another or gone
    before, so that what comes back has another run key."""

    version: str | None
    times: int = 0


@dataclass(frozen=True)
class NewModels:
    """Partitions to add, runs to request, what to wait for or to build, and the state for the next tick."""

    add_models: tuple[str, ...] = ()
    add_benchmarks: tuple[str, ...] = ()
    runs: tuple[PairRange, ...] = ()
    waiting: str | None = None
    not_built: tuple[str, ...] = ()
    seen: Mapping[str, SeenModel] = field(default_factory=dict)


def plan_new_models(
    seen_models: Mapping[str, SeenModel],
    models: Mapping[str, str],
    benchmarks: Mapping[str, str | None],
    steps: Sequence[PlannedStep],
    dagster: DagsterState,
    broken_entries: BrokenEntries = NOTHING_BROKEN,
) -> NewModels:
    """One range run over all benchmarks that are built for every model that is new or another than it was.

    Where a benchmark that is no longer configured, or not built, lies between the others, there is a run for those on
    either side: a range marks every pair in it as materialised.

    ``models`` are versions by configured name; ``benchmarks`` the digests of what is built, by configured name in
    order, None where it is not; ``steps`` the planner's for models that were not seen yet. While a run changes
    benchmarks nothing is requested, and nothing counts as seen.
    A model whose entry is broken (``broken_entries``) has not gone, and nothing is done about it.
    A model that goes and comes back is new again, with another run key; a cursor that was lost is not: the keys are
    the same, and Dagster runs no key twice.
    """
    gone = {
        name: SeenModel(None, model.times + 1) if model.version is not None else model
        for name, model in seen_models.items()
        if (name not in models and not broken_entries.model(name))
        or (model.version is not None and name not in dagster.models)
    }
    state = {**seen_models, **gone}
    changed = [name for name, version in models.items() if state.get(name, SeenModel(None)).version != version]
    built = {name: version for name, version in benchmarks.items() if version is not None}
    not_built = tuple(name for name in benchmarks if name not in built)
    if not changed:
        return NewModels(not_built=not_built, seen=state)
    if dagster.preparing is not None or not built:
        return NewModels(waiting=dagster.preparing or "no benchmark is built yet", not_built=not_built, seen=state)
    add_benchmarks = tuple(name for name in benchmarks if name not in dagster.benchmarks)
    order = [*dagster.benchmarks, *add_benchmarks]
    to_audit = {step.pair.model for step in steps}
    runs: list[PairRange] = []
    for name in changed:
        before = state.get(name, SeenModel(None))
        times = before.times + (before.version is not None)
        # Findings of an unseen model may be there already, from the command line; those of a changed one are of no use.
        if before.version is not None or name in to_audit:
            version = digest("new_models", name, models[name], sorted(built.items()), times)
            runs += _iterate_pair_ranges(
                group_neighbours(order, built), [[name]], version, f"{name} is new or has changed"
            )
        state[name] = SeenModel(models[name], times)
    return NewModels(
        add_models=tuple(name for name in changed if name not in dagster.models),
        add_benchmarks=add_benchmarks,
        runs=tuple(runs),
        not_built=not_built,
        seen=state,
    )


@dataclass(frozen=True)
class KeyedStep:
    """A step to request, and its run's key: the same is never run twice."""

    step: PlannedStep
    key: str


@dataclass(frozen=True)
class LastRequest:
    """The version that was last requested under a name (None: it was made), and how often anything was requested."""

    version: str | None = None
    times: int = 0

    def again(self, version: str) -> LastRequest:
        return LastRequest(version, self.times + 1)


@dataclass(frozen=True)
class SeenBenchmarks:
    """What was requested: audits of pairs by benchmark, builds (or assessments of what is built) by benchmark, fetches
    by source.

    Each is counted, and the count is part of the run's key: a cutoff that is moved and moved back is a change twice,
    and Dagster runs no key twice.
    """

    pairs: Mapping[str, LastRequest] = field(default_factory=dict)
    builds: Mapping[str, LastRequest] = field(default_factory=dict)
    fetches: Mapping[str, LastRequest] = field(default_factory=dict)

    def audited_version(self, benchmark: str) -> str | None:
        """The build, and what was assessed of it, whose pairs were last requested."""
        return self.pairs.get(benchmark, LastRequest()).version


@dataclass(frozen=True)
class ChangedBenchmarks:
    """Partitions to add, runs to request, what to wait for or to mend, and the state for the next tick."""

    add_benchmarks: tuple[str, ...] = ()
    fetches: tuple[KeyedStep, ...] = ()
    builds: tuple[KeyedStep, ...] = ()
    pairs: tuple[PairRange, ...] = ()
    waiting: str | None = None
    problems: tuple[str, ...] = ()
    seen: SeenBenchmarks = field(default_factory=SeenBenchmarks)


def plan_changed_benchmarks(
    seen_benchmarks: SeenBenchmarks,
    situation: Situation,
    steps: Sequence[PlannedStep],
    models: Collection[str],
    dagster: DagsterState,
    broken_entries: BrokenEntries = NOTHING_BROKEN,
) -> ChangedBenchmarks:
    """Build exactly the benchmarks whose entry or documents changed, assess exactly the splits that were assessed by
    an earlier version, and then audit exactly their pairs.

    ``steps`` are the planner's for all benchmarks of ``situation``, and for the pairs of those whose version was not
    audited yet; ``models`` are those configured. While a run changes benchmarks, all waits for it, so that nothing is
    built twice, and that benchmarks that changed together share one run, in which each model is loaded once. While a
    run audits pairs, pairs wait for it: it may audit the same ones.
    A fetch (one per setting of its source) or build that failed is named among the problems and not requested again.

    What has a broken entry (``broken_entries``) has not gone: what was requested for it still counts. When the entry is
    mended, its pairs are inspected again, for those that became due meanwhile. So no pair counts as requested while a
    model is broken.
    """
    new = tuple(name for name in situation.benchmarks if name not in dagster.benchmarks)
    audits = _reset_changed_requests(seen_benchmarks.pairs, new, broken_entries)
    cannot = find_benchmark_problems(situation, situation.benchmarks)
    reasons = [f"{name}: {problem}" for name, problem in cannot.items()]
    if dagster.preparing is not None:
        state = SeenBenchmarks(audits, seen_benchmarks.builds, seen_benchmarks.fetches)
        return ChangedBenchmarks(new, waiting=dagster.preparing, problems=tuple(reasons), seen=state)
    wanted_fetches = _wanted_fetches(situation, steps)
    wanted_builds = _wanted_builds(situation, steps)
    fetches, fetches_state = _request_steps("fetch", seen_benchmarks.fetches, wanted_fetches, broken_entries.source)
    builds, builds_state = _request_steps("build", seen_benchmarks.builds, wanted_builds, broken_entries.benchmark)
    requested = {keyed.step.what for keyed in (*fetches, *builds)}
    failed = [name for name in [*wanted_fetches, *wanted_builds] if name not in requested]
    reasons += [f"{name}: was asked for and did not come about, see its run" for name in failed]
    unprepared = {step.what for step in steps if step.kind in ("build", "assess")}
    due = {
        name: benchmark.as_audited
        for name, benchmark in situation.benchmarks.items()
        if benchmark.as_audited is not None and benchmark.wanted is not None
        if name not in cannot and name not in unprepared
        if audits.get(name, LastRequest()).version != benchmark.as_audited
    }
    waiting = "benchmarks are being built" if requested else dagster.auditing
    ranges: tuple[PairRange, ...] = ()
    if due and waiting is None:
        requests = audits | {name: audits.get(name, LastRequest()).again(version) for name, version in due.items()}
        ranges = _build_changed_ranges({name: requests[name] for name in due}, new, steps, models, dagster)
        audits = audits if any(map(broken_entries.model, dagster.models)) else requests
    return ChangedBenchmarks(
        add_benchmarks=new,
        fetches=fetches,
        builds=builds,
        pairs=ranges,
        waiting=waiting if due or requested else None,
        problems=tuple(reasons),
        seen=SeenBenchmarks(audits, builds_state, fetches_state),
    )


def _reset_changed_requests(
    last_requests: Mapping[str, LastRequest], new_benchmarks: Collection[str], broken_entries: BrokenEntries
) -> dict[str, LastRequest]:
    """The requests for pairs that still count: not those of a benchmark without a partition, which was never audited or
    was forgotten with all its findings, nor those of a broken one."""
    restarted = [*new_benchmarks, *(name for name in last_requests if broken_entries.benchmark(name))]
    return {
        **last_requests,
        **{name: LastRequest(None, last_requests.get(name, LastRequest()).times) for name in restarted},
    }


_WantedSteps = Mapping[str, tuple[PlannedStep, str]]
"""Steps by what they make, each with the version that it would make."""


def _wanted_fetches(situation: Situation, steps: Sequence[PlannedStep]) -> _WantedSteps:
    return {step.what: (step, situation.sources[step.what].wanted or "") for step in steps if step.kind == "fetch"}


def _wanted_builds(situation: Situation, steps: Sequence[PlannedStep]) -> _WantedSteps:
    """The builds of what waits for no fetch, which may bring the same documents, and the assessments of what is built:
    every build assesses its split, too."""
    to_fetch = {step.what for step in steps if step.kind == "fetch"}
    to_build = {step.what for step in steps if step.kind == "build"}
    wanted = {}
    for step in steps:
        benchmark = situation.benchmarks.get(step.what)
        if benchmark is None:
            continue
        if step.kind == "build" and benchmark.wanted is not None and to_fetch.isdisjoint(benchmark.sources):
            wanted[step.what] = step, benchmark.wanted
        if step.kind == "assess" and step.what not in to_build:
            wanted[step.what] = step, f"split of {benchmark.built} by {situation.code['split_quality']}"
    return wanted


def _request_steps(
    kind: str, last_requests: Mapping[str, LastRequest], wanted_steps: _WantedSteps, is_broken: Callable[[str], bool]
) -> tuple[tuple[KeyedStep, ...], Mapping[str, LastRequest]]:
    """The steps to request now, and the state after that; what is no longer wanted was made."""
    state = {
        name: request if name in wanted_steps or is_broken(name) else LastRequest(None, request.times)
        for name, request in last_requests.items()
    }
    requests = []
    for name, (step, version) in wanted_steps.items():
        request = state.get(name, LastRequest())
        if request.version != version:
            state[name] = request.again(version)
            requests.append(KeyedStep(step, _compute_run_key(kind, name, state[name])))
    return tuple(requests), state


def _build_changed_ranges(
    requests: Mapping[str, LastRequest],
    new_benchmarks: Sequence[str],
    steps: Sequence[PlannedStep],
    models: Collection[str],
    dagster: DagsterState,
) -> tuple[PairRange, ...]:
    """The ranges of the configured models and of those changed benchmarks that have a pair to audit."""
    audited = [name for name in dagster.models if name in models]
    due = {step.pair.benchmark for step in steps if step.kind in OF_PAIRS and step.pair.model in audited}
    undone = [name for name in requests if name in due]
    version = digest([_compute_run_key("pairs", name, requests[name]) for name in undone], sorted(audited))
    groups = group_neighbours([*dagster.benchmarks, *new_benchmarks], undone), group_neighbours(dagster.models, audited)
    return tuple(_iterate_pair_ranges(*groups, version, f"changed: {', '.join(undone)}"))


def _compute_run_key(kind: str, name: str, request: LastRequest) -> str:
    return digest(kind, name, request.version, request.times)[:32]


def _iterate_pair_ranges(
    benchmarks: Sequence[Sequence[str]], models: Sequence[Sequence[str]], version: str, reason: str
) -> Iterator[PairRange]:
    """The rectangles of each group of benchmarks with each group of models."""
    for benchmark_group, model_group in itertools.product(benchmarks, models):
        first, last = Pair(benchmark_group[0], model_group[0]), Pair(benchmark_group[-1], model_group[-1])
        yield PairRange(digest(version, first.partition, last.partition)[:32], first, last, reason)


def group_neighbours(order: Sequence[str], names: Collection[str]) -> list[list[str]]:
    """The ``names`` in ``order``, in groups of those that follow one another."""
    groups: list[list[str]] = []
    before: str | None = None
    for name in order:
        if name in names:
            if before in names:
                groups[-1].append(name)
            else:
                groups.append([name])
        before = name
    return groups


def models_state(cursor: str | None) -> dict[str, SeenModel]:
    """The state of new_models from a sensor's cursor; raises DataError for a cursor that is none of ours."""
    try:
        content = json.loads(cursor) if cursor else {}
        return {name: SeenModel(model["version"], int(model["times"])) for name, model in content.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"the sensor's cursor cannot be read ({error}): reset it in the UI") from error


def models_cursor(seen_models: Mapping[str, SeenModel]) -> str:
    """The state as a cursor."""
    return json.dumps({name: {"version": model.version, "times": model.times} for name, model in seen_models.items()})


def benchmarks_state(cursor: str | None) -> SeenBenchmarks:
    """The state of changed_benchmarks from a sensor's cursor; raises DataError for a cursor that is none of ours."""
    try:
        content = json.loads(cursor) if cursor else {"pairs": {}, "builds": {}, "fetches": {}}
        pairs, builds, fetches = (
            {name: LastRequest(version, int(times)) for name, (version, times) in content[what].items()}
            for what in ("pairs", "builds", "fetches")
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"the sensor's cursor cannot be read ({error}): reset it in the UI") from error
    return SeenBenchmarks(pairs, builds, fetches)


def benchmarks_cursor(seen_benchmarks: SeenBenchmarks) -> str:
    """The state as a cursor."""
    return json.dumps(
        {
            kind: {name: [request.version, request.times] for name, request in requests.items()}
            for kind, requests in (
                ("pairs", seen_benchmarks.pairs),
                ("builds", seen_benchmarks.builds),
                ("fetches", seen_benchmarks.fetches),
            )
        }
    )
