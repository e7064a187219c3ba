"""Scoring a user's own file without Dagster: texts in, one long table of scores out.

What belongs here: the file's rows, the model's pass over them, the output table. What does not: the pass and its cache
(token_statistics/), detectors (detectors/), the command's options (cli/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.contracts import MEMBER, NON_MEMBER
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.registry import Overrides, is_default
from audit_pipeline.errors import ModelError
from audit_pipeline.evaluation.intervals import Interval, metric_intervals
from audit_pipeline.evaluation.metrics import metrics, undefined
from audit_pipeline.fetch.read import open_texts
from audit_pipeline.fetch.rows import Skipped, TextRow
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.neighbours import own_topk
from audit_pipeline.neighbours.masked_model import MaskedModelProposer
from audit_pipeline.neighbours.proposer import Proposer, Remembering
from audit_pipeline.passes import Passes, PassesSummary, Selection, costs, run_passes
from audit_pipeline.paths import DataPaths
from audit_pipeline.stages import passes_of, score_from_cache
from audit_pipeline.tables import require_output, write_table
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import Progress


@dataclass(frozen=True)
class FileScores:
    """The long table that was written, the rows left out, and what running the model came to.

    ``labels`` are the rows' labels (1, 0 or None), by position in the file, where the file has the label column.
    """

    table: pa.Table
    skipped: Sequence[Skipped]
    labels: dict[int, int | None] | None
    summary: PassesSummary


@dataclass(frozen=True)
class Beside:
    """What the user gives beside the texts: a token-frequency table, and how neighbours are proposed (``own-topk``, or
    a masked language model's name, hub id or path)."""

    frequencies: Path | None = None
    proposer: str = own_topk.NAME
    seed: int = 0
    device: str | None = None


def score_file(
    file: Path,
    out: Path,
    model: TokenizedModel,
    selection: Selection,
    paths: DataPaths,
    forward_of: Callable[[TokenizedModel], ForwardPass],
    *,
    beside: Beside | None = None,
    text_column: str | None = None,
    label_column: str = "label",
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[str], None] = lambda what: None,
) -> FileScores:
    """Score every readable text of ``file`` and write ``out`` (Parquet).

    Columns: example_index (int64, the row's 0-based position in the file), detector, parameters (canonical JSON),
    score (float64), status, reason. ``forward_of`` loads a model, where something of it is not in the cache;
    ``on_step`` is told beforehand what more than a pass over the texts will cost. Raises DataError where the file holds
    no readable text; rows that cannot be read are returned in ``skipped`` and have no rows in the table.
    """
    require_output(out, file)
    stream = open_texts(file, text_column, [label_column])
    rows = list(stream)
    skipped = stream.skipped.first
    texts = [row.text for row in rows]
    passes = _passes(selection, model, paths, beside or Beside())
    for words in costs(model, texts, paths, passes):
        on_step(words)
    loaded = _OneAtATime(forward_of)
    reference = passes.reference
    summary = run_passes(
        model,
        texts,
        paths,
        partial(loaded, model),
        passes,
        forward_reference=partial(loaded, reference) if reference is not None else None,
        on_progress=on_progress,
    )
    scored = score_from_cache(model, [str(row.index) for row in rows], texts, paths, selection, passes)
    index = pc.cast(scored.column("example_id"), pa.int64())
    table = scored.drop_columns("example_id").add_column(0, "example_index", index)
    write_table(out, table)
    return FileScores(table, skipped, _labels(rows, label_column), summary)


class _OneAtATime:
    """Loads a model when it is first wanted; the one before it goes."""

    def __init__(self, load: Callable[[TokenizedModel], ForwardPass]) -> None:
        self._load = load
        self._fingerprint: str | None = None
        self._ready: ForwardPass | None = None

    def __call__(self, model: TokenizedModel) -> ForwardPass:
        if self._ready is None or self._fingerprint != model.identity.model_fingerprint:
            self._ready = None
            self._ready = self._load(model)
            self._fingerprint = model.identity.model_fingerprint
        return self._ready


def _passes(selection: Selection, model: TokenizedModel, paths: DataPaths, beside: Beside) -> Passes:
    """The passes of ``selection``, with the proposer of neighbours where a detector wants some."""
    passes = passes_of(selection, model, paths, frequencies=beside.frequencies)
    if model.entry.reference_model is not None and Need.REFERENCE_MODEL in passes.absent:
        # The user, or the entry, has named one: a typing error must not pass for a detector that does not apply.
        raise ModelError(f"the reference model: {passes.absent[Need.REFERENCE_MODEL]}")
    if not passes.n_neighbours:
        return passes
    proposer: Proposer
    if beside.proposer == own_topk.NAME:
        proposer = own_topk.OwnTopkProposer(model, paths)
    else:
        entry = resolve_model(beside.proposer, load_models())
        proposer = MaskedModelProposer(entry, paths, device=beside.device)
    return replace(passes, proposer=Remembering(proposer), seed=beside.seed)


@dataclass(frozen=True)
class Separation:
    """How well one detector setting separates a file's labelled texts, each text a group of its own."""

    detector: str
    parameters: str
    auroc: float
    interval: Interval
    n_members: int
    n_nonmembers: int


def separation(scores: FileScores, overrides: Overrides | None = None) -> list[Separation]:
    """AUROC of every detector's default setting on the labelled texts; nothing where one side has no score.

    ``overrides`` are the parameters that the user has set.
    """
    if scores.labels is None:
        return []
    columns: dict[tuple[str, str], list[tuple[float, int, str]]] = {}
    for row in scores.table.to_pylist():
        label = scores.labels[row["example_index"]]
        if row["status"] == "ok" and label is not None and is_default(row["detector"], row["parameters"], overrides):
            entry = (row["score"], label, str(row["example_index"]))
            columns.setdefault((row["detector"], row["parameters"]), []).append(entry)
    found = []
    for (detector, parameters), entries in columns.items():
        values, labels, groups = (list(column) for column in zip(*entries, strict=True))
        if undefined(labels) is not None:
            continue
        interval = metric_intervals(values, labels, groups)["auroc"]
        members = sum(labels)
        auroc = metrics(values, labels)["auroc"]
        found.append(Separation(detector, parameters, auroc, interval, members, len(labels) - members))
    return found


def _labels(rows: Sequence[TextRow], column: str) -> dict[int, int | None] | None:
    """The labels 1 and 0, however the file spells them; anything else is unknown. None without the column."""
    if not any(column in row.values for row in rows):
        return None
    known = {"1": MEMBER, "1.0": MEMBER, "true": MEMBER, "0": NON_MEMBER, "0.0": NON_MEMBER, "false": NON_MEMBER}
    return {row.index: known.get(str(row.values.get(column)).strip().lower()) for row in rows}
