"""What a user asks for, from the command line or from Python: an audit, or scores of their own texts; what came of it.

Heavy packages are imported where they are needed, so that an audit with nothing to do, or a wrong name, is answered at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from audit_pipeline.config.problems import Problem
from audit_pipeline.pipeline.options import AuditOptions, ScoreOptions

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.plan import AuditPlan, Planner
    from audit_pipeline.pipeline.workspace_state import Scope
    from audit_pipeline.readers.row_stream import TextStream
    from audit_pipeline.scoring.file import FileScores, ProgressListener
    from audit_pipeline.scoring.prefix_shots import Side
    from audit_pipeline.scoring.session import Selection
    from audit_pipeline.store.paths import DataPaths
    from audit_pipeline.tables import Pair

ALL = "all"


@dataclass(frozen=True)
class AuditRequest:
    """A model, or those of a series in order, some benchmarks and the options; ``problems`` are those of other entries
    of the configuration.

    ``leave_out``: a benchmark that cannot be built is left out, and the others go on. ``terminal``: progress bars are
    drawn.
    """

    models: Sequence[ModelEntry]
    benchmarks: Sequence[BenchmarkSpec]
    options: AuditOptions = field(default_factory=AuditOptions)
    problems: Sequence[Problem] = ()
    leave_out: bool = False
    terminal: bool = True

    @property
    def model(self) -> ModelEntry:
        """The model, or the first of the series."""
        return self.models[0]

    @property
    def subject(self) -> str:
        """What is audited, in words: the model, or how many of its series."""
        checkpoint = self.model.checkpoint
        if len(self.models) == 1 or checkpoint is None:
            return self.model.name
        return f"{len(self.models)} models of {checkpoint.series}"

    @property
    def completion_message(self) -> str:
        """That there is nothing to do, in words."""
        named = ", ".join(spec.name for spec in self.benchmarks)
        return f"{self.subject} on {named}: everything is up to date, nothing is run"

    @property
    def resources(self) -> Mapping[str, Mapping[str, object]]:
        """The resources of a run of Dagster that runs the model."""
        return {
            "models": {"device": self.options.device, **self.options.chosen_engine.run_config},
            "progress": {"terminal": self.terminal},
        }


@dataclass(frozen=True)
class PassCounts:
    """How many texts of a pair were in the cache, and how many the model was run on."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """The outcome of an audit; ``benchmarks`` are those that were not left out.

    ``runs``: the runs that were needed, by what they made. ``passes``, ``not_run``: by pair, the counts of its pass, or
    why there was none. ``failed``: the error where some pairs met a fault and the others are done. ``not_made``: why
    what only some detectors need was not made. ``left_out``: the reason by benchmark. ``dead_runs``: those that were
    found and marked failed.
    """

    models: Sequence[ModelEntry]
    benchmarks: Sequence[BenchmarkSpec]
    runs: dict[str, str] = field(default_factory=dict)
    passes: dict[str, PassCounts] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: PairsFailedError | None = None
    not_made: dict[str, Exception] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    dead_runs: list[str] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        from audit_pipeline.tables import Pair  # noqa: PLC0415

        return [Pair(spec.name, model.name) for model in self.models for spec in self.benchmarks]


def build_audit_request(model: str, benchmark: str, options: AuditOptions) -> AuditRequest:
    """Build the request for the models and benchmarks that a user named: each a name, a series or family, or a list.

    Raises ConfigError or ModelError where there is none of that name, or its entry cannot be used.
    """
    from audit_pipeline.benchmarks.config import exclude_on_request  # noqa: PLC0415
    from audit_pipeline.models.config import resolve_models  # noqa: PLC0415
    from audit_pipeline.pipeline.whole_configuration import load_configuration  # noqa: PLC0415

    config = load_configuration()
    specs = (
        list(exclude_on_request(config.benchmarks).values()) if benchmark == ALL else config.benchmarks_named(benchmark)
    )
    models = resolve_models(model, config.models)
    return AuditRequest(models, specs, options, config.problems, leave_out=benchmark == ALL)


def build_request_planner(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> Planner:
    """Return the planner of a request; ``models`` are the loaded ones, of which it is known how they would be run."""
    from audit_pipeline.pipeline.plan import Planner  # noqa: PLC0415
    from audit_pipeline.pipeline.registry import STAGES  # noqa: PLC0415
    from audit_pipeline.pipeline.workspace_state import WorkspaceState  # noqa: PLC0415

    entries = {entry.name: entry for entry in request.models}
    specs = {spec.name: spec for spec in request.benchmarks}
    loaded = {model.entry.name: model for model in models}
    return Planner(WorkspaceState(paths, specs, entries, loaded), STAGES)


def build_request_scope(request: AuditRequest) -> Scope:
    """Return the models on the benchmarks of a request, with what its options ask for again."""
    from audit_pipeline.pipeline.registry import OF_PAIRS  # noqa: PLC0415
    from audit_pipeline.pipeline.workspace_state import Scope  # noqa: PLC0415

    options = request.options
    scope = Scope.of_all_pairs([spec.name for spec in request.benchmarks], [entry.name for entry in request.models])
    if options.again:
        return replace(scope, again={stage.name: "it is asked for again" for stage in OF_PAIRS})
    more = [kind for kind in options.kinds if kind != "base"]
    if not more:
        return scope
    return replace(scope, again={"token_statistics": f"more token statistics are asked for: {', '.join(more)}"})


def plan_request(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> AuditPlan:
    """Return everything that a request needs now, except the warehouse and the report."""
    return build_request_planner(request, models, paths).plan(build_request_scope(request))


@dataclass(frozen=True)
class ScoringRequest:
    """The options, and what follows from them: detectors with their settings, and the texts of prefixes by side."""

    options: ScoreOptions
    selection: Selection
    known: Mapping[Side, Sequence[str]]


def build_scoring_request(options: ScoreOptions, scored_file: Path) -> ScoringRequest:
    """The request for the texts of ``scored_file``; raises ConfigError or DataError where options do not fit."""
    from audit_pipeline.detectors.registry import select  # noqa: PLC0415

    selection = select(options.detectors, grid=options.grid, overrides=options.overrides)
    if options.prefix_texts is None and options.prefix_members is None:
        return ScoringRequest(options, selection, known={})
    from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS, read_known_texts  # noqa: PLC0415

    named = ((NON_MEMBERS, options.prefix_texts), (MEMBERS, options.prefix_members))
    files = {side: Path(path) for side, path in named if path is not None}
    needs = {need for detector, _ in selection for need in detector.needs}
    known = read_known_texts(files, needs, scored_file, options.text_column, options.label_column)
    return ScoringRequest(options, selection, known)


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
    from audit_pipeline.models.tokenized_model import apply_overrides  # noqa: PLC0415
    from audit_pipeline.scoring.backends import build_backend_loader  # noqa: PLC0415
    from audit_pipeline.scoring.file import ID, score_file  # noqa: PLC0415
    from audit_pipeline.scoring.needs.provider import UserInputs  # noqa: PLC0415
    from audit_pipeline.scoring.used_endpoints import Endpoints  # noqa: PLC0415

    options = request.options
    entry = apply_overrides(
        model,
        dtype=options.dtype,
        start_token_policy=options.start_token,
        reference_model=options.reference_model,
    )
    # A detector that was named must have what it needs; the others may be left out.
    named = {*(options.detectors or ()), *options.overrides}
    inputs = UserInputs(
        frequencies=None if options.frequencies is None else Path(options.frequencies),
        known=request.known,
        asked_for={need for detector, _ in request.selection if detector.name in named for need in detector.needs},
        proposer=options.proposer,
        seed=options.seed,
        device=options.device,
        notify=listener.how_far,
    )
    endpoints = Endpoints(options.limits.require_usable_for(entry))
    is_named = options.label_column != ScoreOptions.label_column
    tokenized = endpoints.probe_and_load(entry, paths, listener.step)
    return score_file(
        texts,
        out,
        tokenized,
        request.selection,
        paths,
        build_backend_loader(paths, options.device, endpoints, options.chosen_engine, listener.step),
        user_inputs=inputs,
        label_column=texts.include_column(options.label_column, required=is_named),
        id_column=texts.include_column(options.id_column or ID, required=options.id_column is not None),
        overrides=options.overrides,
        listener=listener,
    )
