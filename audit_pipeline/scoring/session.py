"""A scoring session: one model, the selected detectors, and the requirements of these detectors.

Terms:

- Requirement (class ``Need``): data per text that a detector reads besides the statistics of the text itself. An
  example is the same text in lower case. A detector lists its requirements in ``needs``. The optional requirements,
  which only some of its settings read, are in ``optional_needs``.
- Provider: computes and reads one requirement (scoring/needs/).
- Unmet requirement (class ``UnmetNeed``): the reason why a text lacks the data. The detector's score is then
  ``not_applicable`` with this reason.
- Text pass: the pass of the audited model over the texts themselves. If a requirement needs other kinds of statistics
  or branches, the text pass also stores these.
- Extra passes: passes over other texts (such as neighbours), or passes of other models.

Audits, ``score``, studies and corpus tests all use a session. docs/design.md has a picture of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.detectors import combined, infilling
from audit_pipeline.detectors.detector import Detector, ParameterValue, Settings, score_texts
from audit_pipeline.detectors.detector_inputs import (
    Need,
    Spans,
    StatisticsIndex,
    TextStatistics,
    UnmetNeed,
    explain_missing_columns,
)
from audit_pipeline.detectors.registry import Overrides, deduplicate_settings, select_detectors
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import (
    Lookup,
    OnProgress,
    Provider,
    ScoringScope,
    TextWithStatistics,
    UserInputs,
    all_providers,
)
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, Kind
from audit_pipeline.token_statistics import cached_texts
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CacheLocation, CachePlan, Caches
from audit_pipeline.token_statistics.run import Phase, RunSummary, compute, join_summaries

Selection = Sequence[tuple[Detector, Sequence[Settings]]]
"""Detectors, each with the settings to score."""

_TEXT_PASS = "plain"
"""The name of the text pass in progress messages, beside the names of requirements for extra passes."""


@dataclass(frozen=True)
class PassesSummary:
    """The summaries of all passes of a run.

    Attributes:
        text_pass: The pass over the texts themselves.
        extra_passes: The extra passes by requirement.
    """

    text_pass: RunSummary
    extra_passes: Mapping[str, RunSummary]

    @property
    def all(self) -> list[RunSummary]:
        """Return the summaries of all passes, the text pass first."""
        return [self.text_pass, *self.extra_passes.values()]

    @property
    def numbers(self) -> dict[str, object]:
        """Return the numbers of the text pass and the computed tokens of each extra pass, as JSON values."""
        numbers = asdict(self.text_pass)
        numbers["tokens_per_second"] = self.text_pass.tokens_per_second
        numbers.pop("unreadable_parts")
        for name, summary in self.extra_passes.items():
            numbers[f"tokens_{name}"] = summary.tokens_computed
        return numbers

    @property
    def cache_summary(self) -> str:
        """Return how many texts the text pass read from the cache and how many it computed."""
        return f"{self.text_pass.texts_from_cache} texts from the cache, {self.text_pass.texts_computed} computed"

    @property
    def unreadable_parts(self) -> tuple[str, ...]:
        """Return the damaged files of all caches, which the run renamed and replaced."""
        return join_summaries(self.all).unreadable_parts

    @property
    def tokens(self) -> int:
        """Return the number of tokens that models processed, including branches."""
        return sum(summary.tokens_computed + summary.branch_tokens for summary in self.all)


def join_by_requirement(summaries: Sequence[Mapping[str, RunSummary]]) -> dict[str, RunSummary]:
    """Sum the extra passes of several runs over different texts, by requirement."""
    by_name: dict[str, list[RunSummary]] = {}
    for run in summaries:
        for name, summary in run.items():
            by_name.setdefault(name, []).append(summary)
    return {name: join_summaries(parts) for name, parts in by_name.items()}


class Session:
    """The scoring of texts by one model with selected detectors, based on the cache.

    The session checks at its first use whether a requirement is met. All methods and properties that use requirements
    can therefore raise the errors of ``Provider.explain_unmet``.

    Attributes:
        model: The audited model.
        location: Location of the cache.
        selection: The scored detectors and settings. If a parameter is larger than a requirement supports, it is
            lowered to the maximum (``Provider.find_limits``).
    """

    def __init__(
        self,
        model: TokenizedModel,
        selection: Selection,
        location: CacheLocation,
        *,
        benchmark: str | None = None,
        in_context: bool = False,
        in_parts: bool = False,
        user_inputs: UserInputs | None = None,
    ) -> None:
        """Build the providers of all requirements. The arguments after ``location`` are fields of ScoringScope."""
        paths: DataPaths = location.paths if isinstance(location, Caches) else location
        scope = ScoringScope(model, location, paths, benchmark, in_context, in_parts, user_inputs)
        self.model = model
        self.location = location
        self._providers = _build_providers(scope, selection)
        self.selection: Selection = selection
        self._reasons: dict[Need[Any], str | None] = {}
        self._limit_selection(scope)

    def _limit_selection(self, scope: ScoringScope) -> None:
        limited: list[tuple[Detector, Sequence[Settings]]] = []
        has_limits = False
        for detector, settings in self.selection:
            limited_settings: list[Settings] = []
            for setting in settings:
                limits = _find_parameter_limits(self._providers, detector, setting)
                has_limits = has_limits or bool(limits)
                limited_settings.append({**setting, **limits})
            limited.append((detector, deduplicate_settings(detector, limited_settings)))
        self.selection = limited
        if has_limits:
            # Providers depend on the settings, for example on the number of shots.
            self._providers = _build_providers(scope, limited)

    def limit_overrides(self, overrides: Overrides | None) -> Overrides:
        """Lower the overrides to the maximum that the requirements support.

        Returns:
            All default parameters that differ from the detectors' own defaults: the lowered overrides, and every
            detector default that had to be lowered.
        """
        limited = dict(overrides or {})
        for detector, _ in self.selection:
            override = limited.get(detector.name, {})
            limits = _find_parameter_limits(self._providers, detector, {**detector.default, **override})
            if limits:
                limited[detector.name] = {**override, **limits}
        return limited

    @property
    def unmet_requirements(self) -> Mapping[Need[Any], str]:
        """Return the unmet requirements with their reasons."""
        unmet: dict[Need[Any], str] = {}
        for need in self._providers:
            reason = self._explain_unmet(need)
            if reason is not None:
                unmet[need] = reason
        return unmet

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the data versions of the other tables and models that the scores depend on."""
        versions: dict[str, str] = {}
        for provider in self._list_ready_providers():
            versions.update(provider.upstream)
        return versions

    @property
    def runs_other_models(self) -> bool:
        """Return True if another model besides the audited model has to run."""
        return bool(self._list_ready_providers(runs_other_model=True))

    @property
    def other_model_problems(self) -> Sequence[str]:
        """Return the reasons why requirements are unmet, for requirements that need a pass of another model."""
        unmet = self.unmet_requirements
        return [reason for need, reason in unmet.items() if self._providers[need].runs_other_model]

    @property
    def branch_steps(self) -> int:
        """Return the length in tokens of the branches that the text pass computes, or 0 if it computes none."""
        return max(
            (provider.branch_steps for provider in self._list_ready_providers(runs_other_model=False)), default=0
        )

    @property
    def extra_pass_counts(self) -> Mapping[str, int]:
        """Return the number of extra passes of the audited model per text, by requirement, in the order of a run."""
        counts: dict[str, int] = {}
        for provider in self._list_ready_providers(runs_other_model=False):
            if provider.passes:
                counts[provider.need.name] = provider.passes
        return counts

    @property
    def memory_factor_per_text(self) -> int:
        """Return the memory that scoring a text takes, as a multiple of its base statistics."""
        kinds = cached_texts.add_branches_kind(self._list_kinds(("base",)), self.branch_steps)
        bytes_per_token = {
            kind: KINDS[kind].estimate_bytes_per_token(self.model.vocab_size, self.branch_steps) for kind in kinds
        }
        n_extra_passes = sum(self.extra_pass_counts.values())
        return n_extra_passes + round(sum(bytes_per_token.values()) / bytes_per_token["base"])

    def describe_extra_costs(self, texts: Sequence[str]) -> list[str]:
        """Return one sentence about the cost of each expensive requirement that is not cached yet."""
        costs: list[str] = []
        for provider in self._list_ready_providers(runs_other_model=False):
            cost = provider.describe_cost(texts)
            if cost is not None:
                costs.append(cost)
        return costs

    def plan(self, texts: Sequence[str], kinds: Sequence[Kind] = ("base",)) -> CachePlan:
        """Return a plan of the computations of :meth:`run`: the text pass with branches, and the extra passes.

        Extra passes whose texts are not known yet are missing in the plan. The plan counts each text once, but the
        tokens of all passes.
        """
        total = cached_texts.plan(self.model, texts, self.location, self._list_kinds(kinds), self.branch_steps)
        for provider in self._list_ready_providers(runs_other_model=False):
            extra = provider.plan(texts)
            if extra is not None:
                total = total.with_further(extra)
        return total

    def run_other_models(
        self, texts: Sequence[str], backend_of: BackendOf, *, on_progress: OnProgress | None = None
    ) -> Mapping[str, RunSummary]:
        """Run the passes of other models, store their missing cache rows, and return the summaries by requirement.

        Call this method once with all texts, before :meth:`run`. Only one model at a time is in memory, so changing the
        model for every chunk of texts would take hours.
        """
        providers = self._list_ready_providers(runs_other_model=True)
        return self._run_extra_passes(providers, texts, backend_of, on_progress)

    def run(
        self,
        texts: Sequence[str],
        backend_of: BackendOf,
        *,
        kinds: Sequence[Kind] = ("base",),
        logits_budget: int = 0,
        on_progress: OnProgress | None = None,
    ) -> PassesSummary:
        """Run the passes of the audited model and store the missing cache rows: the text pass, then the extra passes.

        The model is loaded only if cache rows are missing.
        """
        extra_kinds: list[Kind] = []
        for provider in self._list_ready_providers(runs_other_model=False):
            extra_kinds += provider.extra_kinds
        text_pass = compute(
            self.model,
            texts,
            self.location,
            partial(backend_of, self.model),
            kinds=self._list_kinds(kinds),
            extra_kinds=extra_kinds,
            branch_steps=self.branch_steps,
            logits_budget=logits_budget,
            on_progress=self._add_phase(_TEXT_PASS, on_progress),
        )
        providers = self._list_ready_providers(runs_other_model=False)
        return PassesSummary(text_pass, self._run_extra_passes(providers, texts, backend_of, on_progress))

    def statistics(self, texts: Sequence[str]) -> Statistics:
        """Read the cached statistics of texts that the model has read, and the data of their requirements.

        No model runs.
        """
        rows = cached_texts.read_statistics(self.model, texts, self.location)
        index = StatisticsIndex(rows, self.model.has_statistic)
        unmet = {need: UnmetNeed(reason) for need, reason in self.unmet_requirements.items()}
        lookups: dict[Need[Any], tuple[Lookup[Any], UnmetNeed]] = {}
        for need, provider in self._providers.items():
            if need not in unmet:
                lookups[need] = (provider.build_lookup(texts), UnmetNeed(provider.not_run))
        return Statistics(index, lookups, unmet)

    def score(self, ids: Sequence[str], texts: Sequence[str], spans: Sequence[Spans | None] | None = None) -> pa.Table:
        """Score the texts from the cache.

        Args:
            ids: The ids of the texts, written to the column example_id.
            texts: The texts that the model has read.
            spans: The scored parts of each text, or None for a whole text. None if all texts are scored as a whole.

        Returns:
            The scores, see detectors/detector.py.

        Raises:
            DataError: If the cache holds none of the texts.
        """
        statistics = self.statistics(texts)
        if texts and not len(statistics):
            raise DataError(
                f"{self.model.entry.name} has not been run on any of these texts. Materialize the asset "
                "token_statistics first."
            )
        return statistics.scores(self.selection, ids, texts, spans)

    def _run_extra_passes(
        self,
        providers: Sequence[Provider[Any]],
        texts: Sequence[str],
        backend_of: BackendOf,
        on_progress: OnProgress | None,
    ) -> dict[str, RunSummary]:
        summaries: dict[str, RunSummary] = {}
        for provider in providers:
            name = provider.need.name
            summary = provider.compute(texts, backend_of, self._add_phase(name, on_progress))
            if summary is not None:
                summaries[name] = summary
        return summaries

    def _add_phase(self, name: str, on_progress: OnProgress | None) -> OnProgress | None:
        """Return a progress callback that adds the name and number of the pass.

        Passes of other models are not numbered, so the callback is returned unchanged.
        """
        names = [_TEXT_PASS, *self.extra_pass_counts]
        if on_progress is None or name not in names:
            return on_progress
        phase = Phase(names.index(name) + 1, len(names), self._describe_pass(name))
        return lambda progress: on_progress(replace(progress, phase=phase))

    def _describe_pass(self, name: str) -> str:
        """Return a phrase for progress messages: the texts that a pass reads, and the detectors that require it."""
        if name == _TEXT_PASS:
            return "the texts themselves, for all detectors"
        [need] = [need for need in self._providers if need.name == name]
        users = [detector.name for detector, _ in self.selection if need in _list_requirements(detector)]
        return f"{need.summary}, for {', '.join(dict.fromkeys(users))}"

    def _list_kinds(self, kinds: Sequence[Kind]) -> list[Kind]:
        """Return ``kinds`` and the kinds of statistics that requirements add, without duplicates."""
        all_kinds = list(kinds)
        for provider in self._list_ready_providers(runs_other_model=False):
            all_kinds += provider.kinds
        return list(dict.fromkeys(all_kinds))

    def _list_ready_providers(self, *, runs_other_model: bool | None = None) -> list[Provider[Any]]:
        """Return the providers of the met requirements.

        Args:
            runs_other_model: True restricts the list to providers that run another model, False to providers that run
                the audited model, None does not restrict it. The excluded providers are not checked, because a check
                may send requests to the hub.
        """
        ready: list[Provider[Any]] = []
        for need, provider in self._providers.items():
            if runs_other_model is not None and provider.runs_other_model != runs_other_model:
                continue
            if self._explain_unmet(need) is None:
                ready.append(provider)
        return ready

    def _explain_unmet(self, need: Need[Any]) -> str | None:
        """Return the reason why a requirement is unmet, or None if it is met. The result is stored for later calls."""
        if need not in self._reasons:
            reason = explain_missing_columns(self.model.has_statistic, need.statistics)
            if reason is None:
                reason = self._providers[need].explain_unmet()
            self._reasons[need] = reason
        return self._reasons[need]


def _list_requirements(detector: Detector) -> list[Need[Any]]:
    return [*detector.needs, *detector.optional_needs]


def _build_providers(scope: ScoringScope, selection: Selection) -> dict[Need[Any], Provider[Any]]:
    """Build a provider for each requirement, from the settings of all detectors that have the requirement."""
    providers = all_providers()
    settings_by_need: dict[Need[Any], list[Settings]] = {}
    for detector, settings in selection:
        for need in _list_requirements(detector):
            if need.name not in providers:
                raise ConfigError(
                    f"the detector {detector.name} requires '{need.name}', which has no provider. Install the package "
                    "that provides it, or deselect the detector."
                )
            settings_by_need.setdefault(need, []).extend(settings)
    return {need: providers[need.name](scope, settings) for need, settings in settings_by_need.items()}


def _find_parameter_limits(
    providers: Mapping[Need[Any], Provider[Any]], detector: Detector, setting: Settings
) -> Settings:
    """Return the parameters of a setting that are larger than the requirements support, with their maximum values."""
    limits: dict[str, ParameterValue] = {}
    for need in detector.needs:
        for name, limit in providers[need].find_limits(setting).items():
            limits[name] = min(limit, limits.get(name, limit))
    return limits


class Statistics:
    """The cached statistics of a session's texts, with the data of their requirements."""

    def __init__(
        self,
        index: StatisticsIndex,
        lookups: Mapping[Need[Any], tuple[Lookup[Any], UnmetNeed]],
        unmet: Mapping[Need[Any], UnmetNeed],
    ) -> None:
        """Store the sources of the data.

        Args:
            index: The statistics of the text pass.
            lookups: Two values per met requirement: the function that looks up a text's data, and the reason for texts
                without data.
            unmet: The reason why each unmet requirement is not met.
        """
        self._index = index
        self._lookups = lookups
        self._unmet = unmet

    def __len__(self) -> int:
        """Return the number of texts in the cache."""
        return len(self._index)

    def find(self, text: str, spans: Spans | None = None) -> TextStatistics | None:
        """Return a text's statistics with the data of its requirements, or None if the cache lacks the text.

        The model has read the whole text. If only parts of it are scored, the statistics are those of their tokens
        (Zhang et al. 2025, appendix C).
        """
        statistics = self._index.find(text, spans)
        if statistics is None:
            return None
        scored = TextWithStatistics(text, spans, statistics)
        extras: dict[Need[Any], object] = dict(self._unmet)
        for need, (look_up, not_run) in self._lookups.items():
            extra = look_up(scored)
            extras[need] = not_run if extra is None else extra
        return replace(statistics, extras=extras)

    def scores(
        self,
        selection: Selection,
        ids: Sequence[str],
        texts: Sequence[str],
        spans: Sequence[Spans | None] | None = None,
    ) -> pa.Table:
        """Score each text with each selected detector, see :meth:`Session.score`."""
        statistics = map(self.find, texts, spans or [None] * len(texts))
        return score_texts(zip(ids, statistics, strict=True), selection)


def build_audit_selection(overrides: Overrides) -> Selection:
    """Return the detectors and settings of an audit: all detectors except those that run only on request.

    Each detector is scored at all settings of its grid and at the benchmark's default, which ``overrides`` contains.
    Three kinds of parameters have fewer values than in the grid:

    - If each value of a parameter needs its own passes, only the default is scored.
    - Infilling is scored at every m of the grid up to the benchmark's m. One pass over branches of that length is
      enough for all of them.
    - Combined is scored only with the benchmark's list of detectors. Otherwise users could choose the list with the
      best result.
    """
    single_values: dict[str, Settings] = {}
    for detector, _ in select_detectors():
        fixed = {
            name: detector.default[name] for name, parameter in detector.parameters.items() if parameter.passes_each
        }
        single_values[detector.name] = fixed
    selection: list[tuple[Detector, Sequence[Settings]]] = []
    for detector, grid in select_detectors(grid=True, overrides=single_values):
        override = overrides.get(detector.name, {})
        settings = list(grid)
        if detector.name == combined.NAME:
            settings = []
        elif detector.name == infilling.NAME and "m" in override:
            settings = [setting for setting in grid if setting["m"] <= override["m"]]  # type: ignore[operator]
        settings += [{**setting, **override} for setting in grid]
        selection.append((detector, deduplicate_settings(detector, settings)))
    return selection


def build_audit_session(benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths) -> Session:
    """Return the session of an audit of a benchmark."""
    selection = build_audit_selection(benchmark.overrides)
    return Session(model, selection, paths, benchmark=benchmark.name, in_context=benchmark.scores_parts)


def find_current_upstream(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """Return the current versions of the data that an audit's detectors require: reference model, token frequencies.

    Returns:
        The versions by name, or None if the hub is unreachable or a file is unreadable.
    """
    try:
        return Session(model, select_detectors(), paths).upstream
    except AuditError:
        return None
