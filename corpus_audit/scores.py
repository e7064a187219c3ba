"""Scores of texts of your own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from audit_pipeline.pipeline.options import ScoreOptions
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from corpus_audit.audits import AuditFindings, read_audit_findings
from corpus_audit.calls import VERBOSE, progress_on_stderr, takes, warn, without_library_bars

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Score(ScoreOptions):
    """What the function score is asked."""

    texts: Annotated[
        Iterable[str] | PathLike[str],
        "The texts; or a file or folder of them, as a ``pathlib.Path``: .jsonl, .csv, .parquet, .txt and what else "
        "docs/input-files.md lists.",
    ]
    verbose: Annotated[bool, VERBOSE] = field(default=False, kw_only=True)


@takes(Score)
def score(options: Score) -> pa.Table:
    """Score texts by detectors of membership; as the command `corpus-audit score`.

    The model is run once per text. What was run is cached: the same texts again, or another detector, run no model.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    pyarrow.Table
        A row per text, detector and setting, with the columns ``example_index`` (the text's place, from 0),
        ``detector``, ``parameters`` (JSON), ``score`` (higher: more likely a member), ``status`` (``ok``,
        ``not_applicable`` or ``failed``), ``reason``, ``label`` and ``group`` as the file has them, and the text's
        ``sha256``. It holds what the command writes, and fits into memory.

    Raises
    ------
    AuditError
        Where something is wrong that the caller can mend: no such model, detector or column, no usable text.

    Warns
    -----
    UserWarning
        For texts that cannot be used, which have no rows, and for entries of the configuration that are wrong.

    Examples
    --------
    >>> table = score(["It was the best of times."], model="smollm2-135m", detectors=["loss"])
    >>> table.column("status").to_pylist()
    ['ok']
    """
    if isinstance(options.texts, str):
        raise TypeError("texts is a list of texts, or the pathlib.Path of a file; this is one str")
    # Here and below: `import corpus_audit` answers at once.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415
    from audit_pipeline.pipeline.audit_requests import build_scoring_request, score_texts  # noqa: PLC0415
    from audit_pipeline.pipeline.console import print_step, show_progress  # noqa: PLC0415
    from audit_pipeline.pipeline.progress import progress_bar  # noqa: PLC0415
    from audit_pipeline.readers.formats import open_texts, stream_from_texts  # noqa: PLC0415
    from audit_pipeline.scoring.file import GROUP, ProgressListener  # noqa: PLC0415
    from audit_pipeline.store.paths import DataPaths, require_writable  # noqa: PLC0415

    paths, model = DataPaths.from_environment(), str(options.model)
    require_writable(paths.root)
    models = load_models()
    if isinstance(options.texts, PathLike):
        stream = open_texts(Path(options.texts), options.text_column, [GROUP])
    else:
        stream = stream_from_texts(list(options.texts))
    request = build_scoring_request(options, stream.rows.file.path)
    with (
        progress_on_stderr(options.verbose),
        nullcontext() if options.verbose else without_library_bars(),
        tempfile.TemporaryDirectory() as folder,
        progress_bar(model) as show,
    ):
        out = Path(folder, "scores.parquet")
        listener = ProgressListener(print_step, show_progress, show)
        done = score_texts(request, resolve_model(model, models), stream, out, paths, listener)
        table = pq.read_table(out, memory_map=False)
    warn(models.problems)
    warn(f"skipped {row.location}: {row.reason}" for row in done.skipped.first)
    return table


class ArrowTable(Protocol):
    """A table in memory: of pyarrow, or a data frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as Arrow's stream of record batches."""


@dataclass(frozen=True)
class Evaluate(EvaluateOptions):
    """What the function evaluate is asked."""

    scores: Annotated[  # type: ignore[assignment]
        ArrowTable | PathLike[str],
        "The table that score returned, another ``pyarrow.Table`` or data frame, or the path of a file. Its columns "
        "are score and label; group, detector and text are used if present. A table in memory is kept in the folder "
        "that is written.",
    ]


@takes(Evaluate)
def evaluate(options: Evaluate) -> AuditFindings:
    """Write findings and a report from a table of scores; as the command `corpus-audit evaluate`. No model is run.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    AuditFindings
        The findings, the answer in words, and the path of the report.

    Raises
    ------
    AuditError
        Where something is wrong that the caller can mend: a table that cannot be used or holds nothing to compare.

    Warns
    -----
    UserWarning
        For rows that cannot be used, and for all that had to be left out or taken as given.

    Examples
    --------
    >>> texts = Path("texts.jsonl")
    >>> found = evaluate(score(texts, model="smollm2-135m"), texts=texts, headline="min_k_plus_plus")
    >>> found.comparisons.to_pandas()
    """
    # `import corpus_audit` answers at once.
    from audit_pipeline.pipeline.evaluate_file import evaluate_file, keep_scores  # noqa: PLC0415
    from audit_pipeline.store.paths import to_path_segment  # noqa: PLC0415

    given = {each.name: getattr(options, each.name) for each in fields(EvaluateOptions)}
    for name in ("texts", "out"):
        given[name] = None if given[name] is None else Path(given[name])
    if isinstance(options.scores, str | PathLike):
        given["scores"] = Path(options.scores)
    else:
        table = _to_arrow(options.scores)
        given["benchmark"] = options.benchmark or "scores"
        given["out"] = given["out"] or Path(f"{to_path_segment(given['benchmark'])}_findings")
        given["scores"] = given["out"] / "scores.parquet"
        given["scores"] = keep_scores(table, EvaluateOptions(**given))
    done = evaluate_file(EvaluateOptions(**given))
    warn(f"skipped {row.location}: {row.reason}" for row in done.external_scores.skipped)
    warn(done.external_scores.notes)
    return read_audit_findings(
        done.pair.model, [done.pair.model], (done.pair.benchmark,), done.paths.warehouse, done.report
    )


def _to_arrow(scores: ArrowTable) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(scores, pa.Table):
        return scores
    if hasattr(scores, "__arrow_c_stream__"):
        return pa.table(scores)
    raise TypeError(f"scores is a table or the path of a file; this is {type(scores).__name__}")
