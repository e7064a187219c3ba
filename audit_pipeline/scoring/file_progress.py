"""The progress of scoring a file, derived from the progress of the passes over its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from audit_pipeline.readers.row_stream import Expected
from audit_pipeline.token_statistics.run import Progress


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
    expected: Expected
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
        self.report(FileProgress(self.texts_before + round(self.texts * share), total, self.expected.estimated))
