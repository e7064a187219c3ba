"""The interface between the bookkeeping of a run and what runs a model: windows in, results of each window out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.cached_texts import Prepared
from audit_pipeline.token_statistics.tokens import IntArray, Window

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class WindowBranches:
    """The results of the branches of one window, in the order of their positions.

    ``lengths`` has one entry a scored token of the window, 0 where it has no branch.
    """

    lengths: IntArray
    logprob: FloatArray
    z: FloatArray


@dataclass(frozen=True, eq=False)
class WindowResult:
    """The results of one window.

    ``values`` by the names of CachedKind.statistics, one a scored token, in order; what the back end cannot give
    (``TokenizedModel.gives``) is absent. None where only ``branches`` were run. ``written``: the back end has already
    written the rows of the window's text to disk.
    """

    window: Window
    values: Mapping[str, npt.NDArray[Any]] | None = None
    branches: WindowBranches | None = None
    written: bool = False


@dataclass(frozen=True)
class Work:
    """What a run asks a back end for: the statistics ``wanted`` of every window of ``prepared`` whose text lacks its
    own, and branches of up to ``steps`` tokens of those that lack these.

    ``modes`` are the cached argmax tokens, by text number, of texts that are run for branches alone.
    """

    prepared: Prepared
    wanted: Collection[str]
    steps: int = 0
    modes: Mapping[int, IntArray] = field(default_factory=dict)

    @property
    def before(self) -> Sequence[int]:
        """The tokens before all windows; each window's start token follows them."""
        return () if self.prepared.prefix is None else self.prepared.prefix.ids[:-1]

    def modes_of(self, window: Window) -> IntArray:
        """The cached argmax tokens of the scored tokens of ``window``."""
        first = self.prepared.encoded[window.text].first_scored
        return self.modes[window.text][window.score_from - first : window.end - first]


class Backend(Protocol):
    """A model that can be run, on this machine or elsewhere."""

    branch_tokens_run: int
    """Tokens of branches that have been run so far, the padding included."""

    @property
    def described(self) -> str:
        """Where and how the model is run, in words: for the log."""
        ...

    @property
    def local_backend(self) -> Backend:
        """The same model loaded on this machine, where that is possible; else this one."""
        ...

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Run what ``work`` asks for, and yield the results of windows as they come, in any order.

        A window is yielded once, or an error ends the run: what has been yielded by then is kept.
        """
        ...


BackendOf = Callable[[TokenizedModel], Backend]
"""Makes a model ready to be run; called only where something of it is not in the cache."""
