"""What the sensors ask of Dagster: from the planner's steps, and what was asked before, to partitions and runs.

What belongs here: pure functions, and the state they hand from one tick to the next: ranges, run keys, cursors. What
does not: which steps there are (operate/plan.py), reading files or Dagster's instance (sensors.py), and saying it to
Dagster (sensors.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from audit_pipeline.catalogue.contracts import Pair, digest
from audit_pipeline.errors import DataError
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, Situation
from audit_pipeline.operate.plan import problems


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
    """Of a name of each kind: whether its entry is in the configuration, but cannot be used as it stands."""

    model: Callable[[str], bool] = _is_never_broken
    benchmark: Callable[[str], bool] = _is_never_broken
    source: Callable[[str], bool] = _is_never_broken


NOTHING_BROKEN = BrokenEntries()


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


def new_models(
    seen: Mapping[str, SeenModel],
    models: Mapping[str, str],
    benchmarks: Mapping[str, str | None],
    registered_models: Sequence[str],
    registered_benchmarks: Sequence[str],
    steps: Sequence[PlannedStep],
    busy: str | None = None,
    broken: BrokenEntries = NOTHING_BROKEN,
) -> NewModels:
    """One range run over all benchmarks that are built for every model that is new or another than it was.

    Where a benchmark that is no longer configured, or not built, lies between the others, there is a run for those on
    either side: a range marks every pair in it as materialised.

    ``models`` are versions by configured name; ``benchmarks`` the digests of what is built, by configured name in
    order, None where it is not; ``steps`` the planner's for models that were not seen yet; ``busy`` says which
    unfinished run changes benchmarks just now: until it has ended nothing is requested, and nothing counts as seen.
    A model that is ``broken`` has not gone, and nothing is done about it.
    A model that goes and comes back is new again, with another run key; a cursor that was lost is not: the keys are
    the same, and Dagster runs no key twice.
    """
    gone = {
        name: SeenModel(None, one.times + 1) if one.version is not None else one
        for name, one in seen.items()
        if (name not in models and not broken.model(name))
        or (one.version is not None and name not in registered_models)
    }
    state = {**seen, **gone}
    changed = [name for name, version in models.items() if state.get(name, SeenModel(None)).version != version]
    built = {name: version for name, version in benchmarks.items() if version is not None}
    not_built = tuple(name for name in benchmarks if name not in built)
    if not changed:
        return NewModels(not_built=not_built, seen=state)
    if busy is not None or not built:
        return NewModels(waiting=busy or "no benchmark is built yet", not_built=not_built, seen=state)
    add_benchmarks = tuple(name for name in benchmarks if name not in registered_benchmarks)
    order = [*registered_benchmarks, *add_benchmarks]
    to_audit = {step.pair.model for step in steps}
    runs: list[PairRange] = []
    for name in changed:
        before = state.get(name, SeenModel(None))
        times = before.times + (before.version is not None)
        # Findings of an unseen model may be there already, from the command line; those of a changed one are of no use.
        if before.version is not None or name in to_audit:
            version = digest("new_models", name, models[name], sorted(built.items()), times)
            runs += _ranges(neighbours(order, built), [[name]], version, f"{name} is new or has changed")
        state[name] = SeenModel(models[name], times)
    return NewModels(
        add_models=tuple(name for name in changed if name not in registered_models),
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
    """What was last asked for under one name (None: it came about), and how often anything was."""

    version: str | None = None
    times: int = 0

    def again(self, version: str) -> LastRequest:
        return LastRequest(version, self.times + 1)


@dataclass(frozen=True)
class SeenBenchmarks:
    """What was asked for: audits of pairs by benchmark, builds (or assessments of what is built) by benchmark, fetches
    by source.

    Each is counted, and the count is part of the run's key: a cutoff that is moved and moved back is a change twice,
    and Dagster runs no key twice.
    """

    pairs: Mapping[str, LastRequest] = field(default_factory=dict)
    builds: Mapping[str, LastRequest] = field(default_factory=dict)
    fetches: Mapping[str, LastRequest] = field(default_factory=dict)

    def handled(self, benchmark: str) -> str | None:
        """The build, and what was assessed of it, whose pairs were last asked for."""
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


def changed_benchmarks(
    seen: SeenBenchmarks,
    there: Situation,
    steps: Sequence[PlannedStep],
    models: Collection[str],
    registered_models: Sequence[str],
    registered_benchmarks: Sequence[str],
    busy: str | None = None,
    auditing: str | None = None,
    broken: BrokenEntries = NOTHING_BROKEN,
) -> ChangedBenchmarks:
    """Build exactly the benchmarks whose entry or documents changed, assess exactly the splits that were assessed by
    an earlier version, and then audit exactly their pairs.

    ``steps`` are the planner's for all benchmarks ``there`` are, and for the pairs of those that were not handled yet;
    ``models`` are those configured; ``busy`` says which unfinished run changes benchmarks just now: all waits for it,
    so that nothing is built twice, and that benchmarks that changed together share one run, in which each model is
    loaded once; ``auditing`` says which one audits pairs: it may be at the same ones, so pairs wait for it.
    A fetch (one per setting of its source) or build that failed is named among the problems and not requested again.

    What is ``broken`` has not gone: what was asked for it still counts, and when it is mended its pairs are looked at
    again, for those that came to be due meanwhile. So nothing counts as handled while a model is broken.
    """
    add = tuple(name for name in there.benchmarks if name not in registered_benchmarks)
    # What has no partition was never audited, or was forgotten with all its findings.
    pairs = dict(seen.pairs) | {name: LastRequest(None, seen.pairs.get(name, LastRequest()).times) for name in add}
    pairs |= {name: LastRequest(None, one.times) for name, one in seen.pairs.items() if broken.benchmark(name)}
    cannot = problems(there, there.benchmarks)
    told = [f"{name}: {problem}" for name, problem in cannot.items()]
    if busy is not None:
        state = SeenBenchmarks(pairs, seen.builds, seen.fetches)
        return ChangedBenchmarks(add, waiting=busy, problems=tuple(told), seen=state)
    to_fetch = {step.what: step for step in steps if step.kind == "fetch"}
    to_build = {step.what: step for step in steps if step.kind == "build"}
    # Every build assesses its split, too.
    to_assess = {step.what: step for step in steps if step.kind == "assess" and step.what not in to_build}
    lacking = {name: there.sources[name].wanted or "" for name in to_fetch}
    # The others wait for what they are made of: it may come out as it was.
    builds_now = {
        name: wanted
        for name in to_build
        if (wanted := there.benchmarks[name].wanted) is not None
        and not to_fetch.keys() & set(there.benchmarks[name].sources)
    } | {name: f"split of {there.benchmarks[name].built} by {there.code['split_quality']}" for name in to_assess}
    fetches, fresh_fetches = _asked(seen.fetches, lacking, broken.source)
    builds, fresh_builds = _asked(seen.builds, builds_now, broken.benchmark)
    came_to_nothing = [name for name in [*lacking, *builds_now] if name not in {*fresh_fetches, *fresh_builds}]
    told += [f"{name}: was asked for and did not come about, see its run" for name in came_to_nothing]
    ready = {
        name: one.as_audited
        for name, one in there.benchmarks.items()
        if one.as_audited is not None and one.wanted is not None
        if name not in cannot and name not in to_build and name not in to_assess
        if pairs.get(name, LastRequest()).version != one.as_audited
    }
    waiting = "benchmarks are being built" if fresh_fetches or fresh_builds else auditing
    ranges: tuple[PairRange, ...] = ()
    handled = pairs
    if ready and waiting is None:
        pairs = pairs | {name: pairs.get(name, LastRequest()).again(version) for name, version in ready.items()}
        handled = handled if any(map(broken.model, registered_models)) else pairs
        audited = [name for name in registered_models if name in models]
        due = {step.pair.benchmark for step in steps if step.kind in OF_PAIRS and step.pair.model in audited}
        undone = [name for name in ready if name in due]
        version = digest([_key("pairs", name, pairs[name]) for name in undone], sorted(audited))
        groups = neighbours([*registered_benchmarks, *add], undone), neighbours(registered_models, audited)
        ranges = tuple(_ranges(*groups, version, f"changed: {', '.join(undone)}"))
    return ChangedBenchmarks(
        add_benchmarks=add,
        fetches=tuple(KeyedStep(to_fetch[name], _key("fetch", name, fetches[name])) for name in fresh_fetches),
        builds=tuple(
            KeyedStep((to_build | to_assess)[name], _key("build", name, builds[name])) for name in fresh_builds
        ),
        pairs=ranges,
        waiting=waiting if ready or fresh_fetches or fresh_builds else None,
        problems=tuple(told),
        seen=SeenBenchmarks(handled, builds, fetches),
    )


def _asked(
    before: Mapping[str, LastRequest], wanted: Mapping[str, str], broken: Callable[[str], bool]
) -> tuple[dict[str, LastRequest], list[str]]:
    """What is asked for now, and the names among it that are new; what is no longer wanted came about."""
    asked = {
        name: one if name in wanted or broken(name) else LastRequest(None, one.times) for name, one in before.items()
    }
    fresh = [name for name, version in wanted.items() if asked.get(name, LastRequest()).version != version]
    return asked | {name: asked.get(name, LastRequest()).again(wanted[name]) for name in fresh}, fresh


def _key(what: str, name: str, asked: LastRequest) -> str:
    return digest(what, name, asked.version, asked.times)[:32]


def _ranges(
    benchmarks: Sequence[Sequence[str]], models: Sequence[Sequence[str]], version: str, why: str
) -> Iterator[PairRange]:
    """The rectangles of each group of benchmarks with each group of models."""
    for some_benchmarks, some_models in itertools.product(benchmarks, models):
        first, last = Pair(some_benchmarks[0], some_models[0]), Pair(some_benchmarks[-1], some_models[-1])
        yield PairRange(digest(version, first.partition, last.partition)[:32], first, last, why)


def neighbours(order: Sequence[str], wanted: Collection[str]) -> list[list[str]]:
    """The names of ``wanted`` in ``order``, those that follow one another together."""
    groups: list[list[str]] = []
    before: str | None = None
    for name in order:
        if name in wanted:
            if before in wanted:
                groups[-1].append(name)
            else:
                groups.append([name])
        before = name
    return groups


def models_state(cursor: str | None) -> dict[str, SeenModel]:
    """The state of new_models from a sensor's cursor; raises DataError for a cursor that is none of ours."""
    try:
        content = json.loads(cursor) if cursor else {}
        return {name: SeenModel(one["version"], int(one["times"])) for name, one in content.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"the sensor's cursor cannot be read ({error}): reset it in the UI") from error


def models_cursor(seen: Mapping[str, SeenModel]) -> str:
    """The state as a cursor."""
    return json.dumps({name: {"version": one.version, "times": one.times} for name, one in seen.items()})


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


def benchmarks_cursor(seen: SeenBenchmarks) -> str:
    """The state as a cursor."""
    return json.dumps(
        {
            what: {name: [one.version, one.times] for name, one in asked.items()}
            for what, asked in (("pairs", seen.pairs), ("builds", seen.builds), ("fetches", seen.fetches))
        }
    )
