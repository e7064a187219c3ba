"""Scores of texts of your own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from audit_pipeline.pipeline.options import ScoreOptions
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from corpus_audit.audits import AuditFindings
from corpus_audit.calls import VERBOSE, progress_on_stderr, takes, warn

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
    from audit_pipeline.pipeline.console import print_step, show_progress  # noqa: PLC0415
    from audit_pipeline.pipeline.progress import progress_bar  # noqa: PLC0415
    from audit_pipeline.pipeline.requests import build_scoring_request, score_texts  # noqa: PLC0415
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
    with progress_on_stderr(options.verbose), tempfile.TemporaryDirectory() as folder, progress_bar(model) as show:
        out = Path(folder, "scores.parquet")
        listener = ProgressListener(print_step, show_progress, show)
        done = score_texts(request, resolve_model(model, models), stream, out, paths, listener)
        table = pq.read_table(out, memory_map=False)
    warn(models.problems)
    warn(f"skipped {row.location}: {row.reason}" for row in done.skipped.first)
    return table


@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> AuditFindings:
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
    >>> texts, table = Path("texts.jsonl"), Path("scores.parquet")
    >>> pyarrow.parquet.write_table(score(texts, model="smollm2-135m"), table)
    >>> found = evaluate(table, texts=texts, headline="min_k_plus_plus")
    """
    # `import corpus_audit` answers at once.
    from audit_pipeline.pipeline.evaluate_file import evaluate_file  # noqa: PLC0415
    from audit_pipeline.report.page import read_conclusions  # noqa: PLC0415
    from audit_pipeline.warehouse.query import read_latest_findings  # noqa: PLC0415

    texts, out = (None if path is None else Path(path) for path in (options.texts, options.out))
    done = evaluate_file(replace(options, scores=Path(options.scores), texts=texts, out=out))
    warn(f"skipped {row.location}: {row.reason}" for row in done.given.skipped)
    warn(done.given.notes)
    model, names, warehouse = done.pair.model, (done.pair.benchmark,), done.paths.warehouse
    answers = read_conclusions(warehouse, model).answers
    return AuditFindings(
        model,
        names,
        read_latest_findings(warehouse, model, names),
        [answers[name] for name in names if name in answers],
        done.report,
    )
