"""The weekly audit: cutoffs move on, sources are fetched again, and what has changed is built and audited.

What belongs here: the order of the steps, and what is told of them. What does not: the steps (the jobs that the UI and
the command line run as well), and when it is due (schedules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import dagster as dg

from audit_pipeline.benchmarks.build import current_digest
from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks, moved_cutoffs, standing
from audit_pipeline.benchmarks.rolling import roll
from audit_pipeline.benchmarks.staleness import is_on_hub
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.config.whole import OF_AUDITS, load_configuration
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import ModelEntry, standing_models
from audit_pipeline.models.load import TokenizedModel, load_tokenizer
from audit_pipeline.operate.dagster import in_process, partitions, situation
from audit_pipeline.operate.dagster.frequencies import ensure_frequencies
from audit_pipeline.operate.dagster.pair_runs import run_pairs
from audit_pipeline.operate.done import built_digests, done_pairs
from audit_pipeline.sources.config import load_source_settings

Jobs = Callable[[str], dg.JobDefinition]
Tell = Callable[[str], None]


@dataclass
class Week:
    """What a weekly audit came to: what changed, what was audited, and what went wrong, each in words."""

    rolled: list[str] = field(default_factory=list)
    fetched: dict[str, bool] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    not_built: list[str] = field(default_factory=list)
    audited: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def nothing_new(self) -> bool:
        return not (self.built or any(self.audited.values()) or any(self.fetched.values()))

    @property
    def summary(self) -> str:
        """One line for people."""
        changed = [name for name, differs in self.fetched.items() if differs]
        pairs = sum(len(benchmarks) for benchmarks in self.audited.values())
        if self.nothing_new:
            what = f"nothing new: {len(self.fetched)} source(s) brought what they had brought before"
        else:
            built = ", ".join(self.built) or "none"
            what = f"sources changed: {', '.join(changed) or 'none'}; benchmarks built: {built}; pairs audited: {pairs}"
        return f"{what}; problems: {len(self.problems)}" if self.problems else what


def weekly_audit(
    jobs: Jobs, instance: dg.DagsterInstance, paths: DataPaths, today: date, tell: Tell, tags: Mapping[str, str]
) -> Week:
    """Move relative cutoffs on to ``today``, fetch, build what changed, audit what is not done, and publish.

    Each step is a run of its own, with ``tags``. A source, benchmark or model that fails is among the problems, and
    the rest goes on with what there is; so is an entry of the configuration that cannot be used. Raises ConfigError
    where a file of it cannot be read, and DataError where the day that relative cutoffs count from cannot be.
    """
    week = Week()
    in_process.bury_dead_runs(instance)
    _roll(paths, today, week, tell)
    config = load_configuration()
    for problem in (one for name in OF_AUDITS for one in config.problems_of(name)):
        _note(week, tell, str(problem))
    specs = list(standing(config.benchmarks).values())
    models = standing_models(config.models)
    partitions.register(instance, benchmarks=[spec.name for spec in specs], models=list(models))
    _fetch(jobs("refresh_sources"), instance, specs, paths, week, tell, tags)
    _build(jobs("build_benchmarks"), instance, specs, paths, week, tell, tags)
    _audit(jobs, instance, specs, models, paths, week, tell, tags)
    # Also where nothing is new: what could not be audited is told there, and the report shows that it was looked at.
    in_process.run_job(jobs("publish"), instance, tags=tags, on_wait=tell)
    tell(week.summary)
    return week


def _roll(paths: DataPaths, today: date, week: Week, tell: Tell) -> None:
    before = load_benchmarks()
    if not any(spec.is_relative for spec in before.values()):
        return
    try:
        if not roll(paths, today):
            return
    except DataError as error:
        _note(week, tell, str(error))
        return
    after = load_benchmarks()
    week.rolled = [words for moved in moved_cutoffs(before, after).values() for words in moved]
    tell(f"relative cutoffs are counted from {today} on: {', '.join(week.rolled) or 'none moved'}")


def _fetch(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    specs: Sequence[BenchmarkSpec],
    paths: DataPaths,
    week: Week,
    tell: Tell,
    tags: Mapping[str, str],
) -> None:
    settings = load_source_settings()
    for name in dict.fromkeys(name for spec in specs for name in spec.sources):
        if settings.is_broken(name):
            # Told with the rest of the configuration.
            continue
        if (to_be_set := settings.to_be_set_for(name)) is not None:
            tell(f"{name} is not configured: {to_be_set}")
            continue
        before = situation.source_version(name, paths, settings)
        try:
            in_process.run_job(job, instance, selection=[dg.AssetKey(["documents", name])], tags=tags, on_wait=tell)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the rest goes on
            _note(week, tell, f"{name} could not be fetched, its earlier documents stay: {error}")
        else:
            week.fetched[name] = situation.source_version(name, paths, settings) != before


def _build(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    specs: Sequence[BenchmarkSpec],
    paths: DataPaths,
    week: Week,
    tell: Tell,
    tags: Mapping[str, str],
) -> None:
    now = situation.benchmarks_now(specs, paths, load_source_settings())
    for spec in specs:
        one = now[spec.name]
        if one.problem is not None:
            week.not_built.append(spec.name)
            _note(week, tell, f"{spec.name}: {one.problem}")
            continue
        try:
            if (one.wanted is not None and one.wanted != one.built) or _differs_on_the_hub(spec, paths):
                in_process.run_job(job, instance, partition_key=spec.name, tags=tags, on_wait=tell)
                week.built.append(spec.name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the rest goes on
            week.not_built.append(spec.name)
            _note(week, tell, f"{spec.name} could not be built: {error}")


def _differs_on_the_hub(spec: BenchmarkSpec, paths: DataPaths) -> bool:
    """Whether rows of the hub, which a sensor does not look at, are others than those the benchmark was built of."""
    if not is_on_hub(spec):
        return False
    return current_digest(spec, paths) != read_built(paths, spec.name).digest


def _audit(
    jobs: Jobs,
    instance: dg.DagsterInstance,
    specs: Sequence[BenchmarkSpec],
    models: Mapping[str, ModelEntry],
    paths: DataPaths,
    week: Week,
    tell: Tell,
    tags: Mapping[str, str],
) -> None:
    benchmarks = _fit(specs, paths, week, tell)
    built = built_digests(specs, paths)
    for name, entry in models.items():
        try:
            model = load_tokenizer(entry, paths)
            pairs = [Pair(benchmark, name) for benchmark in benchmarks]
            done = done_pairs(pairs, built, paths, model)
            pending = [pair for pair in pairs if pair not in done]
            if pending:
                _count(jobs, instance, model, paths, week, tell, tags)
                tell(f"auditing {name} on {', '.join(pair.benchmark for pair in pending)}")
                try:
                    run_pairs(jobs("audit_pairs"), instance, pending, tags=tags, on_wait=tell)
                finally:
                    done = done_pairs(pending, built, paths, model)
                    week.audited[name] = [pair.benchmark for pair in pending if pair in done]
        except AuditError as error:
            _note(week, tell, f"{name}: {error}")


def _count(
    jobs: Jobs,
    instance: dg.DagsterInstance,
    model: TokenizedModel,
    paths: DataPaths,
    week: Week,
    tell: Tell,
    tags: Mapping[str, str],
) -> None:
    try:
        ensure_frequencies(jobs, instance, model, paths, tell, tags)
    except ConfigError as error:
        # As for a model without a reference model: its scores say what is missing.
        tell(f"dc_pdd goes without token frequencies: {error}")
    except AuditError as error:
        _note(week, tell, f"the tokens of {model.entry.reference_corpus} could not be counted: {error}")


def _fit(specs: Sequence[BenchmarkSpec], paths: DataPaths, week: Week, tell: Tell) -> list[str]:
    fit = []
    for spec in specs:
        try:
            read_built(paths, spec.name).require_fit()
        except AuditError as error:
            if spec.name not in week.not_built:
                _note(week, tell, f"{spec.name}: {error}")
        else:
            fit.append(spec.name)
    return fit


def _note(week: Week, tell: Tell, problem: str) -> None:
    week.problems.append(problem)
    tell(problem)
