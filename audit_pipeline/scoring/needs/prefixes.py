"""The text after a prefix of known texts, of members or of non-members (chosen in scoring/prefix_shots.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial, reduce
from typing import ClassVar

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import Float32s, UnmetNeed
from audit_pipeline.detectors.recall import JOINS, PrefixedLogProbs
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.needs.provider import (
    BY_ITSELF,
    Lookup,
    OnProgress,
    Provider,
    ScoringScope,
    TextWithStatistics,
)
from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS, Shots, Side, collect_benchmark_shots
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CachePlan, collect_lists_by_text
from audit_pipeline.token_statistics.prefixed_texts import (
    compute_prefixed,
    count_own_tokens,
    crosses_border,
    has_room,
    is_prefix_rerun,
    plan_prefixed,
    read_prefixed,
)
from audit_pipeline.token_statistics.run import Progress, RunSummary, join_summaries
from audit_pipeline.token_statistics.tokens import Prefix, encode_prefix, window_and_stride

GIVEN_AWAY = "given away"
"""How the reason begins why a text has no score whose document is in the prefix."""


class PrefixProvider(Provider[PrefixedLogProbs]):
    """The text after prefixes of known texts of one ``side``, one prefix a number of shots and way to join them."""

    side: ClassVar[Side]
    source = "prefix"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        self._requested = sorted({(int(setting["shots"]), str(setting["join"])) for setting in settings})
        self._room = cache(self._count_fitting_shots)
        self._revealing: Mapping[str, int | None] = {}

    @cached_property
    def _shots(self) -> Shots | str:
        """The shots, few as they may be, or why there are none."""
        side, inputs = self.side, self._scope.user_inputs
        if self._scope.benchmark is not None:
            return collect_benchmark_shots(read_built(self._scope.paths, self._scope.benchmark), side)
        if inputs is None or side not in inputs.known:
            return f"no prefix of {side.name}: name a file of texts known to be {side.name} with {side.option}"
        return Shots(inputs.known[side], f"the file of {side.option}", {})

    @property
    def _required_shots(self) -> Shots:
        if isinstance(self._shots, str):
            raise ConfigError(self._shots)
        return self._shots

    def _count_fitting_shots(self, n_shots: int, join: str) -> int:
        """How many of the first ``n_shots`` shots have room, joined by ``join``.

        The prefix and a text twice as long as its longest shot have to fit into the model's context.
        """
        lengths = count_own_tokens(self._model, self._required_shots.texts[:n_shots])
        down = range(n_shots, 0, -1)
        fits = (n for n in down if has_room(self._model, self._encode_shots(n, join), 2 * max(lengths[:n])))
        return next(fits, 0)

    def _encode_shots(self, shots: int, join: str) -> Prefix:
        return encode_prefix(self._model, "".join(shot + JOINS[join] for shot in self._required_shots.texts[:shots]))

    def find_limits(self, setting: Settings) -> Settings:
        if self._scope.in_context or isinstance(self._shots, str):
            return {}
        most = min(int(setting["shots"]), len(self._shots.texts))
        room = self._room(most, str(setting["join"]))
        return {"shots": room} if 0 < room < most else {}

    @cached_property
    def _obstacles(self) -> Mapping[tuple[int, str], str]:
        """Why there is no prefix, of those requested that cannot be made."""
        reasons = {request: self._find_prefix_obstacle(*request) for request in self._requested}
        return {request: reason for request, reason in reasons.items() if reason is not None}

    def _find_prefix_obstacle(self, shots: int, join: str) -> str | None:
        known = self._required_shots
        if len(known.texts) < shots:
            what_to_do = (
                f"add texts to it, or set the parameter shots to {len(known.texts)} or less"
                if self._scope.benchmark is None
                else "raise calibration_fraction in config/benchmarks.yaml"
            )
            return (
                f"a prefix of {shots} takes the texts of {shots} known {self.side.name}, each of another document, and "
                f"{known.source} has {len(known.texts)}: {what_to_do}"
            )
        if not self._room(1, join):
            window = self._window_description if self._model.position_border is None else self._border_description
            return f"not even one of {known.source} and a text twice as long fit into {window}"
        return None

    @property
    def _window_description(self) -> str:
        room, _ = window_and_stride(self._model)
        return f"the {room:,} tokens of context that {self._model.entry.name} is run with"

    @property
    def _border_description(self) -> str:
        return (
            f"the {self._model.position_border:,} tokens up to which {self._model.entry.name} encodes positions as it "
            "does in the text alone (LongRoPE takes other factors beyond)"
        )

    @cached_property
    def _prefixes(self) -> Mapping[tuple[int, str], Prefix]:
        """The prefixes that can be made."""
        return {request: self._encode_shots(*request) for request in self._requested if request not in self._obstacles}

    def explain_missing(self) -> str | None:
        """Why there is no prefix. Raises ConfigError where a user has asked for it, or given texts for it."""
        if self._scope.in_context:
            return BY_ITSELF
        if isinstance(self._shots, str):
            reason: str | None = self._shots
        else:
            reason = self._obstacles[self._requested[0]] if len(self._obstacles) == len(self._requested) else None
        inputs = self._scope.user_inputs
        if reason is not None and inputs is not None and (self.need in inputs.asked_for or self.side in inputs.known):
            raise ConfigError(reason)
        return reason

    @property
    def passes(self) -> int:  # type: ignore[override]
        return len(self._prefixes)

    @property
    def upstream(self) -> Mapping[str, str]:
        return {
            f"{self.source}/{self.side.name}/{shots}/{join}": prefix.sha256[:16]
            for (shots, join), prefix in self._prefixes.items()
        }

    def _find_revealing_shots(self, texts: Sequence[str]) -> Mapping[str, int | None]:
        """The place of the shot that reveals a text, by the text; those of the last call are kept."""
        longest = replace(self._required_shots, texts=self._required_shots.texts[: self._requested[-1][0]])
        self._revealing = {
            text: self._revealing[text] if text in self._revealing else longest.find_revealing_shot(text)
            for text in texts
        }
        return self._revealing

    def _list_texts_to_run(self, texts: Sequence[str]) -> list[tuple[Prefix, list[str]]]:
        """Each prefix with those of ``texts`` that it does not reveal."""
        revealing = self._find_revealing_shots(texts).items()
        return [
            (prefix, [text for text, place in revealing if place is None or place >= shots])
            for (shots, _), prefix in self._prefixes.items()
        ]

    def plan(self, texts: Sequence[str]) -> CachePlan:
        plans, is_rerun = [], is_prefix_rerun(self._model, self._where)
        for prefix, own in self._list_texts_to_run(texts):
            plan = plan_prefixed(self._model, own, prefix, self._where)
            # The prefix's last token is in each text's pass: it takes the place of the start token.
            again = plan.passes * (len(prefix.ids) - 1) if is_rerun else 0
            plans.append(replace(plan, tokens_to_run=plan.tokens_to_run + again))
        return reduce(CachePlan.with_further, plans)

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        tokens, passes = self.plan(texts).tokens_to_run, len(self._prefixes)
        each = ", ".join(str(shots) for shots in dict.fromkeys(shots for shots, _ in self._prefixes))
        what = f"the texts after prefixes of {each} {self.side.name}"
        if is_prefix_rerun(self._model, self._where):
            what += ", each with its prefix anew"
        return f"{what}, {passes} pass{'es' if passes > 1 else ''}, about {tokens:,} tokens in all" if tokens else None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        backend = partial(backend_of, self._model)
        to_run = self._list_texts_to_run(texts)
        plans = [plan_prefixed(self._model, own, prefix, self._where) for prefix, own in to_run]
        done: list[RunSummary] = []
        for prefix, own in to_run:
            report = None if on_progress is None else partial(_report_joint_progress, on_progress, [*done], plans)
            done.append(compute_prefixed(self._model, own, prefix, self._where, backend, report))
        return join_summaries(done)

    def build_lookup(self, texts: Sequence[str]) -> Lookup[PrefixedLogProbs]:
        cached = {
            request: collect_lists_by_text(read_prefixed(self._model, texts, prefix, self._where), ["logprob"])
            for request, prefix in self._prefixes.items()
        }
        revealing = self._find_revealing_shots(texts)

        def find(scored: TextWithStatistics) -> PrefixedLogProbs:
            text, found = scored.whole, dict[tuple[int, str], Float32s | UnmetNeed]()
            place, sha256 = revealing[text], text_sha256(text)
            for request in self._requested:
                shots, _ = request
                if place is not None and place < shots:
                    found[request] = UnmetNeed(
                        f"{GIVEN_AWAY}: the text's document is one of the {shots} {self.side.name} that the prefix is "
                        "made of"
                    )
                elif request in self._obstacles:
                    found[request] = UnmetNeed(self._obstacles[request])
                else:
                    row = cached[request].get(sha256)
                    found[request] = self._explain_unscored(text, *request) if row is None else row["logprob"]
            return found

        return find

    def _explain_unscored(self, text: str, shots: int, join: str) -> UnmetNeed:
        [tokens] = count_own_tokens(self._model, [text])
        if has_room(self._model, self._prefixes[shots, join], tokens):
            return UnmetNeed("the model has not been run on the text after the prefix: run it again")
        down = range(shots - 1, 0, -1)
        fit = next((n for n in down if has_room(self._model, self._encode_shots(n, join), tokens)), 0)
        would = f"a prefix of {fit} would leave room" if fit else "no prefix leaves room"
        window = self._window_description
        if crosses_border(self._model, self._prefixes[shots, join], tokens):
            window = self._border_description
        return UnmetNeed(f"the text's {tokens:,} tokens do not fit after a prefix of {shots} into {window}: {would}")


class MemberPrefixProvider(PrefixProvider):
    """Prefixes of known members."""

    need = MEMBERS.need
    side = MEMBERS


class NonmemberPrefixProvider(PrefixProvider):
    """Prefixes of known non-members."""

    need = NON_MEMBERS.need
    side = NON_MEMBERS


def _report_joint_progress(
    on_progress: OnProgress, done: Sequence[RunSummary], plans: Sequence[CachePlan], progress: Progress
) -> None:
    """Report several runs in a row as if they were one; ``done`` are those before the present one."""
    on_progress(
        Progress(
            progress.texts_done + sum(summary.texts_computed for summary in done),
            sum(plan.texts_to_run for plan in plans),
            progress.tokens_done + sum(summary.tokens_computed for summary in done),
            sum(plan.tokens_to_run for plan in plans),
            progress.seconds + sum(summary.seconds for summary in done),
        )
    )
