"""A scoring session: one model, a selection of detectors, and what they need apart from the texts' own pass.

Audits, files, studies and tests of a corpus all score through a session. How a need is met: needs/.
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
    StatisticsIndex,
    TextStatistics,
    UnmetNeed,
    explain_missing_columns,
)
from audit_pipeline.detectors.registry import Overrides, deduplicate_settings, select
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import (
    Lookup,
    OnProgress,
    Provider,
    ScoringScope,
    TextWithStatistics,
    UserInputs,
)
from audit_pipeline.scoring.needs.registry import PROVIDERS
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, Kind
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import (
    CacheLocation,
    CachePlan,
    Caches,
    add_branches_kind,
    plan,
    read_statistics,
)
from audit_pipeline.token_statistics.run import Phase, RunSummary, compute, join_summaries

Selection = Sequence[tuple[Detector, Sequence[Settings]]]

_OWN = "plain"
"""The texts' own pass, as progress names it."""


@dataclass(frozen=True)
class PassesSummary:
    """What the texts' own pass came to, and the extra ones by the need that they were for."""

    own: RunSummary
    extra: Mapping[str, RunSummary]

    @property
    def all(self) -> list[RunSummary]:
        return [self.own, *self.extra.values()]

    @property
    def numbers(self) -> dict[str, object]:
        """The numbers of the texts' own pass, and the tokens of each other one."""
        own = {**asdict(self.own), "tokens_per_second": self.own.tokens_per_second}
        own.pop("unreadable_parts")
        return {**own, **{f"tokens_{need}": summary.tokens_computed for need, summary in self.extra.items()}}

    @property
    def cache_summary(self) -> str:
        """How many texts were run, and how many were there."""
        return f"{self.own.texts_from_cache} texts from the cache, {self.own.texts_computed} computed"

    @property
    def unreadable_parts(self) -> tuple[str, ...]:
        """Parts of any of the caches that were damaged and set aside."""
        return join_summaries(self.all).unreadable_parts

    @property
    def tokens(self) -> int:
        """Tokens that went through a model, those of branches included."""
        return sum(summary.tokens_computed + summary.branch_tokens for summary in self.all)


def join_by_need(summaries: Sequence[Mapping[str, RunSummary]]) -> dict[str, RunSummary]:
    """The sums, by need, of the passes of several runs over different texts."""
    names = dict.fromkeys(name for summary in summaries for name in summary)
    return {name: join_summaries([summary[name] for summary in summaries if name in summary]) for name in names}


class Session:
    """The scoring of texts by ``selection``, over the cache at ``location``.

    ``benchmark``, ``in_context``, ``in_parts`` and ``user_inputs`` are those of :class:`ScoringScope`. The attribute
    ``selection`` is what is scored: what was asked for, as far as what its needs are met with reaches. Whether a need
    is met is asked when that is first wanted; methods raise what its provider's ``explain_missing`` raises.
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
        paths: DataPaths = location.paths if isinstance(location, Caches) else location
        scope = ScoringScope(model, location, paths, benchmark, in_context, in_parts, user_inputs)
        self.model, self.where = model, location
        providers = _build_providers(scope, selection)
        find_limits = partial(_find_parameter_limits, providers)
        self.selection: Selection = [
            (detector, deduplicate_settings(detector, ({**each, **find_limits(detector, each)} for each in own)))
            for detector, own in selection
        ]
        limited = any(find_limits(detector, each) for detector, own in selection for each in own)
        self._providers = _build_providers(scope, self.selection) if limited else providers
        self._reasons: dict[Need[Any], str | None] = {}

    def limit_overrides(self, overrides: Overrides | None) -> Overrides:
        """What is fixed of the detectors' defaults: ``overrides``, as far as what the needs are met with reaches."""
        fixed = dict(overrides or {})
        for detector, _ in self.selection:
            own = fixed.get(detector.name, {})
            if limits := _find_parameter_limits(self._providers, detector, {**detector.default, **own}):
                fixed[detector.name] = {**own, **limits}
        return fixed

    @property
    def unmet_needs(self) -> Mapping[Need[Any], str]:
        """Why needs are not met, of those that are not."""
        return {need: reason for need in self._providers if (reason := self._explain_missing(need)) is not None}

    @property
    def upstream(self) -> Mapping[str, str]:
        """Data versions of the tables and models apart from the audited one that the scores come from."""
        return {name: version for provider in self._list_met() for name, version in provider.upstream.items()}

    @property
    def runs_other_models(self) -> bool:
        """Whether another model than the audited model has to be run, too."""
        return bool(self._list_met(other_model=True))

    @property
    def other_model_problems(self) -> Sequence[str]:
        """Why needs of other models are not met, of those that are not."""
        return [reason for need, reason in self.unmet_needs.items() if self._providers[need].other_model]

    @property
    def branch_steps(self) -> int:
        """How many tokens branches have that are run with a text's own pass; 0: there are none."""
        return max((provider.branch_steps for provider in self._list_met(other_model=False)), default=0)

    @property
    def further_passes(self) -> Mapping[str, int]:
        """How many passes over a text like it follow its own, by the need that takes some, in their order."""
        met = self._list_met(other_model=False)
        return {provider.need.name: provider.passes for provider in met if provider.passes}

    @property
    def memory_factor_per_text(self) -> int:
        """What is in memory of a text while it is scored, as a multiple of its own statistics."""
        sizes = {
            kind: KINDS[kind].estimate_bytes_per_token(self.model.vocab_size, self.branch_steps)
            for kind in add_branches_kind(self._list_kinds(("base",)), self.branch_steps)
        }
        return sum(self.further_passes.values()) + round(sum(sizes.values()) / sizes["base"])

    def describe_extra_costs(self, texts: Sequence[str]) -> list[str]:
        """What more than a pass over the texts will be run, a line each; nothing where that is little or cached."""
        costs = (provider.describe_cost(texts) for provider in self._list_met(other_model=False))
        return [cost for cost in costs if cost is not None]

    def plan(self, texts: Sequence[str], kinds: Sequence[Kind] = ("base",)) -> CachePlan:
        """What :meth:`run` would run: the texts' own pass with their branches, and what further passes are known.

        Texts are counted once; the tokens are those of all.
        """
        total = plan(self.model, texts, self.where, self._list_kinds(kinds), self.branch_steps)
        for provider in self._list_met(other_model=False):
            if (further := provider.plan(texts)) is not None:
                total = total.with_further(further)
        return total

    def run_other_models(
        self, texts: Sequence[str], backend_of: BackendOf, *, on_progress: OnProgress | None = None
    ) -> Mapping[str, RunSummary]:
        """Bring the caches of other models up to ``texts``, by need.

        To be called for all texts before :meth:`run`: one model at a time is in memory, and changing them text by text
        would take hours.
        """
        return self._compute(texts, backend_of, on_progress, other_model=True)

    def run(
        self,
        texts: Sequence[str],
        backend_of: BackendOf,
        *,
        kinds: Sequence[Kind] = ("base",),
        logits_budget: int = 0,
        on_progress: OnProgress | None = None,
    ) -> PassesSummary:
        """Bring the cache of the audited model up to ``texts``; it is loaded only where something of it is missing."""
        own = compute(
            self.model,
            texts,
            self.where,
            partial(backend_of, self.model),
            kinds=self._list_kinds(kinds),
            along=[kind for provider in self._list_met(other_model=False) for kind in provider.along],
            branch_steps=self.branch_steps,
            logits_budget=logits_budget,
            on_progress=self._wrap_progress_callback(_OWN, on_progress),
        )
        return PassesSummary(own, self._compute(texts, backend_of, on_progress, other_model=False))

    def statistics(self, texts: Sequence[str]) -> Statistics:
        """The cached statistics of ``texts``, with what was brought for them; runs no model.

        A text after a context is given, and has to have been run, as one text with it.
        """
        index = StatisticsIndex(read_statistics(self.model, texts, self.where), self.model.has_statistic)
        missing = {need: UnmetNeed(reason) for need, reason in self.unmet_needs.items()}
        readers = {
            need: (provider.build_lookup(texts), UnmetNeed(provider.not_run))
            for need, provider in self._providers.items()
            if need not in missing
        }
        return Statistics(index, readers, missing)

    def score(self, ids: Sequence[str], texts: Sequence[str], contexts: Sequence[str | None] | None = None) -> pa.Table:
        """Scores of ``texts``, after their ``contexts`` where given, from the cache: see detectors/detector.py.

        ``ids`` name the texts in the column example_id. Raises DataError where the model has been run on none of them.
        """
        before = [None] * len(texts) if contexts is None else contexts
        statistics = self.statistics([(context or "") + text for context, text in zip(before, texts, strict=True)])
        if texts and not len(statistics):
            raise DataError(f"{self.model.entry.name} has been run on none of these texts: run token_statistics first")
        return statistics.scores(self.selection, ids, texts, before)

    def _compute(
        self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None, *, other_model: bool
    ) -> dict[str, RunSummary]:
        done = {
            provider.need.name: provider.compute(
                texts, backend_of, self._wrap_progress_callback(provider.need.name, on_progress)
            )
            for provider in self._list_met(other_model=other_model)
        }
        return {name: summary for name, summary in done.items() if summary is not None}

    def _wrap_progress_callback(self, name: str, on_progress: OnProgress | None) -> OnProgress | None:
        """Return ``on_progress`` with its phase of :meth:`run`; unchanged for passes of other models."""
        names = [_OWN, *self.further_passes]
        if on_progress is None or name not in names:
            return on_progress
        phase = Phase(names.index(name) + 1, len(names), self._describe_pass(name))
        return lambda progress: on_progress(replace(progress, phase=phase))

    def _describe_pass(self, name: str) -> str:
        """Return what a pass reads and which detectors need it, in words."""
        if name == _OWN:
            return "the texts themselves, for all detectors"
        [need] = [need for need in self._providers if need.name == name]
        users = [detector.name for detector, _ in self.selection if need in (*detector.needs, *detector.optional_needs)]
        return f"{need.summary}, for {', '.join(dict.fromkeys(users))}"

    def _list_kinds(self, kinds: Sequence[Kind]) -> list[Kind]:
        """``kinds`` and those that needs ask for."""
        wanted = [kind for provider in self._list_met(other_model=False) for kind in provider.kinds]
        return list(dict.fromkeys([*kinds, *wanted]))

    def _list_met(self, *, other_model: bool | None = None) -> list[Provider[Any]]:
        """The providers of the needs that are met: those that run other models, those that do not, or all."""
        return [
            provider
            for need, provider in self._providers.items()
            if other_model in (None, provider.other_model) and self._explain_missing(need) is None
        ]

    def _explain_missing(self, need: Need[Any]) -> str | None:
        if need not in self._reasons:
            lacks = explain_missing_columns(self.model.has_statistic, need.statistics)
            self._reasons[need] = self._providers[need].explain_missing() if lacks is None else lacks
        return self._reasons[need]


def _build_providers(scope: ScoringScope, selection: Selection) -> dict[Need[Any], Provider[Any]]:
    """A provider of every need of the selected detectors, by the settings of all that have it."""
    wanted: dict[Need[Any], list[Settings]] = {}
    for detector, settings in selection:
        for need in (*detector.needs, *detector.optional_needs):
            if need.name not in PROVIDERS:
                raise ConfigError(f"the detector {detector.name} needs {need.name}, which nothing here provides")
            wanted.setdefault(need, []).extend(settings)
    return {need: PROVIDERS[need.name](scope, settings) for need, settings in wanted.items()}


def _find_parameter_limits(
    providers: Mapping[Need[Any], Provider[Any]], detector: Detector, setting: Settings
) -> Settings:
    """The parameters of ``setting`` that go beyond what the detector's needs allow, with the most that all allow."""
    found: dict[str, ParameterValue] = {}
    for need in detector.needs:
        for name, limit in providers[need].find_limits(setting).items():
            found[name] = min(limit, found.get(name, limit))
    return found


class Statistics:
    """The cached statistics of a session's texts with their extras, found by text."""

    def __init__(
        self,
        index: StatisticsIndex,
        readers: Mapping[Need[Any], tuple[Lookup[Any], UnmetNeed]],
        reasons: Mapping[Need[Any], UnmetNeed],
    ) -> None:
        self._own, self._readers, self._lacking = index, readers, reasons

    def __len__(self) -> int:
        return len(self._own)

    def find(self, text: str, context: str | None = None) -> TextStatistics | None:
        """The statistics of ``text`` with their extras; None where the model has not been run on it.

        With a ``context`` they are those of ``text`` as the model read it after that (Zhang et al. 2025, appendix C).
        """
        before = context or ""
        whole = before + text
        own = self._own.find(whole, len(before))
        if own is None:
            return None
        all_tokens = self._own.find(whole) if before else own
        scored = TextWithStatistics(whole, own, len(all_tokens) - len(own) if all_tokens is not None else 0)
        extras: dict[Need[Any], object] = {**self._lacking}
        for need, (read, not_run) in self._readers.items():
            extras[need] = not_run if (found := read(scored)) is None else found
        return replace(own, extras=extras)

    def scores(
        self,
        selection: Selection,
        ids: Sequence[str],
        texts: Sequence[str],
        contexts: Sequence[str | None] | None = None,
    ) -> pa.Table:
        """Every one of ``texts`` by every detector of ``selection``: see :meth:`Session.score`."""
        found = map(self.find, texts, contexts or [None] * len(texts))
        return score_texts(zip(ids, found, strict=True), selection)


def build_audit_selection(overrides: Overrides) -> Selection:
    """What an audit scores: every detector that is not on request, at every setting of its grid and of ``overrides``.

    Of infilling, every m up to that of the benchmark: what one pass over branches of that length gives. Of what takes
    passes of its own for every value, the default. Of combined the benchmark's list alone: it is named beforehand, so
    that there is nothing to choose from.
    """
    single_values = {
        detector.name: {name: detector.default[name] for name, each in detector.parameters.items() if each.passes_each}
        for detector, _ in select()
    }
    selection: list[tuple[Detector, Sequence[Settings]]] = []
    for detector, grid in select(grid=True, overrides=single_values):
        fixed, settings = overrides.get(detector.name, {}), list[Settings](grid)
        if detector.name == combined.NAME:
            settings = []
        elif detector.name == infilling.NAME and "m" in fixed:
            settings = [setting for setting in grid if setting["m"] <= fixed["m"]]  # type: ignore[operator]
        settings += [{**setting, **fixed} for setting in grid]
        selection.append((detector, deduplicate_settings(detector, settings)))
    return selection


def build_audit_session(benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths) -> Session:
    """The session of an audit of ``benchmark``."""
    selection = build_audit_selection(benchmark.overrides)
    return Session(model, selection, paths, benchmark=benchmark.name, in_context=any(benchmark.contexts))


def find_current_upstream(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """What the needs of an audit would bring now, a reference model and token frequencies, with their versions.

    None where the hub cannot be reached, or what is there cannot be read: nothing is known of them now.
    """
    try:
        return Session(model, select(), paths).upstream
    except AuditError:
        return None
