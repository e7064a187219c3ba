"""The functions audit, report and warehouse, and the progress and warnings of all public functions."""

from __future__ import annotations

import warnings
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.console import end_step, suppress_progress
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.token_statistics.engine_choice import EngineName

if TYPE_CHECKING:
    import dagster as dg
    import duckdb
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class AuditFindings:
    """The findings of an audit of a model or a series.

    Attributes
    ----------
    model : str
        The name of the model, as in the warehouse, or of the series.
    benchmarks : tuple of str
        The benchmarks that were audited.
    findings : pyarrow.Table
        The rows of the view ``leaderboard``, one per benchmark and detector. The columns include the AUROC, its
        interval, the blind control and the claim level.
    answers : list of dict
        The answers on the first screen of the report, one per benchmark. The keys are the same as in the report's JSON
        copy, such as ``headline``, ``explanation`` and ``claim_level``.
    report : pathlib.Path
        The report, an HTML page.
    comparisons : pyarrow.Table
        One row per benchmark and pair of detectors, compared on the same texts. The columns include the difference of
        the two AUROCs with its interval and p-value. The p-values are not corrected for the number of pairs.
    """

    model: str
    benchmarks: tuple[str, ...]
    findings: pa.Table = field(repr=False)
    answers: Sequence[Mapping[str, Any]] = field(repr=False)
    report: Path
    comparisons: pa.Table = field(repr=False)

    def __str__(self) -> str:
        """Return the answers, one line per benchmark."""
        return "\n".join(f"{answer['benchmark']}: {answer['headline']}" for answer in self.answers)


def audit(
    *,
    model: str,
    benchmark: str,
    refresh: bool = False,
    again: bool = False,
    kinds: Sequence[str] = ("base",),
    logits_budget_gb: float | None = None,
    device: str | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    engine: EngineName | None = None,
    workers: int | None = None,
    verbose: bool = False,
) -> AuditFindings:
    """Audit a model, or a series of models, on one or more benchmarks, as the command `corpus-audit audit` does.

    Dagster runs the audit in this process. Finished audits are not repeated. The model is not run again on texts that
    are in the cache.

    Parameters
    ----------
    model : str
        The model: a name in config/models.yaml, a hub id, or a path.
    benchmark : str
        A benchmark (release_notes_64), a family of benchmarks (release_notes), several names (a,b), or all.
    refresh : bool, default False
        Fetch the sources again, even if their documents are stored.
    again : bool, default False
        Repeat finished audits. The model is not run again on texts that are in the cache.
    kinds : Sequence[str], default ('base',)
        Kinds of token statistics to cache from each pass: base (always cached), topk (the likeliest tokens), logits
        (all logits). Other statistics can later be computed from cached logits without a pass.
    logits_budget_gb : float, optional
        Maximum size of the logits of a benchmark, in gigabytes. If they are larger, the audit fails before the model is
        run. Default: 21.5.
    device : str, optional
        Device of the model, "cpu" or "cuda". Default: cuda if it is available.
    max_tokens : int, optional
        Maximum number of tokens sent to models on servers, including a reference model. At the limit, the audit stops
        and keeps finished work. Default: no limit.
    max_cost : float, optional
        Maximum cost of the tokens sent to servers, in the currency of the prices (price_per_million) in the models'
        entries. Default: no limit.
    engine : {"in_process", "ray"}, optional
        Engine of the model: this process, or workers of a Ray cluster (docs/ray.md). Default: in_process.
    workers : int, optional
        Number of Ray workers. Default: one per GPU, or one per node if the cluster has no GPU.
    verbose : bool, default False
        Print steps and progress on standard error.

    Returns
    -------
    AuditFindings
        The findings, the answers in words, and the path of the report.

    Raises
    ------
    AuditError
        If you can correct the cause. If some pairs failed, the error is raised after the other pairs are done.

    Warns
    -----
    UserWarning
        For pairs that could not be audited, skipped benchmarks, and wrong entries of the configuration.
    """
    options = AuditOptions(
        refresh=refresh,
        again=again,
        kinds=kinds,
        logits_budget_gb=logits_budget_gb,
        device=device,
        max_tokens=max_tokens,
        max_cost=max_cost,
        engine=engine,
        workers=workers,
    )
    # Imports are inside the functions, so that `import corpus_audit` is fast.
    from audit_pipeline.pipeline.audit_requests import build_audit_request  # noqa: PLC0415
    from audit_pipeline.pipeline.console import print_step  # noqa: PLC0415
    from audit_pipeline.pipeline.run_audit import run_audit  # noqa: PLC0415
    from audit_pipeline.store.paths import DataPaths  # noqa: PLC0415

    request = build_audit_request(model, benchmark, options)
    with progress_on_stderr(verbose), nullcontext() if verbose else without_library_bars():
        outcome = run_audit(request, _load_definitions, print_step)
    warn(request.problems)
    warn(f"{pair} could not be audited: {reason}" for pair, reason in outcome.not_run.items())
    warn(f"the benchmark {name} is skipped: {reason}" for name, reason in outcome.left_out.items())
    if outcome.failed is not None:
        raise outcome.failed
    paths = DataPaths.from_environment()
    benchmarks = tuple(spec.name for spec in outcome.benchmarks)
    models = [entry.name for entry in request.models]
    name = request.model.name if len(models) == 1 else model
    return read_audit_findings(name, models, benchmarks, paths.warehouse, paths.report)


def read_audit_findings(
    name: str, models: Sequence[str], benchmarks: tuple[str, ...], warehouse_file: Path, report_file: Path
) -> AuditFindings:
    """Read the findings of models on benchmarks from a warehouse.

    Parameters
    ----------
    name : str
        The name of the model or of the series.
    models : Sequence[str]
        The models: one, or the checkpoints of the series.
    benchmarks : tuple[str, ...]
        The benchmarks.
    warehouse_file : Path
        The warehouse.
    report_file : Path
        The main page of the report.
    """
    import pyarrow as pa  # noqa: PLC0415

    from audit_pipeline.report.page_data import read_conclusions  # noqa: PLC0415
    from audit_pipeline.warehouse.query import read_comparisons, read_latest_findings  # noqa: PLC0415

    findings: list[pa.Table] = []
    comparisons: list[pa.Table] = []
    answers: list[Mapping[str, Any]] = []
    for model in models:
        findings.append(read_latest_findings(warehouse_file, model, benchmarks))
        answers_by_benchmark = read_conclusions(warehouse_file, model).answers
        for benchmark in benchmarks:
            if benchmark in answers_by_benchmark:
                answers.append(answers_by_benchmark[benchmark])
            compared = read_comparisons(warehouse_file, model, benchmark, None)
            columns = {
                "model": pa.array([model] * len(compared), pa.string()),
                "benchmark": pa.array([benchmark] * len(compared), pa.string()),
            }
            for column in compared.column_names:
                columns[column] = compared[column]
            comparisons.append(pa.table(columns))
    return AuditFindings(
        name, benchmarks, pa.concat_tables(findings), answers, report_file, pa.concat_tables(comparisons)
    )


def warehouse(folder: str | PathLike[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection to all results, for reading.

    The connection keeps the state of the warehouse at the time of the call. Call the function again to see newer
    results. A query cannot read other files or data frames of the caller, and cannot change settings. docs/sql.md has
    example queries.

    Parameters
    ----------
    folder : str or os.PathLike, optional
        A folder with a warehouse: the folder that ``evaluate`` wrote, a workspace, or a data folder. Default: the data
        folder of the commands.

    Returns
    -------
    duckdb.DuckDBPyConnection
        A connection. Close it, as in ``with ca.warehouse() as connection: …``, or leave it open until the process ends.

    Raises
    ------
    AuditError
        If the folder has no warehouse yet, or if the warehouse cannot be read.

    Examples
    --------
    >>> warehouse().sql("SELECT model, benchmark, detector, auroc FROM leaderboard").df()
    >>> warehouse("scores_findings").sql("FROM current_group_tests").df()
    """
    from audit_pipeline.store.paths import DataPaths  # noqa: PLC0415
    from audit_pipeline.warehouse.query import open_read_only  # noqa: PLC0415

    if folder is None:
        return open_read_only(DataPaths.from_environment().warehouse)
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Name a folder with a warehouse (audit.duckdb).")
    file = DataPaths.of_workspace(root).warehouse
    if not file.exists():
        file = DataPaths(root).warehouse
    return open_read_only(file)


def report(*, show: bool = False, text: bool | None = None, verbose: bool = False) -> Path:
    """Rebuild the warehouse and the report, as the command `corpus-audit report` does.

    Parameters
    ----------
    show : bool, default False
        Open the report in a browser.
    text : bool, optional
        Quote excerpts of audited texts, of at most 50 words each. Default: yes, unless CORPUS_AUDIT_NO_TEXT is set.
    verbose : bool, default False
        Print steps and progress on standard error.

    Returns
    -------
    pathlib.Path
        The report, an HTML page.

    Raises
    ------
    AuditError
        If the data folder cannot be written.
    """
    from audit_pipeline.store.paths import (  # noqa: PLC0415
        DataPaths,
        is_text_output_allowed,
        require_writable,
    )

    paths = DataPaths.from_environment()
    require_writable(paths.root)
    with progress_on_stderr(verbose):
        definitions = _load_definitions()
        from audit_pipeline.pipeline.console import print_step  # noqa: PLC0415
        from audit_pipeline.pipeline.dagster.audit import publish  # noqa: PLC0415

        publish(definitions, paths, print_step, include_text=is_text_output_allowed() if text is None else text)
    if show:
        webbrowser.open(paths.report.as_uri())
    return paths.report


def _load_definitions() -> dg.Definitions:
    from audit_pipeline.definitions import defs  # noqa: PLC0415

    return defs()


@contextmanager
def progress_on_stderr(verbose: bool) -> Iterator[None]:
    """Print steps and progress on standard error within the block, or nothing if not ``verbose``."""
    if verbose:
        try:
            yield
        finally:
            end_step()
    else:
        with suppress_progress():
            yield


@contextmanager
def without_library_bars() -> Iterator[None]:
    """Keep the progress bars of transformers and huggingface_hub off standard error within the block."""
    # Only functions that run models need this block. They import both packages anyway.
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    had_bars = transformers_logging.is_progress_bar_enabled()
    hub_had_bars = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            transformers_logging.enable_progress_bar()
        if hub_had_bars:
            enable_progress_bars()


def warn(messages: Iterable[object]) -> None:
    """Issue one UserWarning per message. The warnings point to the line that called the public function."""
    for message in messages:
        # Level 1 is this function, 2 the public function, 3 its caller.
        warnings.warn(str(message), UserWarning, stacklevel=3)
