"""Audits, and reading what they found."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.options import BENCHMARK, MODEL, AuditOptions
from corpus_audit.calls import VERBOSE, progress_on_stderr, takes, warn, without_library_bars

if TYPE_CHECKING:
    import dagster as dg
    import duckdb
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class AuditFindings:
    """What an audit of a model, or of all of a series, found.

    Attributes
    ----------
    model : str
        The model's name, as in the warehouse, or that of the series.
    benchmarks : tuple of str
        The benchmarks that were audited.
    findings : pyarrow.Table
        The rows of the view ``leaderboard``: a row per benchmark and detector, with AUROC, its interval, the blind
        control and the claim level.
    answers : list of dict
        What the report's first screen says of each benchmark: ``headline``, ``explanation``, ``claim_level``, and the
        rest of the report's JSON copy.
    report : pathlib.Path
        The report, an HTML page.
    comparisons : pyarrow.Table
        A row per benchmark and two detectors that were compared on the same texts: the difference of their AUROCs, its
        interval and p-value, which is not corrected for the number of pairs.
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


@dataclass(frozen=True, kw_only=True)
class Audit(AuditOptions):
    """What the function audit is asked."""

    model: Annotated[str, MODEL]
    benchmark: Annotated[str, BENCHMARK]
    verbose: Annotated[bool, VERBOSE] = False


@takes(Audit)
def audit(options: Audit) -> AuditFindings:
    """Audit a model, or a series, on a benchmark, a family of them, or all; as the command `corpus-audit audit`.

    The audit runs through Dagster, in this process. What is done is not done again; what is cached is not run again.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    AuditFindings
        The findings, the answers in words, and the path of the report.

    Raises
    ------
    AuditError
        Where something is wrong that the caller can mend; where some pairs met a fault, after the others are done.

    Warns
    -----
    UserWarning
        For pairs that could not be run, benchmarks that are left out, and wrong entries of the configuration.
    """
    # Here and below: `import corpus_audit` answers at once.
    from audit_pipeline.pipeline.audit_requests import build_audit_request  # noqa: PLC0415
    from audit_pipeline.pipeline.console import print_step  # noqa: PLC0415
    from audit_pipeline.pipeline.run_audit import run_audit  # noqa: PLC0415
    from audit_pipeline.store.paths import DataPaths  # noqa: PLC0415

    request = build_audit_request(options.model, options.benchmark, options)
    with progress_on_stderr(options.verbose), nullcontext() if options.verbose else without_library_bars():
        outcome = run_audit(request, _load_definitions, print_step)
    warn(request.problems)
    warn(f"{pair} could not run: {reason}" for pair, reason in outcome.not_run.items())
    warn(f"{name} is left out: {reason}" for name, reason in outcome.left_out.items())
    if outcome.failed is not None:
        raise outcome.failed
    paths, names = DataPaths.from_environment(), tuple(spec.name for spec in outcome.benchmarks)
    models = [entry.name for entry in request.models]
    shown = request.model.name if len(models) == 1 else options.model
    return read_audit_findings(shown, models, names, paths.warehouse, paths.report)


def read_audit_findings(
    name: str, models: Sequence[str], benchmarks: tuple[str, ...], warehouse_file: Path, report_file: Path
) -> AuditFindings:
    """Return what a warehouse holds of models on benchmarks; ``name`` is what they are called together."""
    import pyarrow as pa  # noqa: PLC0415

    from audit_pipeline.report.page import read_conclusions  # noqa: PLC0415
    from audit_pipeline.warehouse.query import read_comparisons, read_latest_findings  # noqa: PLC0415

    findings, comparisons, answers = [], [], []
    for model in models:
        findings.append(read_latest_findings(warehouse_file, model, benchmarks))
        of_model = read_conclusions(warehouse_file, model).answers
        answers += [of_model[benchmark] for benchmark in benchmarks if benchmark in of_model]
        for benchmark in benchmarks:
            compared = read_comparisons(warehouse_file, model, benchmark, None)
            names = {"model": model, "benchmark": benchmark}
            columns = {key: pa.array([value] * len(compared), pa.string()) for key, value in names.items()}
            comparisons.append(pa.table({**columns, **dict(zip(compared.column_names, compared.columns, strict=True))}))
    return AuditFindings(
        name, benchmarks, pa.concat_tables(findings), answers, report_file, pa.concat_tables(comparisons)
    )


def warehouse(folder: str | PathLike[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection to all results, for reading.

    It keeps seeing the warehouse that it opened, also if audits write new results. Call again to see those.
    It reads the warehouse alone: no other file, no data frame of the caller's, no setting. docs/sql.md has queries.

    Parameters
    ----------
    folder : str or os.PathLike, optional
        The folder whose warehouse is read: one that ``evaluate`` wrote, a workspace, or a data folder. Default: the
        data folder of the commands.

    Returns
    -------
    duckdb.DuckDBPyConnection
        To be closed by the caller (``with ca.warehouse() as connection: …``), or left to the end of the process.

    Raises
    ------
    AuditError
        If nothing was audited yet, or the warehouse cannot be read.

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
        raise DataError(f"{root} is not a folder: name one that holds a warehouse (audit.duckdb)")
    of_workspace = DataPaths.of_workspace(root).warehouse
    return open_read_only(of_workspace if of_workspace.exists() else DataPaths(root).warehouse)


def report(*, show: bool = False, text: bool | None = None, verbose: bool = False) -> Path:
    """Rebuild the warehouse and the report; as the command `corpus-audit report`.

    Parameters
    ----------
    show : bool, default False
        Open the report in a browser.
    text : bool, optional
        Whether excerpts of audited texts, at most 50 words each, are quoted. Default: yes, unless CORPUS_AUDIT_NO_TEXT
        is set.
    verbose : bool, default False
        Print steps and progress on standard error.

    Returns
    -------
    pathlib.Path
        The report, an HTML page.

    Raises
    ------
    AuditError
        Where the data folder cannot be written.
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
