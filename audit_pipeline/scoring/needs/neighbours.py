"""Neighbours of the text: texts that differ from it in a word.

What belongs here: who proposes them, and the model's passes over them. What does not: the ways of making neighbours
(scoring/neighbours/), the score (detectors/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from audit_pipeline.catalogue.contracts import KINDS, Kind
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.neighbour import NEIGHBOURS
from audit_pipeline.detectors.statistics import NOT_GIVEN, Lacking, StatisticsIndex, TextStatistics
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.scoring.needs.provider import (
    BY_ITSELF,
    OnProgress,
    Provider,
    Read,
    ScoringScope,
    TextWithStatistics,
    UserInputs,
)
from audit_pipeline.scoring.neighbours import own_topk
from audit_pipeline.scoring.neighbours.proposer import Proposer
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import RunSummary, compute

_NONE = "the text has no neighbours that the model was run on"


class NeighboursProvider(Provider[Sequence[TextStatistics]]):
    """The statistics of as many neighbours as the largest ``n`` of the settings asks for, in the proposer's order."""

    need = NEIGHBOURS

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._scope, self._model, self._where = scope, scope.model, scope.where
        self._n = max(int(setting["n"]) for setting in settings)
        self._made: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None

    @property
    def passes(self) -> int:
        return self._n

    @property
    def kinds(self) -> Sequence[Kind]:
        return self._proposer.kinds

    def missing(self) -> str | None:
        if self._scope.in_context:
            return BY_ITSELF
        # Nobody has said how they are to be made.
        if self._scope.beside is None:
            return _NONE
        given = all(KINDS[kind].is_available_from(self._model.gives) for kind in self.kinds)
        return None if given else f"{NOT_GIVEN}: the likeliest tokens, of which neighbours are made"

    def cost(self, texts: Sequence[str]) -> str:
        return f"neighbour: {self._proposer.cost(texts, self._n).summary}"

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        flat = [one for own in self._propose(texts) for one in own]
        return compute(self._model, flat, self._where, partial(backend_of, self._model), on_progress=on_progress)

    def read(self, texts: Sequence[str]) -> Read[Sequence[TextStatistics]]:
        proposed = dict(zip(texts, self._propose(texts), strict=True))
        flat = [one for own in proposed.values() for one in own]
        index = StatisticsIndex(read_statistics(self._model, flat, self._where), self._model.gives)

        def find(scored: TextWithStatistics) -> Sequence[TextStatistics] | Lacking:
            found = [one for each in proposed.get(scored.whole, ()) if (one := index.find(each)) is not None]
            return found or Lacking(_NONE)

        return find

    def _propose(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """The neighbours of each text, made once for the texts at hand: they are wanted to be run, and to be scored."""
        if self._made is None or self._made[0] != texts:
            self._made = texts, self._proposer.propose(texts, self._n, self._beside.seed)
        return self._made[1]

    @property
    def _beside(self) -> UserInputs:
        return self._scope.beside or UserInputs()

    @cached_property
    def _proposer(self) -> Proposer:
        if self._beside.proposer == own_topk.NAME:
            return own_topk.OwnTopkProposer(self._model, self._where)
        # A model of its own: torch is imported where one is asked for.
        from audit_pipeline.scoring.neighbours.masked_model import MaskedModelProposer  # noqa: PLC0415

        entry = resolve_model(self._beside.proposer, load_models())
        return MaskedModelProposer(entry, self._scope.paths, device=self._beside.device, notify=self._beside.tell)
