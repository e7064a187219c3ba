"""The scoring of a user's file: texts are read and a table of scores is written, in bounded memory.

A chunk of texts is run through the model and scored before the next chunk is read. Chunks are large, so that enough
texts of similar length are available for batches with little padding. They are small enough that their statistics take
only a few hundred megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from audit_pipeline.detectors.registry import Overrides, is_default
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import ConversationStream, ScoredPart
from audit_pipeline.readers.labels import LabelReader
from audit_pipeline.readers.row_stream import RowCount, TextStream
from audit_pipeline.readers.text_rows import SkippedRows, TextRow, read_own_id
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.session import PassesSummary, Selection, Session, Statistics, join_by_requirement
from audit_pipeline.statistics.intervals import Interval, measure_auroc_of_scores
from audit_pipeline.statistics.roc import Floats, explain_undefined
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, SCORES, text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.run import Progress, RunSummary, join_summaries


@dataclass(frozen=True)
class ChunkLimits:
    """The maximum number of texts and of characters per chunk. A longer text is a chunk by itself."""

    texts: int = 8192
    characters: int = 4_000_000


def split_texts_into_chunks(texts: Iterable[TextRow], bounds: ChunkLimits) -> Iterator[list[TextRow]]:
    """Yield the texts in order, in chunks within the bounds."""
    chunk: list[TextRow] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) >= bounds.texts or characters + len(text.text) > bounds.characters):
            yield chunk
            chunk = []
            characters = 0
        chunk.append(text)
        characters += len(text.text)
    if chunk:
        yield chunk


Setting = tuple[str, str]

GROUP = "group"
"""The name of the column with the group of a text, such as its book, patent or article."""


ID = "id"
"""The default name of the column with the user's text ids."""


def read_group(row: TextRow) -> str | None:
    """Return the group in a row, or None if the row has no group."""
    group = row.values.get(GROUP)
    return None if group is None or group == "" else str(group)


@dataclass(frozen=True)
class Separation:
    """The AUROC of a detector setting on a file's labelled texts, with an interval over groups of texts."""

    detector: str
    parameters: str
    auroc: float
    interval: Interval
    n_members: int
    n_nonmembers: int


@dataclass
class LabelledScores:
    """The labels, groups and default scores of all texts with a known label.

    Attributes:
        settings: The detector settings, in the order of a text's rows in the table of scores.
        label_column: Name of the label column.
        overrides: The parameters that the user has set. They replace the defaults of the detectors.
        labels: The reader of labels, which counts known and unknown labels.
        has_column: True if the file has a label column.
    """

    settings: Sequence[Setting]
    label_column: str
    overrides: Overrides | None = None
    labels: LabelReader = field(default_factory=LabelReader)
    has_column: bool = False

    def __post_init__(self) -> None:
        """Reserve a column for each default setting."""
        self._scores: dict[int, array[float]] = {}
        for position, setting in enumerate(self.settings):
            if is_default(*setting, self.overrides):
                self._scores[position] = array("d")
        self._labels = array("b")
        # The groups are numbered, because numbers take less memory than names.
        self._groups = array("q")
        self._group_numbers: dict[str, int] = {}

    def add(self, texts: Sequence[TextRow], scores: Floats) -> list[int | None]:
        """Add texts and return their labels.

        Args:
            texts: The rows of the file.
            scores: Array of shape (n_texts, n_settings). A missing score is NaN.
        """
        labels: list[int | None] = []
        for text, text_scores in zip(texts, scores, strict=True):
            label: int | None = None
            if self.label_column in text.values:
                self.has_column = True
                label = self.labels.read(text.values[self.label_column])
            labels.append(label)
            if label is None:
                continue
            self._labels.append(label)
            self._groups.append(self._number_group(text))
            for position, column in self._scores.items():
                column.append(text_scores[position])
        return labels

    def _number_group(self, text: TextRow) -> int:
        """Return the number of a text's group. A text without a group has a negative number of its own."""
        name = read_group(text)
        if name is None:
            return -1 - text.index
        return self._group_numbers.setdefault(name, len(self._group_numbers))

    @property
    def problem(self) -> str | None:
        """Return the reason why no AUROC can be computed from the file's labels.

        None means that an AUROC can be computed, or that the file has no labels.
        """
        n_members = self.labels.known[MEMBER]
        n_nonmembers = self.labels.known[NON_MEMBER]
        if not self.has_column or (n_members and n_nonmembers):
            return None
        labelled = "no member and no non-member"
        if n_members:
            labelled = f"only {n_members:,} member{'' if n_members == 1 else 's'}"
        elif n_nonmembers:
            labelled = f"only {n_nonmembers:,} non-member{'' if n_nonmembers == 1 else 's'}"
        return f"the AUROC is not computed, because it requires members and non-members, but the labels name {labelled}"

    def compute_separations(self) -> list[Separation]:
        """Compute the AUROC of each detector's default setting. Settings without scores on both sides are omitted."""
        separations = map(self._compute_separation, self._scores)
        return [separation for separation in separations if separation is not None]

    def _compute_separation(self, position: int) -> Separation | None:
        all_scores = np.asarray(self._scores[position])
        is_scored = ~np.isnan(all_scores)
        scores = all_scores[is_scored]
        labels = np.asarray(self._labels)[is_scored]
        if explain_undefined(labels) is not None:
            return None
        n_members = int(labels.sum())
        groups = np.asarray(self._groups)[is_scored]
        auroc = measure_auroc_of_scores(scores, labels, groups)
        detector, parameters = self.settings[position]
        return Separation(detector, parameters, auroc.value, auroc.interval, n_members, len(labels) - n_members)


SCHEMA = pa.schema(
    [
        pa.field("example_index", pa.int64()),
        *(SCORES.field(name) for name in ("detector", "parameters", "score", "status", "reason")),
        pa.field("label", pa.int8()),
        pa.field(GROUP, pa.string()),
        pa.field("sha256", pa.string()),
        pa.field(ID, pa.string()),
        pa.field("scored_part", pa.string()),
    ]
)
"""The columns of the table.

- example_index: the 0-based position of the row in the file.
- detector, parameters (canonical JSON), score, status and reason.
- label (1, 0 or null) and group of the file, and the sha256 of the text. `corpus-audit evaluate` reads them. For a
  conversation, this is the text of its messages without a chat template.
- id: the user's id of the text, or null.
- scored_part: the scored part of conversations, or null for plain texts.
"""

# Scores as Python objects take twenty times the memory of the table, so the table is built in parts.
_SCORES_PER_PART = 200_000


@dataclass(frozen=True)
class FileScores:
    """The result of scoring a file.

    Attributes:
        written: Number of written scores.
        skipped: The unusable rows of the file.
        summary: The summary of all passes.
        labelled: The scores of labelled texts.
        unscored: The detectors without any score. The value is the reason why the first text has no score.
    """

    written: int
    skipped: SkippedRows
    summary: PassesSummary
    labelled: LabelledScores
    unscored: Mapping[str, str]


@dataclass(frozen=True)
class ProgressListener:
    """The callbacks of a run.

    Attributes:
        step: Called with a sentence at the start of each step.
        progress: Called with the number of finished texts of the file.
    """

    step: Callable[[str], None] = lambda message: None
    progress: Callable[[FileProgress], None] = lambda progress: None


def score_file(
    texts: TextStream,
    out: Path,
    model: TokenizedModel,
    selection: Selection,
    paths: DataPaths,
    backend_of: BackendOf,
    *,
    user_inputs: UserInputs | None = None,
    label_column: str = "label",
    id_column: str = ID,
    overrides: Overrides | None = None,
    listener: ProgressListener | None = None,
    bounds: ChunkLimits | None = None,
) -> FileScores:
    """Score all texts of a file and write the table of scores to ``out``.

    The table is written atomically at the end. If a run is interrupted, the next run reads the finished passes from the
    cache. Unusable rows of the file have no rows in the table.

    Args:
        texts: The file.
        out: The table: a Parquet file with the columns of SCHEMA.
        model: The audited model.
        selection: The detectors and settings.
        paths: The data folder.
        backend_of: A function that loads a model. It is called for each chunk with missing cache rows, so it must keep
            the model in memory (``HeldModel`` in backends.py).
        user_inputs: Further inputs of the user, such as files of known texts.
        label_column: Name of the label column.
        id_column: Name of the column with the user's ids.
        overrides: The parameters that the user has set.
        listener: The callbacks of the run.
        bounds: The maximum size of a chunk. By default it depends on the memory that a text takes.

    Raises:
        DataError: If the file has no usable text or is truncated.
    """
    listener = listener or ProgressListener()
    session = Session(
        model,
        selection,
        Caches(paths),
        in_context=texts.scores_parts,
        in_parts=True,
        user_inputs=user_inputs or UserInputs(),
    )
    bounds = bounds or ChunkLimits(characters=ChunkLimits.characters // session.memory_factor_per_text)
    extra_passes: list[Mapping[str, RunSummary]] = []
    if session.runs_other_models:
        # Only one model at a time is in memory. A change of model per chunk would take hours.
        for chunk in _iterate_chunks(texts, bounds, listener):
            extra_passes.append(session.run_other_models(chunk.texts, backend_of, on_progress=chunk.on_progress))
    settings: list[Setting] = []
    for detector, detector_settings in session.selection:
        settings += [(detector.name, detector.to_json(setting)) for setting in detector_settings]
    labelled = LabelledScores(settings, label_column, session.limit_overrides(overrides))
    scored_part = texts.scored_part if isinstance(texts, ConversationStream) else None
    table = _ScoreTable(session, labelled, id_column, scored_part)
    rows_per_part = max(1, _SCORES_PER_PART // max(1, len(settings)))
    text_passes: list[RunSummary] = []
    with (
        write_atomically(out) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        for chunk in _iterate_chunks(texts, bounds, listener):
            if not text_passes:
                scope = "" if chunk.is_last else f"the first {len(chunk.texts):,} texts, "
                for cost in session.describe_extra_costs(chunk.texts):
                    listener.step(scope + cost)
            summary = session.run(chunk.texts, backend_of, on_progress=chunk.on_progress)
            text_passes.append(summary.text_pass)
            extra_passes.append(summary.extra_passes)
            statistics = session.statistics(chunk.texts)
            for start in range(0, len(chunk.rows), rows_per_part):
                writer.write_table(table.score(chunk.rows[start : start + rows_per_part], statistics))
    total = PassesSummary(join_summaries(text_passes), join_by_requirement(extra_passes))
    return FileScores(table.written, texts.skipped, total, table.labelled, table.unscored)


@dataclass
class _ScoreTable:
    """The builder of the table of scores, with totals over all its rows.

    Attributes:
        session: The scoring session.
        labelled: The scores of labelled texts.
        id_column: Name of the column with the user's ids.
        scored_part: The scored part of conversations, or None for plain texts.
        written: Number of rows so far.
    """

    session: Session
    labelled: LabelledScores
    id_column: str
    scored_part: ScoredPart | None
    written: int = 0
    _reasons: dict[str, str] = field(default_factory=dict)
    _scoring_detectors: set[str] = field(default_factory=set)

    @property
    def unscored(self) -> Mapping[str, str]:
        """Return the detectors without any score, each with the reason why its first text has no score."""
        return {name: reason for name, reason in self._reasons.items() if name not in self._scoring_detectors}

    def score(self, rows: Sequence[TextRow], statistics: Statistics) -> pa.Table:
        """Build the table's rows for some rows of the file."""
        ids = [str(row.index) for row in rows]
        texts = [row.text for row in rows]
        spans = [row.spans for row in rows]
        scored = statistics.scores(self.session.selection, ids, texts, spans)
        scores = scored.column("score").to_numpy()
        labels = self.labelled.add(rows, np.asarray(scores, dtype=np.float64).reshape(len(rows), -1))
        groups = [read_group(row) for row in rows]
        digests = [text_sha256(row.source_text or row.text) for row in rows]
        user_ids = [read_own_id(row.values, self.id_column) for row in rows]
        # Each text has one row per setting.
        text_of_row = np.repeat(np.arange(len(rows)), len(self.labelled.settings))
        columns = {
            "example_index": pc.cast(scored.column("example_id"), pa.int64()),
            **{name: scored.column(name) for name in ("detector", "parameters", "score", "status", "reason")},
            "label": pa.array(labels, pa.int8()).take(text_of_row),
            GROUP: pa.array(groups, pa.string()).take(text_of_row),
            "sha256": pa.array(digests, pa.string()).take(text_of_row),
            ID: pa.array(user_ids, pa.string()).take(text_of_row),
            "scored_part": pa.repeat(pa.scalar(self.scored_part, pa.string()), len(scored)),
        }
        with_score = scored.filter(pc.is_valid(scored.column("score")))
        self._scoring_detectors.update(pc.unique(with_score.column("detector")).to_pylist())
        for row in scored.slice(0, len(self.labelled.settings)).to_pylist():
            if row["reason"] is not None:
                self._reasons.setdefault(row["detector"], row["reason"])
        self.written += len(scored)
        return pa.table(columns).cast(SCHEMA)


@dataclass(frozen=True)
class _Chunk:
    """A chunk of the file.

    Attributes:
        rows: The rows of the chunk.
        on_progress: The progress callback of the passes over the chunk.
        is_last: True if the file has no further chunk.
    """

    rows: Sequence[TextRow]
    on_progress: ChunkProgress
    is_last: bool

    @cached_property
    def texts(self) -> list[str]:
        """Return the texts of the chunk."""
        return [row.text for row in self.rows]


def _iterate_chunks(texts: TextStream, bounds: ChunkLimits, listener: ProgressListener) -> Iterator[_Chunk]:
    """Yield the file in chunks and report the progress after each chunk."""
    n_texts_before = 0
    chunks = split_texts_into_chunks(texts, bounds)
    rows = next(chunks, None)
    while rows is not None:
        next_rows = next(chunks, None)
        is_last = next_rows is None
        expected = RowCount(n_texts_before + len(rows), is_estimated=False) if is_last else texts.estimate_total()
        progress = ChunkProgress(n_texts_before, len(rows), expected, listener.progress)
        yield _Chunk(rows, progress, is_last)
        progress.report_share(1.0)
        n_texts_before += len(rows)
        rows = next_rows


@dataclass(frozen=True)
class FileProgress:
    """The progress of scoring a file.

    Attributes:
        texts_done: Number of finished texts, including cached ones.
        texts_total: Number of texts of the file.
        estimated: True if the total is an estimate from the part of the file that has been read.
    """

    texts_done: int
    texts_total: int
    estimated: bool


@dataclass(frozen=True)
class ChunkProgress:
    """A progress callback for the passes over a chunk.

    Attributes:
        texts_before: Number of texts of the file before the chunk.
        texts: Number of texts of the chunk.
        expected: The expected number of texts of the file.
        report: A function that is called with the progress of the file.
    """

    texts_before: int
    texts: int
    expected: RowCount
    report: Callable[[FileProgress], None]

    def __call__(self, progress: Progress) -> None:
        """Report the progress of the file. Each pass over the chunk has the same weight."""
        finished_passes = 0
        n_passes = 1
        if progress.phase is not None:
            finished_passes = progress.phase.step - 1
            n_passes = progress.phase.steps
        self.report_share((finished_passes + progress.tokens_done / max(1, progress.tokens_total)) / n_passes)

    def report_share(self, share: float) -> None:
        """Report the progress of the file, given the share of the chunk that is finished (from 0 to 1)."""
        total = max(self.expected.rows, self.texts_before + self.texts)
        self.report(FileProgress(self.texts_before + round(self.texts * share), total, self.expected.is_estimated))
