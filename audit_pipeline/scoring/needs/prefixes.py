"""Providers of a text's log-probabilities after a prefix of known texts (chosen in scoring/prefix_shots.py).

The shots of a prefix are texts known to be members, or texts known to be non-members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial, reduce
from typing import ClassVar

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.model_inputs import build_benchmark_inputs
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import Float32s, UnmetNeed
from audit_pipeline.detectors.recall import JOINS, PrefixedLogProbs
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.needs import provider
from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS, Shots, Side, collect_benchmark_shots
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics import prefixed_texts
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CachePlan, collect_lists_by_sha256
from audit_pipeline.token_statistics.run import Progress, RunSummary, join_summaries
from audit_pipeline.token_statistics.tokens import Prefix, encode_prefix, window_and_stride

GIVEN_AWAY = "given away"
"""The beginning of the reason why a text has no score if its document is in the prefix."""

PrefixRequest = tuple[int, str]
"""A number of shots, and a key of JOINS."""


class PrefixProvider(provider.Provider[PrefixedLogProbs]):
    """The provider of a text's log-probabilities after prefixes of known texts of one side.

    There is a prefix for each pair of a number of shots and a way to join them.
    """

    side: ClassVar[Side]
    source = "prefix"

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Read the requested prefixes from the settings."""
        super().__init__(scope, settings)
        self._requested = sorted({(int(setting["shots"]), str(setting["join"])) for setting in settings})
        # The count is cached because each setting asks for it.
        self._count_fitting = cache(self._count_fitting_shots)
        self._revealing: Mapping[str, int | None] = {}

    @cached_property
    def _shots(self) -> Shots | str:
        """Return all available shots, or the reason why there are none."""
        if self._scope.benchmark is not None:
            benchmark = read_built(self._scope.paths, self._scope.benchmark)
            texts = build_benchmark_inputs(benchmark, self._scope.model).texts
            return collect_benchmark_shots(benchmark, self.side, texts)
        inputs = self._scope.user_inputs
        if inputs is None or self.side not in inputs.known:
            return (
                f"there is no prefix of {self.side.name}. Name a file of known {self.side.name} with "
                f"{self.side.option}."
            )
        return Shots(inputs.known[self.side], f"the file of {self.side.option}", {})

    @property
    def _required_shots(self) -> Shots:
        if isinstance(self._shots, str):
            raise ConfigError(self._shots)
        return self._shots

    def _count_fitting_shots(self, n_shots: int, join: str) -> int:
        """Return how many of the first n_shots shots fit into the model's context, or 0.

        A text that is twice as long as the longest shot must fit after them.
        """
        lengths = prefixed_texts.count_own_tokens(self._model, self._required_shots.texts[:n_shots])
        for n in range(n_shots, 0, -1):
            if prefixed_texts.has_room(self._model, self._encode_shots(n, join), 2 * max(lengths[:n])):
                return n
        return 0

    def _encode_shots(self, n_shots: int, join: str) -> Prefix:
        texts = self._required_shots.texts[:n_shots]
        return encode_prefix(self._model, "".join(shot + JOINS[join] for shot in texts))

    def find_limits(self, setting: Settings) -> Settings:
        """Return the number of shots that fit into the model's context, if the setting has more."""
        if self._scope.in_context or isinstance(self._shots, str):
            return {}
        available = min(int(setting["shots"]), len(self._shots.texts))
        fitting = self._count_fitting(available, str(setting["join"]))
        return {"shots": fitting} if 0 < fitting < available else {}

    @cached_property
    def _obstacles(self) -> Mapping[PrefixRequest, str]:
        """Return the reasons why requested prefixes cannot be made, by prefix."""
        obstacles: dict[PrefixRequest, str] = {}
        for request in self._requested:
            reason = self._find_prefix_obstacle(*request)
            if reason is not None:
                obstacles[request] = reason
        return obstacles

    def _find_prefix_obstacle(self, n_shots: int, join: str) -> str | None:
        shots = self._required_shots
        if len(shots.texts) < n_shots:
            if self._scope.benchmark is None:
                what_to_do = f"Add texts to this file, or set the parameter shots to {len(shots.texts)} or less."
            else:
                what_to_do = "Raise calibration_fraction in config/benchmarks.yaml."
            return (
                f"a prefix of {n_shots} requires {n_shots} known {self.side.name} from different documents, but "
                f"{shots.source} has only {len(shots.texts)}. {what_to_do}"
            )
        if not self._count_fitting(1, join):
            has_border = self._model.position_border is not None
            window = self._border_description if has_border else self._window_description
            return f"the first text of {shots.source}, followed by a text twice as long, does not fit into {window}"
        return None

    @property
    def _window_description(self) -> str:
        """Return the size of the model's context for messages."""
        window, _ = window_and_stride(self._model)
        return f"the context of {self._model.entry.name} ({window:,} tokens)"

    @property
    def _border_description(self) -> str:
        """Return the position limit of LongRoPE for messages."""
        return (
            f"the {self._model.position_border:,} tokens up to which {self._model.entry.name} encodes positions as in "
            "the text alone (LongRoPE uses other factors for longer inputs)"
        )

    @cached_property
    def _prefixes(self) -> Mapping[PrefixRequest, Prefix]:
        """Return the encoded prefixes that can be made."""
        return {request: self._encode_shots(*request) for request in self._requested if request not in self._obstacles}

    def explain_unmet(self) -> str | None:
        """Return why no prefix can be made, or None.

        Raises:
            ConfigError: If a user named the detector or gave texts for the prefix.
        """
        if self._scope.in_context:
            return provider.NO_SEPARATE_PASS
        reason: str | None = None
        if isinstance(self._shots, str):
            reason = self._shots
        elif len(self._obstacles) == len(self._requested):
            reason = self._obstacles[self._requested[0]]
        inputs = self._scope.user_inputs
        if reason is None or inputs is None:
            return reason
        if self.need in inputs.asked_for or self.side in inputs.known:
            raise ConfigError(reason)
        return reason

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Return the number of prefixes: each takes a pass per text."""
        return len(self._prefixes)

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the digests of the prefixes."""
        versions: dict[str, str] = {}
        for (n_shots, join), prefix in self._prefixes.items():
            versions[f"{self.source}/{self.side.name}/{n_shots}/{join}"] = prefix.sha256[:16]
        return versions

    def _find_revealing_shots(self, texts: Sequence[str]) -> Mapping[str, int | None]:
        """Return for each text the index of the first shot that reveals it, or None. The last result is cached."""
        max_shots, _ = self._requested[-1]
        longest = replace(self._required_shots, texts=self._required_shots.texts[:max_shots])
        revealing: dict[str, int | None] = {}
        for text in texts:
            if text in self._revealing:
                revealing[text] = self._revealing[text]
            elif text not in revealing:
                revealing[text] = longest.find_revealing_shot(text)
        self._revealing = revealing
        return revealing

    def _iterate_texts_to_run(self, texts: Sequence[str]) -> Iterator[tuple[Prefix, list[str]]]:
        """Yield each prefix with the texts that it does not reveal."""
        revealing = self._find_revealing_shots(texts)
        for (n_shots, _), prefix in self._prefixes.items():
            yield prefix, [text for text, shot in revealing.items() if shot is None or shot >= n_shots]

    def plan(self, texts: Sequence[str]) -> CachePlan:
        """Plan the passes over the texts after each prefix. Passes with cached results are omitted."""
        plans: list[CachePlan] = []
        is_rerun = prefixed_texts.is_prefix_rerun(self._model, self._location)
        for prefix, to_run in self._iterate_texts_to_run(texts):
            plan = prefixed_texts.plan_prefixed(self._model, to_run, prefix, self._location)
            if is_rerun:
                # The prefix's last token takes the place of the start token, which each text's pass already counts.
                n_repeated_tokens = plan.passes * (len(prefix.ids) - 1)
                plan = replace(plan, tokens_to_run=plan.tokens_to_run + n_repeated_tokens)
            plans.append(plan)
        return reduce(CachePlan.with_further, plans)

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        """Return the number of passes and tokens, or None if all rows are cached."""
        tokens = self.plan(texts).tokens_to_run
        if not tokens:
            return None
        passes = len(self._prefixes)
        shot_counts = dict.fromkeys(n_shots for n_shots, _ in self._prefixes)
        description = f"each text is read after a prefix of {', '.join(map(str, shot_counts))} {self.side.name}"
        if prefixed_texts.is_prefix_rerun(self._model, self._location):
            description += ", and the prefix is read again for each text"
        return f"{description}: {passes} pass{'es' if passes > 1 else ''} per text, about {tokens:,} tokens in total"

    def compute(
        self, texts: Sequence[str], backend_of: BackendOf, on_progress: provider.OnProgress | None
    ) -> RunSummary:
        """Run the texts after each prefix that does not reveal them."""
        backend = partial(backend_of, self._model)
        to_run = list(self._iterate_texts_to_run(texts))
        plans = [
            prefixed_texts.plan_prefixed(self._model, prefix_texts, prefix, self._location)
            for prefix, prefix_texts in to_run
        ]
        summaries: list[RunSummary] = []
        for prefix, prefix_texts in to_run:
            report = None
            if on_progress is not None:
                report = partial(_report_joint_progress, on_progress, list(summaries), plans)
            summaries.append(
                prefixed_texts.compute_prefixed(self._model, prefix_texts, prefix, self._location, backend, report)
            )
        return join_summaries(summaries)

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[PrefixedLogProbs]:
        """Return the lookup of a text's log-probabilities after each prefix, with reasons for missing ones."""
        cached: dict[PrefixRequest, Mapping[str, Mapping[str, Float32s]]] = {}
        for request, prefix in self._prefixes.items():
            table = prefixed_texts.read_prefixed(self._model, texts, prefix, self._location)
            cached[request] = collect_lists_by_sha256(table, ["logprob"])
        revealing = self._find_revealing_shots(texts)

        def look_up(scored: provider.TextWithStatistics) -> PrefixedLogProbs:
            text = scored.model_input
            sha256 = text_sha256(text)
            revealing_shot = revealing[text]
            by_request: dict[PrefixRequest, Float32s | UnmetNeed] = {}
            for request in self._requested:
                n_shots, _ = request
                if revealing_shot is not None and revealing_shot < n_shots:
                    by_request[request] = UnmetNeed(
                        f"{GIVEN_AWAY}: the text's document is one of the {n_shots} {self.side.name} in the prefix"
                    )
                elif request in self._obstacles:
                    by_request[request] = UnmetNeed(self._obstacles[request])
                elif sha256 in cached[request]:
                    by_request[request] = cached[request][sha256]["logprob"]
                else:
                    by_request[request] = self._explain_unscored(text, *request)
            return by_request

        return look_up

    def _explain_unscored(self, text: str, n_shots: int, join: str) -> UnmetNeed:
        """Return why the cache lacks a text after a prefix: they do not fit into the context, or were not run."""
        [tokens] = prefixed_texts.count_own_tokens(self._model, [text])
        prefix = self._prefixes[n_shots, join]
        if prefixed_texts.has_room(self._model, prefix, tokens):
            return UnmetNeed("the model has not been run on the text after the prefix. Run the model again.")
        hint = "no shorter prefix fits"
        for n in range(n_shots - 1, 0, -1):
            if prefixed_texts.has_room(self._model, self._encode_shots(n, join), tokens):
                hint = f"a prefix of {n} text(s) would fit"
                break
        window = self._window_description
        if prefixed_texts.crosses_border(self._model, prefix, tokens):
            window = self._border_description
        return UnmetNeed(
            f"the text's {tokens:,} tokens do not fit after a prefix of {n_shots} text(s) into {window}: {hint}"
        )


class MemberPrefixProvider(PrefixProvider):
    """The provider of prefixes of known members."""

    need = MEMBERS.need
    side = MEMBERS


class NonmemberPrefixProvider(PrefixProvider):
    """The provider of prefixes of known non-members."""

    need = NON_MEMBERS.need
    side = NON_MEMBERS


def _report_joint_progress(
    on_progress: provider.OnProgress, summaries: Sequence[RunSummary], plans: Sequence[CachePlan], progress: Progress
) -> None:
    """Report the progress of consecutive runs as the progress of a single run.

    Args:
        on_progress: The callback.
        summaries: The finished runs.
        plans: The plans of all runs.
        progress: The progress of the present run.
    """
    texts_total = tokens_total = 0
    for plan in plans:
        texts_total += plan.texts_to_run
        tokens_total += plan.tokens_to_run
    finished = join_summaries(summaries)
    on_progress(
        Progress(
            progress.texts_done + finished.texts_computed,
            texts_total,
            progress.tokens_done + finished.tokens_computed,
            tokens_total,
            progress.seconds + finished.seconds,
        )
    )
