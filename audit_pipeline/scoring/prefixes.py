"""The provider of each need of a prefix of known texts.

What belongs here: the prefixes asked for, how many texts there is room for, what is run behind them. What does not:
which known texts there are (known_texts.py), the passes over a prefix (token_statistics/prefixed_texts.py) and the
scores (detectors/recall.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue.contracts import text_sha256
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.recall import JOINS, BehindPrefix
from audit_pipeline.detectors.statistics import Float32s, Lacking
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.known_texts import Shots, Side, shots_of_benchmark
from audit_pipeline.scoring.needs.provider import (
    BY_ITSELF,
    OnProgress,
    Provider,
    Read,
    ScoringScope,
    TextWithStatistics,
)
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Plan, collect_lists_by_text
from audit_pipeline.token_statistics.prefixed_texts import (
    compute_prefixed,
    count_own_tokens,
    has_room,
    is_prefix_rerun,
    plan_prefixed,
    read_prefixed,
)
from audit_pipeline.token_statistics.run import Progress, RunSummary, join_summaries
from audit_pipeline.token_statistics.tokens import Prefix, encode_prefix, window_and_stride

GIVEN_AWAY = "given away"
"""How the reason begins why a text has no score whose document stands in the prefix."""

_NOT_RUN = "the model has not been run on the text behind the prefix: run it again"


def _report_joint_progress(
    on_progress: OnProgress, previous_summary: RunSummary | None, plans: Sequence[Plan], progress: Progress
) -> None:
    """How far several runs in a row are, as if they were one; ``previous_summary`` is of those that are done."""
    on_progress(
        Progress(
            progress.texts_done + (previous_summary.texts_computed if previous_summary else 0),
            sum(one.texts_to_run for one in plans),
            progress.tokens_done + (previous_summary.tokens_computed if previous_summary else 0),
            sum(one.tokens_to_run for one in plans),
            progress.seconds + (previous_summary.seconds if previous_summary else 0.0),
        )
    )


class PrefixProvider(Provider[BehindPrefix]):
    """The text behind prefixes of known texts of one ``side``, one prefix a number of shots and way to join them."""

    side: ClassVar[Side]
    source = "prefix"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._scope, self._model, self._where = scope, scope.model, scope.where
        self._asked = sorted({(int(one["shots"]), str(one["join"])) for one in settings})
        self._rooms: dict[tuple[int, str], int] = {}
        self._given: Mapping[str, int | None] = {}

    @cached_property
    def _shots(self) -> Shots | str:
        """The shots, few as they may be, or why there are none."""
        side = self.side
        if self._scope.benchmark is not None:
            return shots_of_benchmark(read_built(self._scope.paths, self._scope.benchmark), side)
        given = {} if self._scope.beside is None else self._scope.beside.known
        if side not in given:
            return f"no prefix of {side.name}: name a file of texts known to be {side.name} with {side.option}"
        return Shots(given[side], f"the file of {side.option}", {})

    def _too_few(self, known_shots: Shots, shots: int) -> str:
        what_to_do = (
            f"add texts to it, or set the parameter shots to {len(known_shots.texts)} or less"
            if self._scope.benchmark is None
            else "raise calibration_fraction in config/benchmarks.yaml"
        )
        return (
            f"a prefix of {shots} takes the texts of {shots} known {self.side.name}, each of another document, and "
            f"{known_shots.source} has {len(known_shots.texts)}: {what_to_do}"
        )

    @property
    def _known(self) -> Shots:
        if isinstance(self._shots, str):
            raise ConfigError(self._shots)
        return self._shots

    def _room(self, n_shots: int, join: str) -> int:
        """How many of the first ``n_shots`` shots have room, joined by ``join``.

        The prefix and a text twice as long as its longest shot have to fit into the model's context.
        """
        if (n_shots, join) not in self._rooms:
            lengths = count_own_tokens(self._model, self._known.texts[:n_shots])
            down = range(n_shots, 0, -1)
            fits = (n for n in down if has_room(self._model, self._encode_shots(n, join), 2 * max(lengths[:n])))
            self._rooms[n_shots, join] = next(fits, 0)
        return self._rooms[n_shots, join]

    def _encode_shots(self, shots: int, join: str) -> Prefix:
        text = "".join(shot + JOINS[join] for shot in self._known.texts[:shots])
        return encode_prefix(self._model, text)

    def limits(self, setting: Settings) -> Settings:
        if self._scope.in_context or isinstance(self._shots, str):
            return {}
        most = min(int(setting["shots"]), len(self._shots.texts))
        room = self._room(most, str(setting["join"]))
        return {"shots": room} if 0 < room < most else {}

    @cached_property
    def _unmet(self) -> Mapping[tuple[int, str], str]:
        """Why there is no prefix, of those asked for that cannot be made."""
        reasons = {one: self._find_prefix_obstacle(*one) for one in self._asked}
        return {one: reason for one, reason in reasons.items() if reason is not None}

    def _find_prefix_obstacle(self, shots: int, join: str) -> str | None:
        if len(self._known.texts) < shots:
            return self._too_few(self._known, shots)
        if not self._room(1, join):
            room, _ = window_and_stride(self._model)
            return (
                f"not even one of {self._known.source} and a text twice as long fit into the {room:,} tokens of "
                f"context that {self._model.entry.name} is run with"
            )
        return None

    @cached_property
    def _prefixes(self) -> Mapping[tuple[int, str], Prefix]:
        """The prefixes that can be made."""
        return {one: self._encode_shots(*one) for one in self._asked if one not in self._unmet}

    def missing(self) -> str | None:
        """Why there is no prefix. Raises ConfigError where a user has asked for it, or given texts for it."""
        if self._scope.in_context:
            return BY_ITSELF
        reason, beside = self._find_problem(), self._scope.beside
        if reason is not None and beside is not None and (self.need in beside.asked_for or self.side in beside.known):
            raise ConfigError(reason)
        return reason

    def _find_problem(self) -> str | None:
        if isinstance(self._shots, str):
            return self._shots
        return self._unmet[self._asked[0]] if len(self._unmet) == len(self._asked) else None

    @property
    def passes(self) -> int:
        return len(self._prefixes)

    @property
    def upstream(self) -> Mapping[str, str]:
        return {
            f"{self.source}/{self.side.name}/{n}/{join}": one.sha256[:16] for (n, join), one in self._prefixes.items()
        }

    @cached_property
    def _looked_at(self) -> Shots:
        """Those shots that stand in any prefix asked for."""
        return replace(self._known, texts=self._known.texts[: self._asked[-1][0]])

    def _find_revealing_shots(self, texts: Sequence[str]) -> Mapping[str, int | None]:
        """The place of the shot that gives a text away, by the text; kept of those that were asked for last."""
        self._given = {
            text: self._given[text] if text in self._given else self._looked_at.find_revealing_shot(text)
            for text in texts
        }
        return self._given

    def _select_texts_to_run(self, texts: Sequence[str], shots: int) -> list[str]:
        """Of ``texts`` those that so many shots do not give away."""
        return [text for text, place in self._find_revealing_shots(texts).items() if place is None or place >= shots]

    def plan(self, texts: Sequence[str]) -> Plan:
        each = {
            prefix: plan_prefixed(self._model, self._select_texts_to_run(texts, shots), prefix, self._where)
            for (shots, _), prefix in self._prefixes.items()
        }
        tokens = sum(one.tokens_to_run for one in each.values())
        if is_prefix_rerun(self._model, self._where):
            # The prefix's last token stands in each text's pass: it takes the place of the start token.
            tokens += sum(one.passes * (len(prefix.ids) - 1) for prefix, one in each.items())
        sizes = sum(one.bytes_to_write.get("prefixed", 0) for one in each.values())
        return replace(
            next(iter(each.values())),
            tokens_to_run=tokens,
            passes=sum(one.passes for one in each.values()),
            bytes_to_write={"prefixed": sizes} if sizes else {},
        )

    def cost(self, texts: Sequence[str]) -> str | None:
        tokens, passes = self.plan(texts).tokens_to_run, len(self._prefixes)
        each = ", ".join(str(shots) for shots in dict.fromkeys(shots for shots, _ in self._prefixes))
        what = f"the texts behind prefixes of {each} {self.side.name}"
        if is_prefix_rerun(self._model, self._where):
            what += ", each with its prefix anew"
        return f"{what}, {passes} pass{'es' if passes > 1 else ''}, about {tokens:,} tokens in all" if tokens else None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        backend = partial(backend_of, self._model)
        each = {prefix: self._select_texts_to_run(texts, shots) for (shots, _), prefix in self._prefixes.items()}
        planned = [plan_prefixed(self._model, to_run, prefix, self._where) for prefix, to_run in each.items()]
        done: list[RunSummary] = []
        for prefix, to_run in each.items():
            told = (
                None
                if on_progress is None
                else partial(_report_joint_progress, on_progress, join_summaries(done) if done else None, planned)
            )
            done.append(compute_prefixed(self._model, to_run, prefix, self._where, backend, told))
        return join_summaries(done)

    def read(self, texts: Sequence[str]) -> Read[BehindPrefix]:
        cached = {one: self._read(texts, prefix) for one, prefix in self._prefixes.items()}
        given = self._find_revealing_shots(texts)

        def find(scored: TextWithStatistics) -> BehindPrefix:
            place = given[scored.whole]
            return {one: self._find_logprobs(scored.whole, one, place, cached.get(one)) for one in self._asked}

        return find

    def _read(self, texts: Sequence[str], prefix: Prefix) -> Mapping[str, Float32s]:
        """The cached log-probabilities of ``texts`` behind ``prefix``, by the text's sha256."""
        rows = collect_lists_by_text(read_prefixed(self._model, texts, prefix, self._where), ["logprob"])
        return {sha256: row["logprob"] for sha256, row in rows.items()}

    def _find_logprobs(
        self,
        text: str,
        prefix_key: tuple[int, str],
        revealing_shot: int | None,
        cached_logprobs: Mapping[str, Float32s] | None,
    ) -> Float32s | Lacking:
        shots, join = prefix_key
        if revealing_shot is not None and revealing_shot < shots:
            return Lacking(
                f"{GIVEN_AWAY}: the text's document is one of the {shots} {self.side.name} that the prefix is made of"
            )
        if cached_logprobs is None:
            return Lacking(self._unmet[prefix_key])
        found = cached_logprobs.get(text_sha256(text))
        return self._explain_unscored_text(text, shots, join) if found is None else found

    def _explain_unscored_text(self, text: str, shots: int, join: str) -> Lacking:
        [tokens] = count_own_tokens(self._model, [text])
        if has_room(self._model, self._prefixes[shots, join], tokens):
            return Lacking(_NOT_RUN)
        fit = next(
            (n for n in range(shots - 1, 0, -1) if has_room(self._model, self._encode_shots(n, join), tokens)), 0
        )
        room, _ = window_and_stride(self._model)
        would = f"a prefix of {fit} would leave room" if fit else "no prefix leaves room"
        return Lacking(
            f"the text's {tokens:,} tokens do not fit behind a prefix of {shots} into the {room:,} tokens of context "
            f"that {self._model.entry.name} is run with: {would}"
        )
