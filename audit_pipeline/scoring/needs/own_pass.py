"""What the text's own pass leaves in the cache apart from its base statistics: power sums, temperatures, branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from audit_pipeline.detectors.acmia import TEMPERATURES
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import BranchStatistics, Float32s, PowerSums, Temperatures
from audit_pipeline.detectors.infilling import BRANCHES
from audit_pipeline.detectors.max_renyi import ORDERS_OF_POWER_SUMS, POWER_SUMS
from audit_pipeline.scoring.needs.provider import Lookup, Provider, ScoringScope, T, TextWithStatistics
from audit_pipeline.tables import BETAS, KINDS, Kind, text_sha256
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, plan, read_branches, read_statistics


class _ListsProvider(Provider[T]):
    """Lists of one kind, of every scored token of the text."""

    def _read_lists(
        self, texts: Sequence[str], kind: Kind
    ) -> Callable[[TextWithStatistics], dict[str, Float32s] | None]:
        """The lists of ``kind``, [n, entries] of a text's n scored tokens, those of its context left out."""
        declared = KINDS[kind]
        by_text = collect_lists_by_text(read_statistics(self._model, texts, self._where, kind), declared.statistics)

        def find(scored: TextWithStatistics) -> dict[str, Float32s] | None:
            found = by_text.get(text_sha256(scored.whole))
            if found is None:
                return None
            skipped = scored.context_tokens * declared.entries
            return {name: values[skipped:] for name, values in found.items()}

        return find


class RenyiProvider(_ListsProvider[PowerSums]):
    """The sums of every token, where some setting has an order that is made of them."""

    need = POWER_SUMS
    not_run = "the sums for Rényi entropies of this order are not cached for the text: run the model on it again"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        wanted = any(setting["alpha"] in ORDERS_OF_POWER_SUMS for setting in settings)
        self.kinds, self.along = (("renyi",), ()) if wanted else ((), ("renyi",))

    def build_lookup(self, texts: Sequence[str]) -> Lookup[PowerSums]:
        find = self._read_lists(texts if self.kinds else (), "renyi")
        return lambda scored: None if (found := find(scored)) is None else PowerSums(**found)


class TemperaturesProvider(_ListsProvider[Temperatures]):
    """The distribution of every token at each of the cached inverse temperatures."""

    need = TEMPERATURES
    not_run = "other temperatures are not cached for the text: run the model on it again"
    kinds = ("temperatures",)

    def build_lookup(self, texts: Sequence[str]) -> Lookup[Temperatures]:
        find = self._read_lists(texts, "temperatures")

        def find_temperatures(scored: TextWithStatistics) -> Temperatures | None:
            found = find(scored)
            if found is None:
                return None
            log_sum, mean, std = (
                found[name].reshape(-1, len(BETAS)) for name in ("log_sum_p_beta", "mean_at_beta", "std_at_beta")
            )
            return Temperatures(log_sum, mean, std, self._model.vocab_size)

        return find_temperatures


class BranchesProvider(Provider[BranchStatistics]):
    """Branches of as many tokens as the largest ``m`` of the settings asks for."""

    need = BRANCHES
    not_run = "no branches of the text that are long enough are cached: run the model on it again"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        # Even m = 0 has its row: that it was run is then known.
        self.branch_steps = max(1, *(int(setting["m"]) for setting in settings))

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        if self.branch_steps == 1:
            return None
        tokens = plan(self._model, texts, self._where, branch_steps=self.branch_steps).branch_tokens
        return f"infilling: branches of {self.branch_steps} tokens, about {tokens:,} tokens in all" if tokens else None

    def build_lookup(self, texts: Sequence[str]) -> Lookup[BranchStatistics]:
        table = read_branches(self._model, texts, self._where, self.branch_steps)
        m = dict(zip(table.column("text_sha256").to_pylist(), table.column("m").to_pylist(), strict=True))
        lists = collect_lists_by_text(table, ("offsets", "logprob", "z"))

        def find(scored: TextWithStatistics) -> BranchStatistics | None:
            sha256 = text_sha256(scored.whole)
            if sha256 not in m or len(lists[sha256]["offsets"]) != scored.context_tokens + len(scored.own) + 1:
                return None
            branches = BranchStatistics(m=m[sha256], **lists[sha256]).slice_from(scored.context_tokens)
            begun = np.diff(branches.offsets) > 0
            # They start from other modes than the text has where a part of the cache was lost and the text run again:
            # near-ties may then turn out otherwise.
            return None if (begun & (scored.own.argmax_id == scored.own.token_id)).any() else branches

        return find
