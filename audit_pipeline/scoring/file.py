"""Scoring a user's own file: texts in, one long table of scores out, in memory that does not grow with the file.

A chunk of texts is run through the model and scored before the next one is read. It is large enough that batches sorted
by length waste nothing, and small enough that its statistics are a few hundred megabytes.
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
from audit_pipeline.readers.labels import LabelReader
from audit_pipeline.readers.row_stream import Expected, TextStream
from audit_pipeline.readers.text_rows import SkippedRows, TextRow, read_own_id
from audit_pipeline.scoring.file_progress import ChunkProgress, FileProgress
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.session import PassesSummary, Selection, Session, Statistics, join_by_need
from audit_pipeline.statistics.intervals import Interval, measure_auroc_of_scores
from audit_pipeline.statistics.roc import Floats, explain_undefined
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, SCORES, text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.run import RunSummary, join_summaries


@dataclass(frozen=True)
class ChunkLimits:
    """The most texts, and the most characters, of a chunk; a longer text is a chunk of its own."""

    texts: int = 8192
    characters: int = 4_000_000


def split_texts_into_chunks(texts: Iterable[TextRow], bounds: ChunkLimits) -> Iterator[list[TextRow]]:
    """``texts`` in their order, in chunks within ``bounds``."""
    chunk: list[TextRow] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) >= bounds.texts or characters + len(text.text) > bounds.characters):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text.text)
    if chunk:
        yield chunk


Setting = tuple[str, str]

GROUP = "group"
"""The column of the book, patent or article that a text is of."""


ID = "id"
"""The usual column of the user's own id of a text."""


def read_group(row: TextRow) -> str | None:
    """Return the group that a row names, or None if it names none."""
    given = row.values.get(GROUP)
    return None if given is None or given == "" else str(given)


@dataclass(frozen=True)
class Separation:
    """How well one detector setting separates a file's labelled texts, with the interval by group."""

    detector: str
    parameters: str
    auroc: float
    interval: Interval
    n_members: int
    n_nonmembers: int


@dataclass
class LabelledScores:
    """Of every text whose label is known its group, its label, and the score of each detector's default.

    ``settings`` are detector and parameters of the table's rows of one text, in order; ``overrides`` the parameters
    that the user has set, which are the default then.
    """

    settings: Sequence[Setting]
    label_column: str
    overrides: Overrides | None = None
    labels: LabelReader = field(default_factory=LabelReader)
    has_column: bool = False

    def __post_init__(self) -> None:
        defaults = [place for place, setting in enumerate(self.settings) if is_default(*setting, self.overrides)]
        self._scores = {place: array("d") for place in defaults}
        self._labels = array("b")
        # By number: names of every text would take more room than all else that is kept of it.
        self._groups, self._group_names = array("q"), dict[str, int]()

    def add(self, texts: Sequence[TextRow], scores: Floats) -> list[int | None]:
        """Take texts with their scores [texts, settings], NaN where there is none; returns their labels."""
        labels: list[int | None] = []
        for text, row in zip(texts, scores, strict=True):
            labels.append(None)
            if self.label_column not in text.values:
                continue
            self.has_column = True
            label = labels[-1] = self.labels.read(text.values[self.label_column])
            if label is not None:
                self._labels.append(label)
                name = read_group(text)
                # Below 0 the text's own place, where it names no group.
                number = -1 - text.index if name is None else self._group_names.setdefault(name, len(self._group_names))
                self._groups.append(number)
                for place, column in self._scores.items():
                    column.append(row[place])
        return labels

    @property
    def problem(self) -> str | None:
        """Why there is no AUROC of anything, where the file has labels; else None."""
        counted = {"member": self.labels.known[MEMBER], "non-member": self.labels.known[NON_MEMBER]}
        if not self.has_column or all(counted.values()):
            return None
        named = [f"{count:,} {side}{'' if count == 1 else 's'}" for side, count in counted.items() if count]
        return f"no AUROC: it takes texts of both sides, and the labels name {named[0] if named else 'neither side'}"

    def compute_separations(self) -> list[Separation]:
        """AUROC of every detector's default setting; nothing for one that has scored no text of a side."""
        found = (self._compute_separation(place) for place in self._scores)
        return [separation for separation in found if separation is not None]

    def _compute_separation(self, place: int) -> Separation | None:
        scores, labels = np.asarray(self._scores[place]), np.asarray(self._labels)
        scored = ~np.isnan(scores)
        scores, labels = scores[scored], labels[scored]
        if explain_undefined(labels) is not None:
            return None
        members = int(labels.sum())
        groups = np.asarray(self._groups)[scored]
        found = measure_auroc_of_scores(scores, labels, groups)
        return Separation(*self.settings[place], found.value, found.interval, members, len(labels) - members)


SCHEMA = pa.schema(
    [
        pa.field("example_index", pa.int64()),
        *(SCORES.field(name) for name in ("detector", "parameters", "score", "status", "reason")),
        pa.field("label", pa.int8()),
        pa.field(GROUP, pa.string()),
        pa.field("sha256", pa.string()),
        pa.field(ID, pa.string()),
    ]
)
"""The columns of the table: the row's 0-based position in the file, detector, parameters (canonical JSON), score,
status and reason; then what `corpus-audit evaluate` goes by: label (1, 0, null unknown) and group as the file has them,
null where it has none, and the sha256 of the text; then the user's own id of the text, null if there is none."""

# Scores that are made at a time: as Python's objects they take twenty times the room of the table's.
_SCORES_AT_A_TIME = 200_000


@dataclass(frozen=True)
class FileScores:
    """How many scores were written, the rows left out, what running the models came to, and what labels show.

    ``unscored`` are the detectors that gave no text a score, each with the reason of the first text.
    """

    written: int
    skipped: SkippedRows
    summary: PassesSummary
    labelled: LabelledScores
    unscored: Mapping[str, str]


@dataclass(frozen=True)
class ProgressListener:
    """What is called with each step, in words, with how far a step is, and with how far the file is."""

    step: Callable[[str], None] = lambda what: None
    how_far: Callable[[str], None] = lambda words: None
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
    """Score every text of a file and write ``out`` (Parquet, the columns of SCHEMA), whole or not at all.

    ``backend_of`` gives a model ready to be run, where something of it is not in the cache. It is asked once per chunk,
    so it is to hold the model (backends.py). What has been run is in the cache, whatever stops this: the
    same call goes on from there. Raises DataError where the file holds no usable text, or breaks off;
    rows that cannot be read have no rows in the table.
    """
    listener, caches = listener or ProgressListener(), Caches(paths)
    session = Session(model, selection, caches, in_parts=True, user_inputs=user_inputs or UserInputs())
    bounds = bounds or ChunkLimits(characters=ChunkLimits.characters // session.memory_factor_per_text)
    others: list[Mapping[str, RunSummary]] = []
    if session.runs_other_models:
        # Over the whole file first: a model is in memory at a time, and a change of model per chunk would take hours.
        for chunk in _iterate_chunks(texts, bounds, listener):
            others.append(session.run_other_models(chunk.texts, backend_of, on_progress=chunk.on_progress))
    settings = [(detector.name, detector.to_json(each)) for detector, own in session.selection for each in own]
    labelled = LabelledScores(settings, label_column, session.limit_overrides(overrides))
    table = _ScoreTable(session, labelled, id_column)
    done: list[PassesSummary] = []
    with (
        write_atomically(out) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as written,
    ):
        for chunk in _iterate_chunks(texts, bounds, listener):
            if not done:
                of = "" if chunk.is_last else f"the first {len(chunk.texts):,} texts, "
                for words in session.describe_extra_costs(chunk.texts):
                    listener.step(of + words)
            done.append(session.run(chunk.texts, backend_of, on_progress=chunk.on_progress))
            statistics = session.statistics(chunk.texts)
            step = max(1, _SCORES_AT_A_TIME // max(1, len(settings)))
            for start in range(0, len(chunk.rows), step):
                written.write_table(table.score(chunk.rows[start : start + step], statistics))
    own, extra = join_summaries([summary.own for summary in done]), [summary.extra for summary in done]
    summary = PassesSummary(own, join_by_need([*others, *extra]))
    return FileScores(table.written, texts.skipped, summary, table.labelled, table.unscored)


@dataclass
class _ScoreTable:
    """The rows of the table, and what is kept of all of them."""

    session: Session
    labelled: LabelledScores
    id_column: str
    written: int = 0
    _reasons: dict[str, str] = field(default_factory=dict)
    _have_scored: set[str] = field(default_factory=set)

    @property
    def unscored(self) -> Mapping[str, str]:
        return {name: reason for name, reason in self._reasons.items() if name not in self._have_scored}

    def score(self, rows: Sequence[TextRow], statistics: Statistics) -> pa.Table:
        """The table's rows of these rows of the file."""
        ids, texts = [str(row.index) for row in rows], [row.text for row in rows]
        scored = statistics.scores(self.session.selection, ids, texts)
        scores = scored.column("score").to_numpy()
        labels = self.labelled.add(rows, np.asarray(scores, dtype=np.float64).reshape(len(rows), -1))
        of_text = np.repeat(np.arange(len(rows)), len(self.labelled.settings))
        columns = {
            "example_index": pc.cast(scored.column("example_id"), pa.int64()),
            **{name: scored.column(name) for name in ("detector", "parameters", "score", "status", "reason")},
            "label": pa.array(labels, pa.int8()).take(of_text),
            GROUP: pa.array([read_group(row) for row in rows], pa.string()).take(of_text),
            "sha256": pa.array([text_sha256(text) for text in texts], pa.string()).take(of_text),
            ID: pa.array([read_own_id(row.values, self.id_column) for row in rows], pa.string()).take(of_text),
        }
        with_score = scored.filter(pc.is_valid(scored.column("score")))
        self._have_scored.update(pc.unique(with_score.column("detector")).to_pylist())
        for row in scored.slice(0, len(self.labelled.settings)).to_pylist():
            if row["reason"] is not None:
                self._reasons.setdefault(row["detector"], row["reason"])
        self.written += len(scored)
        return pa.table(columns).cast(SCHEMA)


@dataclass(frozen=True)
class _Chunk:
    """A chunk of the file, the callback of the passes over it, and whether it is the last."""

    rows: Sequence[TextRow]
    on_progress: ChunkProgress
    is_last: bool

    @cached_property
    def texts(self) -> list[str]:
        return [row.text for row in self.rows]


def _iterate_chunks(texts: TextStream, bounds: ChunkLimits, listener: ProgressListener) -> Iterator[_Chunk]:
    """The file in chunks; its progress is reported as they are worked on."""
    seen, chunks = 0, split_texts_into_chunks(texts, bounds)
    following = next(chunks, None)
    while following is not None:
        rows, following = following, next(chunks, None)
        is_last = following is None
        expected = Expected(seen + len(rows), estimated=False) if is_last else texts.estimate_total()
        progress = ChunkProgress(seen, len(rows), expected, listener.progress)
        yield _Chunk(rows, progress, is_last)
        progress.report_share(1.0)
        seen += len(rows)
