"""What a provider of a need is, and what every provider is made from; each need has a provider in a module here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import Need, StatisticsIndex, TextStatistics, UnmetNeed
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.neighbours import own_topk
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CacheLocation, CachePlan, plan, read_statistics
from audit_pipeline.token_statistics.run import Progress, RunSummary, compute

if TYPE_CHECKING:
    from audit_pipeline.scoring.prefix_shots import Side

T = TypeVar("T")
SeenIdentities = Mapping[str, tuple[str, str]]
"""The fingerprints of weights and tokenizer (empty: not known) that models were seen with last, by name."""
OnProgress = Callable[[Progress], None]

BY_ITSELF = "the text is scored in the context of an input: it has no pass of its own"
"""Why a detector that compares a text with a changed one cannot score it: it needs the text alone (Zhang et al. 2025,
appendix C)."""


@dataclass(frozen=True)
class UserInputs:
    """What a user gives apart from the texts: a token-frequency table, how neighbours are proposed (``own-topk``, or a
    masked language model's name, hub id or path), and the ``known`` texts of sides that make prefixes.

    ``asked_for``: the needs of detectors that were named; each has to be met. ``notify`` is a callback with the
    progress of making neighbours."""

    frequencies: Path | None = None
    known: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    asked_for: Collection[Need[Any]] = ()
    proposer: str = own_topk.NAME
    seed: int = 0
    device: str | None = None
    notify: Callable[[str], None] = lambda how_far: None


@dataclass(frozen=True)
class ScoringScope:
    """What is scored: a model, and where its statistics are kept.

    ``benchmark`` is the one that the texts are of, whose calibration split a need may draw from; None for a user's
    file. ``in_context``: some of the texts follow a context. ``in_parts``: the texts are not asked for all at once, as
    those of a long file. ``user_inputs`` is None where no user waits for the scores, as in an audit.
    """

    model: TokenizedModel
    where: CacheLocation
    paths: DataPaths
    benchmark: str | None = None
    in_context: bool = False
    in_parts: bool = False
    user_inputs: UserInputs | None = None


@dataclass(frozen=True, slots=True)
class TextWithStatistics:
    """A text with its statistics; ``whole`` is what the model read, the text after the ``context_tokens`` tokens of
    its context."""

    whole: str
    own: TextStatistics
    context_tokens: int


Lookup = Callable[[TextWithStatistics], T | UnmetNeed | None]
"""Looks up what a need is for a text; None where the cache lacks it."""


class Provider(Generic[T]):
    """How a need is met for the texts of a :class:`ScoringScope`, by the ``settings`` of the detectors that have it.

    A session asks ``explain_missing`` first, and nothing else of a provider that says why it cannot meet its need. Then
    ``compute`` brings the cache up to the texts, and ``read`` gives what is in the cache of them, without a model.
    Everything but ``need`` and ``read`` is there for needs that cost something.
    """

    need: Need[T]
    not_run: ClassVar[str] = ""
    """Why a text has no score for which the cache lacks what ``read`` looks up."""
    other_model: bool = False
    """Whether it runs another model than the audited one: over all texts first, one model at a time is in memory."""
    source: str | None = None
    """What its scores come from, as the first part of names in ``upstream``."""
    kinds: Sequence[Kind] = ()
    """Kinds of statistics that the text's own pass has to leave in the cache for it."""
    along: Sequence[Kind] = ()
    """Kinds that a text is given where it is run for others: a later setting may ask for them."""
    branch_steps: int = 0
    """How many tokens the branches have that are run with the text's own pass; 0: none."""
    passes: int = 0
    """How many further passes over a text like this one it takes, at most; as much is kept of each."""

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._scope, self._model, self._where = scope, scope.model, scope.where

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        """Other texts that a model is run over for ``texts``, as far as these alone show; forgotten with them."""
        return ()

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        """``upstream`` of a model that is not loaded, as far as it was seen; None where it is not known."""
        return {}

    def explain_missing(self) -> str | None:
        """Why the need is not met for any text; None where it is.

        Raises TransientError where a hub could not be reached: it may be reached later.
        """
        return None

    def build_lookup(self, texts: Sequence[str]) -> Lookup[T]:
        """How each of ``texts`` is looked up in what the cache holds of them; reads the cache once for all."""
        raise NotImplementedError

    def find_limits(self, setting: Settings) -> Settings:
        """Parameters of ``setting`` that go beyond what can be met here, each with the most that can."""
        return {}

    @property
    def upstream(self) -> Mapping[str, str]:
        """Data versions of what its scores come from, for their lineage."""
        return {}

    def plan(self, texts: Sequence[str]) -> CachePlan | None:
        """What ``compute`` would run of the audited model; None where that is nothing, or not known beforehand."""
        return None

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        """What is worth saying to a user before it is run, in words; None where it costs little."""
        return None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary | None:
        """Run what is not cached of ``texts``, whose own pass has been run; None where there is nothing to run."""
        return None

    def _read_index(self, texts: Sequence[str], model: TokenizedModel | None = None) -> StatisticsIndex:
        """The cached statistics of ``texts`` by ``model``; None: the audited model."""
        model = model or self._model
        return StatisticsIndex(read_statistics(model, texts, self._where), model.has_statistic)


class DerivedTextsProvider(Provider[T]):
    """The statistics of other texts that :meth:`make` makes of each text, by passes of the audited model over them."""

    _made: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """The other texts of each of ``texts``."""
        return [self.list_derived([text]) for text in texts]

    def derive_texts_once(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """As :meth:`make`; made once for the texts at hand, which are asked for to be run, and to be scored."""
        if self._made is None or self._made[0] != texts:
            self._made = texts, self.derive_texts(texts)
        return self._made[1]

    def _flatten_derived_texts(self, texts: Sequence[str]) -> list[str]:
        return [other for own in self.derive_texts_once(texts) for other in own]

    def explain_missing(self) -> str | None:
        return BY_ITSELF if self._scope.in_context else None

    def plan(self, texts: Sequence[str]) -> CachePlan | None:
        return plan(self._model, self._flatten_derived_texts(texts), self._where)

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        backend = partial(backend_of, self._model)
        return compute(self._model, self._flatten_derived_texts(texts), self._where, backend, on_progress=on_progress)
