"""How far scoring a file is, from the progress of the passes over its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from audit_pipeline.readers.row_stream import Expected
from audit_pipeline.token_statistics.run import Progress


@dataclass(frozen=True)
class FileProgress:
    """Texts that are done, those from the cache too, of how many; ``estimated``: the total is reckoned from what has
    been read."""

    texts_done: int
    texts_total: int
    estimated: bool


@dataclass(frozen=True)
class ChunkProgress:
    """A callback of the passes over a chunk of ``texts`` texts, ``texts_before`` texts into the file."""

    texts_before: int
    texts: int
    expected: Expected
    report: Callable[[FileProgress], None]

    def __call__(self, progress: Progress) -> None:
        """Report how far the file is: every pass over the chunk counts the same."""
        step, steps = (1, 1) if progress.phase is None else (progress.phase.step, progress.phase.steps)
        self.report_share((step - 1 + progress.tokens_done / max(1, progress.tokens_total)) / steps)

    def report_share(self, share: float) -> None:
        """Report the file with that share of the chunk done."""
        total = max(self.expected.rows, self.texts_before + self.texts)
        self.report(FileProgress(self.texts_before + round(self.texts * share), total, self.expected.estimated))
