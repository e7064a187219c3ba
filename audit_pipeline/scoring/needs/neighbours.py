"""Neighbours of the text: texts that differ from it in a word (made in scoring/neighbours/)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import NOT_GIVEN, TextStatistics
from audit_pipeline.detectors.neighbour import NEIGHBOURS
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.scoring.needs.provider import (
    DerivedTextsProvider,
    Lookup,
    ScoringScope,
    TextWithStatistics,
    UserInputs,
)
from audit_pipeline.scoring.neighbours import own_topk
from audit_pipeline.scoring.neighbours.proposer import Proposer
from audit_pipeline.tables import KINDS


class NeighboursProvider(DerivedTextsProvider[Sequence[TextStatistics]]):
    """The statistics of as many neighbours as the largest ``n`` of the settings asks for, in the proposer's order."""

    need = NEIGHBOURS
    not_run = "the text has no neighbours that the model was run on"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        self._inputs = scope.user_inputs or UserInputs()
        self.passes = max(int(setting["n"]) for setting in settings)

    @property
    def kinds(self) -> Sequence[str]:  # type: ignore[override]
        return self._proposer.kinds

    def explain_missing(self) -> str | None:
        # In an audit, no user has said how they are to be made.
        if self._scope.in_context or self._scope.user_inputs is None:
            return super().explain_missing() or self.not_run
        given = all(KINDS[kind].is_available_from(self._model.has_statistic) for kind in self.kinds)
        return None if given else f"{NOT_GIVEN}: the likeliest tokens, which make neighbours"

    def plan(self, texts: Sequence[str]) -> None:
        """Neighbours are not known before the texts' own pass."""

    def describe_cost(self, texts: Sequence[str]) -> str:
        return f"neighbour: {self._proposer.describe_cost(texts, self.passes)}"

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return self._proposer.propose(texts, self.passes, self._inputs.seed)

    def build_lookup(self, texts: Sequence[str]) -> Lookup[Sequence[TextStatistics]]:
        index = self._read_index(self._flatten_derived_texts(texts))
        proposed = dict(zip(texts, self.derive_texts_once(texts), strict=True))

        def find(scored: TextWithStatistics) -> Sequence[TextStatistics] | None:
            found = map(index.find, proposed.get(scored.whole, ()))
            return [statistics for statistics in found if statistics is not None] or None

        return find

    @cached_property
    def _proposer(self) -> Proposer:
        if self._inputs.proposer == own_topk.NAME:
            return own_topk.OwnTopkProposer(self._model, self._where)
        # A model of its own: torch is imported where one is asked for.
        from audit_pipeline.scoring.neighbours.masked_model import MaskedModelProposer  # noqa: PLC0415

        entry = resolve_model(self._inputs.proposer, load_models())
        return MaskedModelProposer(entry, device=self._inputs.device, notify=self._inputs.notify)
