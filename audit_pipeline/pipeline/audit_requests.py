"""Requests for audits and for scores of texts, from the command line or from Python, and the outcome of an audit.

Heavy packages are imported inside functions, so that an audit with nothing to do, or with a wrong name, ends at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_pipeline.config.problems import Problem
from audit_pipeline.pipeline.options import AuditOptions, ScoreOptions

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.detectors.detector_inputs import Need
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
    """A request for an audit.

    Attributes:
        models: The model, or the models of a series in order.
        benchmarks: The benchmarks.
        options: The options.
        problems: The problems of the configuration, which the caller prints as warnings.
        leave_out: Whether benchmarks that cannot be built are skipped. Otherwise such a benchmark raises an error.
        terminal: Whether progress bars are drawn.
    """

    models: Sequence[ModelEntry]
    benchmarks: Sequence[BenchmarkSpec]
    options: AuditOptions = field(default_factory=AuditOptions)
    problems: Sequence[Problem] = ()
    leave_out: bool = False
    terminal: bool = True

    @property
    def model(self) -> ModelEntry:
        """Return the model, or the first model of the series."""
        return self.models[0]

    @property
    def subject(self) -> str:
        """Return the model's name, or the number of models and the name of their series."""
        checkpoint = self.model.checkpoint
        if len(self.models) == 1 or checkpoint is None:
            return self.model.name
        return f"{len(self.models)} models of {checkpoint.series}"

    @property
    def completion_message(self) -> str:
        """Return the message for an audit that has nothing to do."""
        names = ", ".join(spec.name for spec in self.benchmarks)
        return f"{self.subject} on {names}: everything is up to date, so nothing is run"

    @property
    def resources(self) -> Mapping[str, Mapping[str, object]]:
        """Return the resource configuration of a Dagster run that runs the model."""
        return {
            "models": {"device": self.options.device, **self.options.chosen_engine.run_config},
            "progress": {"terminal": self.terminal},
        }


@dataclass(frozen=True)
class PassCounts:
    """The number of a pair's texts in the cache, and the number of texts on which the model was run."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """The outcome of an audit.

    Attributes:
        models: The models.
        benchmarks: The benchmarks that were not skipped.
        runs: The ids of the Dagster runs, by product (``stage/partition``), or by ``publish`` for warehouse and report.
        passes: The counts of cached and newly run texts, by pair.
        not_run: The reasons why pairs could not be audited, by pair.
        failed: The error if some pairs failed. The other pairs are done.
        not_made: The errors of optional products that could not be made, by product. Only some detectors need such
            products.
        left_out: The reasons why benchmarks were skipped, by benchmark.
        dead_runs: The ids of the runs that were found dead and marked as failed.
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
        """Return all pairs of the models and the benchmarks."""
        from audit_pipeline.tables import Pair  # noqa: PLC0415

        return [Pair(spec.name, model.name) for model in self.models for spec in self.benchmarks]


def build_audit_request(model: str, benchmark: str, options: AuditOptions) -> AuditRequest:
    """Build the request for the models and benchmarks that a user named.

    Args:
        model: The name of a model or a series, or a list of names.
        benchmark: The name of a benchmark or a family, a list of names, or ``all``.
        options: The options.

    Raises:
        ConfigError: If there is no such benchmark, or if an entry is broken.
        ModelError: If there is no such model.
    """
    from audit_pipeline.benchmarks.config import exclude_on_request  # noqa: PLC0415
    from audit_pipeline.models.config import resolve_models  # noqa: PLC0415
    from audit_pipeline.pipeline.whole_configuration import load_configuration  # noqa: PLC0415

    config = load_configuration()
    if benchmark == ALL:
        specs = list(exclude_on_request(config.benchmarks).values())
    else:
        specs = config.benchmarks_named(benchmark)
    models = resolve_models(model, config.models)
    return AuditRequest(models, specs, options, config.problems, leave_out=benchmark == ALL)


def build_request_planner(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> Planner:
    """Return the planner of a request.

    Args:
        request: The request.
        models: The loaded models. The fingerprints of other models are unknown to the planner.
        paths: The data folder.
    """
    from audit_pipeline.pipeline.plan import Planner  # noqa: PLC0415
    from audit_pipeline.pipeline.registry import STAGES  # noqa: PLC0415
    from audit_pipeline.pipeline.workspace_state import WorkspaceState  # noqa: PLC0415

    entries = {entry.name: entry for entry in request.models}
    specs = {spec.name: spec for spec in request.benchmarks}
    loaded = {model.entry.name: model for model in models}
    return Planner(WorkspaceState(paths, specs, entries, loaded), STAGES)


def build_request_scope(request: AuditRequest) -> Scope:
    """Return the scope of a request: its pairs, and the stages that its options repeat."""
    from audit_pipeline.pipeline.registry import PAIR_STAGES  # noqa: PLC0415
    from audit_pipeline.pipeline.workspace_state import Scope  # noqa: PLC0415

    options = request.options
    benchmark_names = [spec.name for spec in request.benchmarks]
    scope = Scope.of_all_pairs(benchmark_names, (entry.name for entry in request.models))
    if options.again:
        return replace(
            scope, again=dict.fromkeys([stage.name for stage in PAIR_STAGES], "the audit was requested again")
        )
    optional_kinds = [kind for kind in options.kinds if kind != "base"]
    if not optional_kinds:
        return scope
    reason = f"more kinds of token statistics were requested: {', '.join(optional_kinds)}"
    return replace(scope, again={"token_statistics": reason})


def plan_request(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> AuditPlan:
    """Return the plan of a request. The warehouse and the report are not part of it."""
    return build_request_planner(request, models, paths).plan(build_request_scope(request))


@dataclass(frozen=True)
class ScoringRequest:
    """A request to score texts.

    Attributes:
        options: The options.
        selection: The detectors with their settings.
        known: The texts of known members and known non-members that prefixes are built from, by side.
    """

    options: ScoreOptions
    selection: Selection
    known: Mapping[Side, Sequence[str]]


def build_scoring_request(options: ScoreOptions, scored_file: Path) -> ScoringRequest:
    """Build the request to score the texts of a file.

    Args:
        options: The options.
        scored_file: The file with the texts to score. The files of prefix texts must be other files.

    Raises:
        ConfigError: If the options are invalid.
        DataError: If a file of prefix texts is unusable.
    """
    from audit_pipeline.detectors.registry import select_detectors  # noqa: PLC0415

    selection = select_detectors(options.detectors, grid=options.grid, overrides=options.overrides)
    if options.prefix_texts is None and options.prefix_members is None:
        return ScoringRequest(options, selection, known={})
    from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS, read_known_texts  # noqa: PLC0415

    files: dict[Side, Path] = {}
    if options.prefix_texts is not None:
        files[NON_MEMBERS] = Path(options.prefix_texts)
    if options.prefix_members is not None:
        files[MEMBERS] = Path(options.prefix_members)
    needs: set[Need[Any]] = set()
    for detector, _ in selection:
        needs.update(detector.needs)
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
    """Score texts and write the table to a file (:func:`audit_pipeline.scoring.file.score_file`).

    Args:
        request: The request.
        model: The entry of the model.
        texts: The texts.
        out: The file of the table.
        paths: The data folder.
        listener: Receives progress and messages.

    Raises:
        AuditError: If an option, the model or a text is unusable.
    """
    from audit_pipeline.models.chat_template import build_renderer  # noqa: PLC0415
    from audit_pipeline.models.tokenized_model import apply_overrides  # noqa: PLC0415
    from audit_pipeline.readers.conversations import ConversationStream  # noqa: PLC0415
    from audit_pipeline.scoring.backends import Endpoints, build_backend_loader  # noqa: PLC0415
    from audit_pipeline.scoring.file import ID, score_file  # noqa: PLC0415
    from audit_pipeline.scoring.needs.provider import UserInputs  # noqa: PLC0415

    options = request.options
    entry = apply_overrides(
        model,
        dtype=options.dtype,
        start_token_policy=options.start_token,
        reference_model=options.reference_model,
    )
    # A detector that the user named must have what it needs. Other detectors can be skipped.
    named_detectors = {*(options.detectors or ()), *options.overrides}
    named_needs: set[Need[Any]] = set()
    for detector, _ in request.selection:
        if detector.name in named_detectors:
            named_needs.update(detector.needs)
    frequencies = None
    if options.frequencies is not None:
        frequencies = Path(options.frequencies)
    inputs = UserInputs(
        frequencies=frequencies,
        known=request.known,
        asked_for=named_needs,
        seed=options.seed,
    )
    endpoints = Endpoints(options.limits.require_usable_for(entry))
    is_label_required = options.label_column != ScoreOptions.label_column
    tokenized = endpoints.probe_and_load(entry, paths, listener.step)
    if isinstance(texts, ConversationStream):
        render = build_renderer(tokenized)
        if render is None:
            listener.step(f"{entry.name} has no chat template, so the messages stand one below the other")
        else:
            texts = texts.render_with(render)
    return score_file(
        texts,
        out,
        tokenized,
        request.selection,
        paths,
        build_backend_loader(paths, options.device, endpoints, options.chosen_engine, listener.step),
        user_inputs=inputs,
        label_column=texts.include_column(options.label_column, required=is_label_required),
        id_column=texts.include_column(options.id_column or ID, required=options.id_column is not None),
        overrides=options.overrides,
        listener=listener,
    )
