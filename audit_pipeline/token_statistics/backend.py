"""The interface between a run and a model that can run: windows in, results of each window out."""

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
    """The results of the branches (counterfactual_branches.py) of one window, in the order of their positions.

    Attributes:
        lengths: Number of tokens per branch, one entry per scored token of the window. It is 0 for a token without a
            branch.
        logprob: Log-probabilities of the tokens of all branches, in nats.
        z: z-scores of the tokens of all branches.
    """

    lengths: IntArray
    logprob: FloatArray
    z: FloatArray


@dataclass(frozen=True, eq=False)
class WindowResult:
    """The results of one window.

    Attributes:
        window: The window.
        values: Statistics by their names in CachedKind.statistics, one value per scored token, in order. Statistics
            that the back end cannot give are absent. None if only branches were run.
        branches: Results of the branches, if they were requested.
        written: True if the back end has already written the rows of the window's text to disk.
    """

    window: Window
    values: Mapping[str, npt.NDArray[Any]] | None = None
    branches: WindowBranches | None = None
    written: bool = False


@dataclass(frozen=True)
class Work:
    """The windows and statistics that a run requests from a back end.

    Attributes:
        prepared: The texts and their windows, with the kinds that each text misses.
        wanted: Names of the statistics to compute for texts that miss any statistics besides branches.
        steps: Maximum number of tokens per branch, for texts that miss branches.
        modes: Cached argmax tokens of texts that miss only branches, by text number.
    """

    prepared: Prepared
    wanted: Collection[str]
    steps: int = 0
    modes: Mapping[int, IntArray] = field(default_factory=dict)

    @property
    def before(self) -> Sequence[int]:
        """Return the ids of the prefix without its last token, which every window has as its start token."""
        return () if self.prepared.prefix is None else self.prepared.prefix.ids[:-1]

    def modes_of(self, window: Window) -> IntArray:
        """Return the cached argmax tokens of the scored tokens of ``window``."""
        first_scored = self.prepared.encoded[window.text].first_scored
        return self.modes[window.text][window.score_from - first_scored : window.end - first_scored]


class Backend(Protocol):
    """A model that can run, on this machine or elsewhere."""

    branch_tokens_run: int
    """Number of tokens of branches that have run so far, including padding."""

    @property
    def described(self) -> str:
        """Return the place and the way in which the model runs, as a phrase for the log."""
        ...

    @property
    def local_backend(self) -> Backend:
        """Return the same model loaded on this machine if possible, else this back end."""
        ...

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Run the windows of ``work`` and yield their results as they arrive, in any order.

        Each window is yielded once. If an error ends the run, the results that were yielded before it stay valid.
        """
        ...


BackendOf = Callable[[TokenizedModel], Backend]
"""Function that loads a model. It is called only if the cache lacks results of the model."""
