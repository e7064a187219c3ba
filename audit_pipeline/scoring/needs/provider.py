"""The interface and the list of providers. A provider computes and reads one requirement of detectors (a ``Need``)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from audit_pipeline import extras
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import Need, Spans, StatisticsIndex, TextStatistics, UnmetNeed
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring import needs
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import CacheLocation, CachePlan, plan, read_statistics
from audit_pipeline.token_statistics.run import Progress, RunSummary, compute

if TYPE_CHECKING:
    from audit_pipeline.scoring.prefix_shots import Side


T = TypeVar("T")
SeenIdentities = Mapping[str, tuple[str, str]]
"""The last known fingerprints of weights and tokenizer by model name. An unknown fingerprint is empty."""
OnProgress = Callable[[Progress], None]

NO_SEPARATE_PASS = "the text is scored after a context, so the model has not read the text alone"
"""The reason why detectors that compare a text with a changed text do not score it. They need a pass over the text
without a context (Zhang et al. 2025, appendix C)."""


@dataclass(frozen=True)
class UserInputs:
    """The inputs of a user apart from the scored texts.

    Attributes:
        frequencies: A token-frequency table.
        known: Texts known to be members or non-members, from which prefixes are made.
        asked_for: The requirements of detectors that the user named. If one of them is unmet, scoring fails.
        seed: The seed of the neighbours.
    """

    frequencies: Path | None = None
    known: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    asked_for: Collection[Need[Any]] = ()
    seed: int = 0


@dataclass(frozen=True)
class ScoringScope:
    """The texts and model of a session, and the inputs that requirements may use.

    Attributes:
        model: The audited model.
        location: The location of the cache.
        paths: The data folder.
        benchmark: The benchmark of the texts, or None for a user's file. Requirements may use its calibration split.
        in_context: True if only parts of some texts are scored, such as a text after its context.
        in_parts: True if the texts are scored in several calls, as for a long file.
        user_inputs: The inputs of a user who scores a file, or None in an audit.
    """

    model: TokenizedModel
    location: CacheLocation
    paths: DataPaths
    benchmark: str | None = None
    in_context: bool = False
    in_parts: bool = False
    user_inputs: UserInputs | None = None


@dataclass(frozen=True, slots=True)
class TextWithStatistics:
    """A text with its statistics.

    Attributes:
        model_input: The string that the model read.
        spans: The scored parts of ``model_input``. None means the whole text.
        statistics: The statistics of the scored tokens.
    """

    model_input: str
    spans: Spans | None
    statistics: TextStatistics


Lookup = Callable[[TextWithStatistics], T | UnmetNeed | None]
"""A function from a text to the data of a requirement. It returns None if the cache lacks the data."""


class Provider(Generic[T]):
    """The computation and reading of one requirement, for the texts of a :class:`ScoringScope`.

    The session first calls ``explain_unmet``. If the requirement is unmet, it calls nothing else. Otherwise
    ``compute`` fills the cache and ``build_lookup`` reads it. A subclass must define ``need`` and ``build_lookup``. The
    other members have defaults for requirements that cost nothing.
    """

    need: Need[T]
    """The requirement."""
    not_run: ClassVar[str] = ""
    """The reason why a text has no score if the lookup finds no data of it in the cache."""
    runs_other_model: bool = False
    """True if the provider runs another model. Its pass comes first, since only one model at a time is in memory."""
    source: str | None = None
    """The part before the first slash of the provider's names in ``upstream``."""
    kinds: Sequence[Kind] = ()
    """Kinds of extra statistics that the text pass must store."""
    extra_kinds: Sequence[Kind] = ()
    """Kinds of extra statistics that the text pass stores only for texts that it runs anyway. A later setting may need
    them."""
    branch_steps: int = 0
    """Length in tokens of the branches that the text pass computes, or 0 for none."""
    passes: int = 0
    """Maximum number of extra passes per text. Scoring a text needs memory for this number of additional texts."""

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        """Store the scope.

        Args:
            scope: The texts and the model that are scored.
            settings: The settings of all detectors that have the requirement.
        """
        self._scope = scope
        self._model = scope.model
        self._location = scope.location

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        """Return the other texts that a model processes for the texts, as far as they depend on the texts alone.

        ``forget`` removes them together with the texts.
        """
        return ()

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        """Return the value of ``upstream`` for a model that is not loaded, from its last known fingerprints.

        Returns:
            The versions by name, or None if they are unknown.
        """
        return {}

    def explain_unmet(self) -> str | None:
        """Return why the requirement is unmet for all texts, or None if it is met.

        Raises:
            TransientError: If a hub is unreachable. A later call may succeed.
        """
        return None

    def build_lookup(self, texts: Sequence[str]) -> Lookup[T]:
        """Read the cache once for all texts, and return the function that looks up a text."""
        raise NotImplementedError

    def find_limits(self, setting: Settings) -> Settings:
        """Return the parameters of a setting that are larger than possible, each with the largest possible value."""
        return {}

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the data versions of the provider's inputs by name, for the lineage of the scores."""
        return {}

    def plan(self, texts: Sequence[str]) -> CachePlan | None:
        """Return what ``compute`` would run on the audited model, or None if that is nothing or unknown beforehand."""
        return None

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        """Return a sentence about the cost, which the user reads before the run, or None if the cost is low."""
        return None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary | None:
        """Run the extra passes that are missing in the cache. The text pass of the texts is done before.

        Returns:
            The summary of the run, or None if the provider has no extra passes.
        """
        return None

    def _read_index(self, texts: Sequence[str], model: TokenizedModel | None = None) -> StatisticsIndex:
        """Read the cached statistics of the texts, by default those of the audited model."""
        model = model or self._model
        return StatisticsIndex(read_statistics(model, texts, self._location), model.has_statistic)


class DerivedTextsProvider(Provider[T]):
    """The base of requirements that are statistics of other texts, which are derived from each text.

    The audited model runs over the derived texts in extra passes. A subclass defines ``list_derived``, or
    ``derive_texts`` if the derived texts depend on the settings.
    """

    _derived: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    """The texts of the last derivation and the texts derived from them."""

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the derived texts of each text."""
        return [self.list_derived([text]) for text in texts]

    def derive_texts_once(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the derived texts of each text. Repeated calls with the same texts return the same result.

        The cost estimate, the run and the scoring all use the derived texts.
        """
        if self._derived is None or self._derived[0] != texts:
            self._derived = (texts, self.derive_texts(texts))
        return self._derived[1]

    def _flatten_derived_texts(self, texts: Sequence[str]) -> list[str]:
        flat: list[str] = []
        for derived_texts in self.derive_texts_once(texts):
            flat += derived_texts
        return flat

    def explain_unmet(self) -> str | None:
        """Return the reason if texts follow a context. Derived texts would need passes without the context."""
        return NO_SEPARATE_PASS if self._scope.in_context else None

    def plan(self, texts: Sequence[str]) -> CachePlan | None:
        """Return the passes over the derived texts that the cache lacks."""
        return plan(self._model, self._flatten_derived_texts(texts), self._location)

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        """Run the audited model over the derived texts that the cache lacks."""
        derived_texts = self._flatten_derived_texts(texts)
        backend = partial(backend_of, self._model)
        return compute(self._model, derived_texts, self._location, backend, on_progress=on_progress)


@cache
def all_providers() -> Mapping[str, type[Provider[Any]]]:
    """Return every provider class by the name of its requirement.

    Providers are found in the modules of this folder and in the modules ``need`` of extras.
    """
    names = [f"{needs.__name__}.{module.name}" for module in pkgutil.iter_modules(needs.__path__)]
    return collect_by_name(
        (*map(importlib.import_module, names), *extras.find_modules("need")),
        label="needs",
        is_wanted=lambda value: isinstance(value, type) and issubclass(value, Provider) and hasattr(value, "need"),
        name_of=lambda provider: provider.need.name,
    )


def list_derived_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts that providers derive from ``texts``, for all requirements (Provider.list_derived)."""
    derived_texts: list[str] = []
    for provider in all_providers().values():
        derived_texts += provider.list_derived(texts)
    return derived_texts


def is_input_of_provider(upstream: str) -> bool:
    """Return True if a name in ``upstream`` belongs to an input of a provider, for example to a reference model."""
    return upstream.partition("/")[0] in {provider.source for provider in all_providers().values()}
