"""Counterfactual branches of the text's tokens.

What belongs here: how long they have to be, and finding a text's own. What does not: running them, which goes with the
text's own pass (token_statistics/), and the score (detectors/).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import text_sha256
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.infilling import BRANCHES
from audit_pipeline.detectors.statistics import BranchStatistics, Lacking
from audit_pipeline.scoring.needs.provider import Provider, Read, ScoringScope, TextWithStatistics
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, plan, read_branches

_NOT_RUN = Lacking("no branches of the text that are long enough are cached: run the model on it again")


class BranchesProvider(Provider[BranchStatistics]):
    """Branches of as many tokens as the largest ``m`` of the settings asks for."""

    need = BRANCHES

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._model, self._where = scope.model, scope.where
        # Even m = 0 has its row: that it was run is then known.
        self._steps = max(1, *(int(setting["m"]) for setting in settings))

    @property
    def branch_steps(self) -> int:
        return self._steps

    def missing(self) -> None:
        return None

    def cost(self, texts: Sequence[str]) -> str | None:
        if self._steps == 1:
            return None
        tokens = plan(self._model, texts, self._where, branch_steps=self._steps).branch_tokens
        return f"infilling: branches of {self._steps} tokens, about {tokens:,} tokens in all" if tokens else None

    def read(self, texts: Sequence[str]) -> Read[BranchStatistics]:
        by_text = _index_branches_by_text(read_branches(self._model, texts, self._where, self._steps))

        def find(scored: TextWithStatistics) -> BranchStatistics | Lacking:
            branches = by_text.get(text_sha256(scored.whole))
            if branches is None or len(branches.offsets) != scored.context_tokens + len(scored.own) + 1:
                return _NOT_RUN
            branches = branches.from_position(scored.context_tokens)
            begun = np.diff(branches.offsets) > 0
            # They start from other modes than the text has where a part of the cache was lost and the text run again:
            # near-ties may then turn out otherwise.
            return _NOT_RUN if (begun & (scored.own.argmax_id == scored.own.token_id)).any() else branches

        return find


def _index_branches_by_text(table: pa.Table) -> dict[str, BranchStatistics]:
    """The rows of the kind ``branches``, by their text's sha256."""
    m = dict(zip(table.column("text_sha256").to_pylist(), table.column("m").to_pylist(), strict=True))
    lists = collect_lists_by_text(table, ("offsets", "logprob", "z"))
    return {sha256: BranchStatistics(m=m[sha256], **own) for sha256, own in lists.items()}
