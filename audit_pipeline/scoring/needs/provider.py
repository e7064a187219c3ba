"""What a provider of a need is.

What belongs here: the interface, and what every provider is made from. What does not: any one need (its own module).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from audit_pipeline.catalogue.contracts import Kind
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.statistics import Lacking, Need, TextStatistics
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.neighbours import own_topk
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CacheLocation, Plan
from audit_pipeline.token_statistics.run import Progress, RunSummary

if TYPE_CHECKING:
    from audit_pipeline.scoring.known_texts import Side

T = TypeVar("T")
OnProgress = Callable[[Progress], None]

BY_ITSELF = "the text is scored in the context of an input: it has no pass of its own"
"""Why a detector that compares a text with a changed one cannot score it: it needs the text alone (Zhang et al. 2025,
appendix C)."""


@dataclass(frozen=True)
class UserInputs:
    """What a user gives beside the texts: a token-frequency table, and how neighbours are proposed (``own-topk``, or
    a masked language model's name, hub id or path), and the ``known`` texts of sides that make prefixes.

    ``asked_for``: the needs of detectors that were named, each of which has to be met. ``tell`` hears how far the
    making of neighbours is."""

    frequencies: Path | None = None
    known: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    asked_for: Collection[Need[Any]] = ()
    proposer: str = own_topk.NAME
    seed: int = 0
    device: str | None = None
    tell: Callable[[str], None] = lambda how_far: None


@dataclass(frozen=True)
class ScoringScope:
    """What is scored: a model, and where its statistics are kept.

    ``benchmark`` is the one that the texts are of, whose calibration split a need may draw from; None for a user's
    file. ``in_context``: some of the texts stand behind a context. ``in_parts``: the texts are not asked for all at
    once, as those of a long file. ``beside`` is None where no user waits for the scores, as in an audit.
    """

    model: TokenizedModel
    where: CacheLocation
    paths: DataPaths
    benchmark: str | None = None
    in_context: bool = False
    in_parts: bool = False
    beside: UserInputs | None = None


@dataclass(frozen=True, slots=True)
class TextWithStatistics:
    """A text with its statistics; ``whole`` is what the model read, the text behind the ``context_tokens`` tokens of
    its context."""

    whole: str
    own: TextStatistics
    context_tokens: int


Read = Callable[[TextWithStatistics], T | Lacking]


class Provider(Protocol[T]):
    """How a need is met for the texts of a :class:`ScoringScope`, by the ``settings`` of the detectors that have it.

    A session asks ``missing`` first, and a provider that says why it cannot meet its need is asked nothing else. Then
    ``compute`` brings the cache up to the texts, and ``read`` gives what is in the cache of them, without a model.
    Everything but the need, ``missing`` and ``read`` is there for needs that cost something.
    """

    need: Need[T]
    other_model: bool = False
    """Whether it runs another model than the audited one: over all texts first, one model at a time is in memory."""
    source: str | None = None
    """What its scores come from, as the first part of names in ``upstream``."""

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None: ...

    @staticmethod
    def derived(texts: Sequence[str]) -> Sequence[str]:
        """Other texts that a model is run over for ``texts``, as far as these alone tell; forgotten with them."""
        return ()

    def missing(self) -> str | None:
        """Why the need is not met for any text; None where it is.

        Raises TransientError where a hub could not be reached: it may be reached later.
        """
        ...

    def read(self, texts: Sequence[str]) -> Read[T]:
        """How each of ``texts`` is looked up in what the cache holds of them; reads the cache once for all."""
        ...

    @property
    def kinds(self) -> Sequence[Kind]:
        """Kinds of statistics that the text's own pass has to leave behind for it."""
        return ()

    @property
    def along(self) -> Sequence[Kind]:
        """Kinds that a text is given where it is run for others: a later setting may ask for them."""
        return ()

    @property
    def branch_steps(self) -> int:
        """How many tokens the branches have that are run with the text's own pass; 0: none."""
        return 0

    @property
    def passes(self) -> int:
        """How many further passes over a text like this one it takes, at most; as much is kept of each."""
        return 0

    def limits(self, setting: Settings) -> Settings:
        """The most that parameters of a detector at ``setting`` can be, of those that something here limits."""
        return {}

    @property
    def upstream(self) -> Mapping[str, str]:
        """Data versions of what its scores come from, for their lineage."""
        return {}

    def plan(self, texts: Sequence[str]) -> Plan | None:
        """What ``compute`` would run of the audited model; None where that is nothing, or not known beforehand."""
        return None

    def cost(self, texts: Sequence[str]) -> str | None:
        """What is worth telling a user before it is run, in words; None where it costs little."""
        return None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary | None:
        """Run what is not cached of ``texts``, whose own pass has been run; None where there is nothing to run."""
        return None
