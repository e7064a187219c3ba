"""What a run asks for, cut into shards of whole texts.

What belongs here: which texts make a shard, and its work as a worker gets it. What does not: who runs it (dispatch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from audit_pipeline.catalogue.contracts import SHARE_WITH_BRANCH
from audit_pipeline.token_statistics.backend import Work
from audit_pipeline.token_statistics.prepare import Prepared
from audit_pipeline.token_statistics.windows import Window

MOST_TOKENS = {"cpu": 20_000, "cuda": 1_000_000}
"""The most tokens of a shard, but for one longer text: some minutes of a small model on one core, or of a large one on
a GPU."""
_LEAST_TOKENS = 2_000
_SHARDS_A_WORKER = 4


@dataclass(frozen=True, eq=False)
class Shard:
    """Some texts of a run: ``work`` is theirs alone, their windows numbered anew, and ``windows`` are the run's own.

    ``tokens``: about how many are run for it at most, branches and what stands before its texts included.
    """

    number: int
    work: Work
    windows: Sequence[Window]
    tokens: int

    @property
    def texts(self) -> int:
        return len(self.work.prepared.encoded)


def shards_of(work: Work, workers: int, most: int) -> list[Shard]:
    """The work in shards of about ``most`` tokens or less, texts of like length together, the longest first.

    Each worker gets several, so that none waits long for the last; a text is never cut. Every window of ``work`` is in
    one shard. Texts without a window are in none.
    """
    windows: dict[int, list[Window]] = {}
    for window in work.prepared.windows:
        windows.setdefault(window.text, []).append(window)
    tokens = {text: _tokens(work, text, own) for text, own in windows.items()}
    size = _tokens_a_shard(sum(tokens.values()), workers, most)
    piles: list[list[int]] = []
    height = size
    for text in sorted(tokens, key=lambda text: (-tokens[text], text)):
        if height + tokens[text] > size:
            piles.append([])
            height = 0
        piles[-1].append(text)
        height += tokens[text]
    return [
        Shard(
            number,
            _of_texts(work, pile, windows),
            [window for text in pile for window in windows[text]],
            sum(tokens[text] for text in pile),
        )
        for number, pile in enumerate(piles)
    ]


def _tokens_a_shard(total: int, workers: int, most: int) -> int:
    even = -(-total // (workers * _SHARDS_A_WORKER))
    return max(min(even, most), min(_LEAST_TOKENS, most))


def _tokens(work: Work, text: int, windows: Sequence[Window]) -> int:
    branches = SHARE_WITH_BRANCH * work.steps if work.prepared.wants_branches(text) else 0.0
    return round(sum((window.length + len(work.before)) * (1 + branches) for window in windows))


def _of_texts(work: Work, texts: Sequence[int], windows: dict[int, list[Window]]) -> Work:
    whole = work.prepared
    prepared = Prepared(
        distinct=len(texts),
        keys=[whole.keys[text] for text in texts],
        encoded=[whole.encoded[text] for text in texts],
        missing=[whole.missing[text] for text in texts],
        windows=[replace(window, text=number) for number, text in enumerate(texts) for window in windows[text]],
        prefix=whole.prefix,
    )
    modes = {number: work.modes[text] for number, text in enumerate(texts) if text in work.modes}
    return replace(work, prepared=prepared, modes=modes)
