"""What a user asks for, from the command line or from Python: an audit, or scores of texts of their own.

What belongs here: what follows from the options, and carrying it out. What does not: which options there are
(options.py), showing results (cli/, corpus_audit/), which steps an audit takes (plan.py), and the order of read, run
and score (scoring/file.py).

Heavy packages are imported where they are needed, so that what has nothing to do, or is wrong, is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audit_pipeline.catalogue.paths import DataPaths, require_writable
from audit_pipeline.config.problems import Problem
from audit_pipeline.operate.options import AuditOptions, ScoreOptions

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.catalogue.contracts import Pair
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.fetch.stream import TextStream
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.dagster.audit import AuditOutcome
    from audit_pipeline.scoring.file import FileScores, ProgressListener
    from audit_pipeline.scoring.known_texts import Side
    from audit_pipeline.scoring.session import Selection

ALL = "all"


@dataclass(frozen=True)
class NamedPairs:
    """The model and the benchmarks that a user named; ``problems`` are those of other entries of the configuration.

    ``leave_out``: a benchmark that cannot be built is left out, and the others go on.
    """

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    problems: Sequence[Problem]
    leave_out: bool

    @property
    def done_in_words(self) -> str:
        """That there is nothing to do, in words."""
        named = ", ".join(spec.name for spec in self.benchmarks)
        return f"{self.model.name} on {named}: everything is up to date, nothing is run"


@dataclass(frozen=True)
class Audited:
    """What an audit came to: the benchmarks that were not left out, and the error where some pairs met a fault and the
    others are done. ``outcome`` is None where nothing was run."""

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    failed: PairsFailedError | None = None
    outcome: AuditOutcome | None = None

    @property
    def pairs(self) -> list[Pair]:
        from audit_pipeline.catalogue.contracts import Pair  # noqa: PLC0415

        return [Pair(spec.name, self.model.name) for spec in self.benchmarks]


def find_pairs(model: str, benchmark: str) -> NamedPairs:
    """The model, and the benchmarks that a user named: one, a family, or all there are.

    Raises ConfigError or ModelError where there is none of that name, or its entry cannot be used.
    """
    from audit_pipeline.benchmarks.config import standing  # noqa: PLC0415
    from audit_pipeline.models.config import resolve_model  # noqa: PLC0415
    from audit_pipeline.operate.configuration import load_configuration  # noqa: PLC0415

    config = load_configuration()
    specs = list(standing(config.benchmarks).values()) if benchmark == ALL else config.benchmarks_named(benchmark)
    return NamedPairs(resolve_model(model, config.models), specs, config.problems, benchmark == ALL)


def run_audit(
    named: NamedPairs,
    options: AuditOptions,
    definitions: Callable[[], dg.Definitions],
    on_step: Callable[[str], None],
) -> Audited:
    """Bring the pairs up to date, in this process; nothing is run, and no heavy package imported, where they are.

    Bars are drawn where progress can be (console.draws). Raises what a user can act on; a pair that met a fault does
    not stop the others, and is told of in the result.
    """
    from audit_pipeline.operate.situation import steps_at_a_glance  # noqa: PLC0415

    entry, specs, paths = named.model, named.benchmarks, DataPaths.from_environment()
    if options.is_plain and steps_at_a_glance(entry, specs, paths, publish=options.publish) == ():
        on_step(named.done_in_words)
        return Audited(entry, specs)
    require_writable(paths.root)

    loaded = definitions()
    from audit_pipeline.operate.dagster.audit import AuditRequest, audit  # noqa: PLC0415

    request = AuditRequest(
        entry.name,
        specs,
        refresh=options.refresh,
        again=options.again,
        device=options.device,
        limits=options.limits,
        engine=options.chosen_engine,
        kinds=options.kinds,
        logits_budget_gb=options.logits_budget_gb,
        terminal=True,
        leave_out=named.leave_out,
        publish=options.publish,
    )
    outcome = audit(request, loaded, paths, on_step)
    if not outcome.runs and not outcome.failed and not outcome.left_out:
        on_step(named.done_in_words)
    left = [spec for spec in specs if spec.name not in outcome.left_out]
    return Audited(entry, left, outcome.failed, outcome)


@dataclass(frozen=True)
class ScoringRequest:
    """The options, and what follows from them: detectors with their settings, and the texts of prefixes by side."""

    options: ScoreOptions
    selection: Selection
    known: Mapping[Side, Sequence[str]]


def scoring_request(options: ScoreOptions, scored: Path) -> ScoringRequest:
    """What the options come to for the texts of the file ``scored``; raises ConfigError or DataError where that cannot
    be."""
    from audit_pipeline.detectors.registry import select  # noqa: PLC0415

    selection = select(options.detectors, grid=options.grid, overrides=options.overrides)
    return ScoringRequest(options, selection, _known(options, selection, scored))


def _known(options: ScoreOptions, selection: Selection, scored: Path) -> Mapping[Side, Sequence[str]]:
    if options.prefix_texts is None and options.prefix_members is None:
        return {}
    from audit_pipeline.scoring.known_texts import MEMBERS, NON_MEMBERS, known_texts  # noqa: PLC0415

    named = ((NON_MEMBERS, options.prefix_texts), (MEMBERS, options.prefix_members))
    files = {side: Path(path) for side, path in named if path is not None}
    needs = {need for one, _ in selection for need in one.needs}
    return known_texts(files, needs, scored, options.text_column, options.label_column)


def score_texts(
    request: ScoringRequest,
    model: ModelEntry,
    texts: TextStream,
    out: Path,
    paths: DataPaths,
    listener: ProgressListener,
) -> FileScores:
    """Score ``texts`` and write the table to ``out`` (see :func:`audit_pipeline.scoring.file.score_file`).

    Raises ConfigError, ModelError, DataError and what else a user can act on.
    """
    from audit_pipeline.endpoints.in_use import Endpoints  # noqa: PLC0415
    from audit_pipeline.models.load import with_overrides  # noqa: PLC0415
    from audit_pipeline.scoring.backends import loader  # noqa: PLC0415
    from audit_pipeline.scoring.file import score_file  # noqa: PLC0415
    from audit_pipeline.scoring.needs.provider import UserInputs  # noqa: PLC0415

    options = request.options
    entry = with_overrides(
        model,
        dtype=options.dtype,
        start_token_policy=options.start_token,
        reference_model=options.reference_model,
    )
    # Each detector that was named has to have what it needs; the others may go without.
    named = {*(options.detectors or ()), *options.overrides}
    beside = UserInputs(
        frequencies=None if options.frequencies is None else Path(options.frequencies),
        known=request.known,
        asked_for={need for one, _ in request.selection if one.name in named for need in one.needs},
        proposer=options.proposer,
        seed=options.seed,
        device=options.device,
        tell=listener.how_far,
    )
    endpoints = Endpoints(options.limits.for_model(entry))
    tokenized = endpoints.load(entry, paths, listener.step)
    return score_file(
        texts,
        out,
        tokenized,
        request.selection,
        paths,
        loader(paths, options.device, endpoints, options.chosen_engine, listener.step),
        beside=beside,
        label_column=options.label_column,
        overrides=options.overrides,
        listener=listener,
    )
