"""What there is, what is asked and what is to be done, as plain data: what the planner gets, and what it gives.

What belongs here: the facts of every kind of product, each with the version that it should have and the one that is
there, and steps. What does not: what follows from them (plan.py), reading them (situation.py, coverage.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from audit_pipeline.catalogue.contracts import Pair, PairStatus, digest
from audit_pipeline.catalogue.ledger import PairOutcome

Kind = Literal["fetch", "train", "build", "assess", "search", "count", "run", "extract", "score", "evaluate", "publish"]

OF_PAIRS: tuple[Kind, ...] = ("run", "score", "evaluate", "extract")
"""The steps of a pair: the model on the texts, the detectors on what that left behind, what follows from scores, and,
where the benchmark asks for it, the model on whole documents."""
EXTRACTION = "extraction"
"""The stage that searches whole documents. What becomes of it decides nothing of the audit before it."""


@dataclass(frozen=True)
class PlannedStep:
    """Something to be done. ``what`` is a source, control or benchmark by its name, ``corpus|model``,
    ``benchmark|corpus`` or ``benchmark|model``; of ``publish`` it is warehouse and report."""

    kind: Kind
    what: str
    because: str

    @property
    def pair(self) -> Pair:
        """The pair that the step is of."""
        benchmark, _, model = self.what.partition("|")
        return Pair(benchmark, model)


@dataclass(frozen=True)
class SourceFacts:
    """A source's documents. ``wanted``: the digest of its settings and files; ``there``: of those that the documents
    were fetched under, None where there are none that can be used. ``problem``: why it cannot be fetched."""

    wanted: str | None
    there: str | None
    problem: str | None = None


@dataclass(frozen=True)
class ControlFacts:
    """A control with known truth. ``wanted``: the version that its entry and documents give, None where these are not
    there; ``there``: that of the one that is trained, None where none is, or it is damaged. ``problem``: why it cannot
    be trained."""

    wanted: str | None
    there: str | None
    sources: tuple[str, ...] = ()
    problem: str | None = None


Versions = tuple[tuple[str, str], ...]
"""Versions by name."""


@dataclass(frozen=True)
class SplitFacts:
    """What was assessed of a benchmark's split: of which build (its digest), by which version of the code and which
    run, and the versions of the tables that say so, by name. All None where nothing was assessed, or a file of it is
    damaged."""

    benchmark: str | None = None
    code: str | None = None
    versions: Versions | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class OverlapFacts:
    """A search of a corpus for a benchmark's texts. ``wanted``: the version of texts, corpus and code; ``there``: that
    of the search that was made, None where none was. ``problem``: why the corpus cannot be searched."""

    corpus: str
    wanted: str
    there: str | None
    problem: str | None = None


@dataclass(frozen=True)
class BenchmarkFacts:
    """A benchmark. ``wanted``: the digest that it would have if it were built now, None where that is not known;
    ``built``: that of what is built, None where nothing is.

    ``problem``: why it cannot be told, where it is not for a source or control that is not there yet.
    ``is_removed``: whether it is no longer in the configuration. ``extraction``: the version of the search
    of its documents that an audit makes, too; None where it makes none. ``split``: None where it is not known what was
    assessed. ``overlaps``: the corpora that an audit searches for its texts.
    """

    wanted: str | None
    built: str | None
    sources: tuple[str, ...] = ()
    control: str | None = None
    problem: str | None = None
    is_removed: bool = False
    split: SplitFacts | None = None
    extraction: str | None = None
    overlaps: tuple[OverlapFacts, ...] = ()

    @property
    def as_audited(self) -> str | None:
        """What pairs on it rest on: the digest of what is built, with the versions of what was assessed of it."""
        assessed = None if self.split is None else self.split.versions
        # The settings behind the version, where they are not the usual ones: a new version of the code moves no digest.
        searched = () if self.extraction is None else (EXTRACTION, *self.extraction.split(": ")[1:])
        if self.built is None or (assessed is None and not searched):
            return self.built
        return digest(self.built, *(assessed or ()), *searched)


@dataclass(frozen=True)
class FrequencyFacts:
    """A table of token frequencies of a model's tokenizer. ``wanted``: the version of the corpus' settings and
    documents; ``there``: of those that were counted, None where no whole table is there. ``source``: the source whose
    documents the corpus is, None where it is files."""

    corpus: str
    wanted: str
    there: str | None
    source: str | None = None


@dataclass(frozen=True)
class ModelFacts:
    """What a model needs before it is run: the control that trains it, the token frequencies that can be counted."""

    control: str | None = None
    frequencies: FrequencyFacts | None = None


@dataclass(frozen=True)
class Conventions:
    """How a model is run and what it is scored with; None: not known.

    ``statistics`` is the version of the token statistics: it changes with benchmark, model and tokenizer, and with the
    start token, the window and the form in which they are kept. ``before``: of a model behind an interface, the
    fingerprints of what was behind it earlier; None: its weights are here.
    """

    model: str | None = None
    tokenizer: str | None = None
    statistics: str | None = None
    reference: Versions | None = None
    frequencies: Versions | None = None
    before: frozenset[str] | None = None


@dataclass(frozen=True)
class WrittenRows:
    """The scores, or findings, of a pair that were written last; without a lineage entry only the run is known.

    ``version`` is their own; of what findings were made of, ``of_scores`` is that of the scores, ``of_split`` those of
    the assessed split.
    """

    run_id: str
    at: datetime | None = None
    code: str | None = None
    benchmark: str | None = None
    conventions: Conventions = Conventions()
    version: str | None = None
    of_scores: str | None = None
    of_split: Versions | None = None


@dataclass(frozen=True)
class PairFacts:
    """What there is of a pair: how it would be audited ``now``, what was written last, the outcome that was recorded
    last, and the tables of which a file is damaged or gone."""

    now: Conventions = Conventions()
    scores: WrittenRows | None = None
    evaluations: WrittenRows | None = None
    extraction: WrittenRows | None = None
    outcome: PairOutcome | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedFacts:
    """Warehouse and report. ``wanted``: what they would be made with now (configuration, code and the like, each with
    its digest); ``there``: what they were made with, None where one of them is missing or damaged. ``runs``: those
    whose findings and assessments of splits they hold; ``at``: when they were made."""

    wanted: Mapping[str, object] = field(default_factory=dict)
    there: Mapping[str, object] | None = None
    runs: frozenset[str] = frozenset()
    at: datetime | None = None


@dataclass(frozen=True)
class Situation:
    """What there is. ``code``: the versions of the code that makes split_quality, scores and evaluations."""

    sources: Mapping[str, SourceFacts] = field(default_factory=dict)
    controls: Mapping[str, ControlFacts] = field(default_factory=dict)
    benchmarks: Mapping[str, BenchmarkFacts] = field(default_factory=dict)
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    audits: Mapping[Pair, PairFacts] = field(default_factory=dict)
    published: PublishedFacts = PublishedFacts()
    code: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanRequest:
    """What is to be up to date, each with all that it is made of.

    ``refresh``: the sources of the benchmarks are fetched whatever is there. ``again``: pairs that are done are audited
    again. ``more_statistics``: kinds of token statistics that are wanted besides, of which the caches alone know.
    """

    sources: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    refresh: bool = False
    again: bool = False
    more_statistics: tuple[str, ...] = ()
    publish: bool = False


@dataclass(frozen=True)
class PairState:
    """What became of a pair; ``outcome``: where a run gave it up after its latest audit."""

    status: PairStatus
    reason: str | None = None
    outcome: PairOutcome | None = None
