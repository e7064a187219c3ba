"""Providers of further data on the text itself, whereas derived_texts.py, neighbours.py and prefixes.py change it.

- The text pass stores power sums, temperatures and branches in the cache.
- A reference model reads the text in a pass of its own.
- The text is ranked among all texts of its benchmark by several detectors. Labels and splits are never read, and every
  text is treated alike. A score depends only on the set of texts. Exchangeable texts therefore have exchangeable
  scores, and p-values against calibration texts hold (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors import combined
from audit_pipeline.detectors.acmia import TEMPERATURES
from audit_pipeline.detectors.detector import Detector, Settings
from audit_pipeline.detectors.detector_inputs import (
    BranchStatistics,
    Float32s,
    PowerSums,
    Temperatures,
    TextStatistics,
    UnmetNeed,
    take_ranges,
)
from audit_pipeline.detectors.infilling import BRANCHES
from audit_pipeline.detectors.max_renyi import ORDERS_OF_POWER_SUMS, POWER_SUMS
from audit_pipeline.detectors.reference import REFERENCE_MODEL
from audit_pipeline.detectors.registry import ONE_PASS
from audit_pipeline.errors import AuditError, ConfigError, ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, build_reference_upstream, load_reference_model
from audit_pipeline.scoring.needs import provider
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BETAS, KINDS, Kind, text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_sha256, plan, read_branches, read_statistics
from audit_pipeline.token_statistics.run import RunSummary, compute


class _ListsProvider(provider.Provider[provider.T]):
    """The base of providers that read lists of one kind, with an equal number of entries per token."""

    def _read_lists(
        self, texts: Sequence[str], kind: Kind
    ) -> Callable[[provider.TextWithStatistics], dict[str, Float32s] | None]:
        """Read the lists of a kind for all texts, and return the function that looks up a text.

        The function returns flat arrays of n * entries numbers for the n scored tokens of the text. Tokens of other
        parts of the text are omitted.
        """
        cached_kind = KINDS[kind]
        rows = read_statistics(self._model, texts, self._location, kind)
        lists_by_text = collect_lists_by_sha256(rows, cached_kind.statistics)

        def look_up(scored: provider.TextWithStatistics) -> dict[str, Float32s] | None:
            lists = lists_by_text.get(text_sha256(scored.model_input))
            if lists is None:
                return None
            ranges = scored.statistics.token_ranges
            return {name: take_ranges(values, ranges, cached_kind.entries) for name, values in lists.items()}

        return look_up


class RenyiProvider(_ListsProvider[PowerSums]):
    """The provider of the power sums of each token, which Rényi entropies of some orders require."""

    need = POWER_SUMS
    not_run = "the sums for Rényi entropies of this order are not cached for the text. Run the model again."

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Require the power sums if a setting reads them. Otherwise store them only for texts that run anyway."""
        super().__init__(scope, settings)
        if any(setting["alpha"] in ORDERS_OF_POWER_SUMS for setting in settings):
            self.kinds = ("renyi",)
        else:
            self.extra_kinds = ("renyi",)

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[PowerSums]:
        """Return the lookup of a text's power sums."""
        look_up_lists = self._read_lists(texts if self.kinds else (), "renyi")

        def look_up(scored: provider.TextWithStatistics) -> PowerSums | None:
            lists = look_up_lists(scored)
            return None if lists is None else PowerSums(**lists)

        return look_up


class TemperaturesProvider(_ListsProvider[Temperatures]):
    """The provider of the distribution of each token at each cached inverse temperature."""

    need = TEMPERATURES
    not_run = "other temperatures are not cached for the text. Run the model again."
    kinds = ("temperatures",)

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[Temperatures]:
        """Return the lookup of a text's distributions, as arrays of shape (n_tokens, n_temperatures)."""
        look_up_lists = self._read_lists(texts, "temperatures")

        def look_up(scored: provider.TextWithStatistics) -> Temperatures | None:
            lists = look_up_lists(scored)
            if lists is None:
                return None
            tables = {name: values.reshape(-1, len(BETAS)) for name, values in lists.items()}
            return Temperatures(
                tables["log_sum_p_beta"], tables["mean_at_beta"], tables["std_at_beta"], self._model.vocab_size
            )

        return look_up


_SEVERAL_PARTS = UnmetNeed("several parts of the text are scored, and a branch would run over the border of its part")


class BranchesProvider(provider.Provider[BranchStatistics]):
    """The provider of branches. Their length is the largest ``m`` of the settings."""

    need = BRANCHES
    not_run = (
        "the cache lacks the text's branches (continuations after a replaced token) of the required length m. Run the "
        "model again."
    )

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Read the branch length from the settings."""
        super().__init__(scope, settings)
        # With m = 0 a row is stored too, so that the cache shows that the text was run.
        self.branch_steps = max(1, *(int(setting["m"]) for setting in settings))

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        """Return the number of tokens of the branches, or None if all branches have one token or are cached."""
        if self.branch_steps == 1:
            return None
        tokens = plan(self._model, texts, self._location, branch_steps=self.branch_steps).branch_tokens
        if not tokens:
            return None
        return f"infilling: branches of {self.branch_steps} tokens, about {tokens:,} tokens in total"

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[BranchStatistics]:
        """Return the lookup of a text's branches."""
        table = read_branches(self._model, texts, self._location, self.branch_steps)
        lengths = dict(zip(table.column("text_sha256").to_pylist(), table.column("m").to_pylist(), strict=True))
        lists_by_text = collect_lists_by_sha256(table, ("offsets", "logprob", "z"))

        def look_up(scored: provider.TextWithStatistics) -> BranchStatistics | UnmetNeed | None:
            sha256 = text_sha256(scored.model_input)
            if sha256 not in lengths:
                return None
            lists = lists_by_text[sha256]
            n_tokens = len(lists["offsets"]) - 1
            ranges = scored.statistics.token_ranges
            if ranges is None:
                ranges = ((0, len(scored.statistics)),)
            if len(ranges) > 1:
                return _SEVERAL_PARTS
            [(first, stop)] = ranges
            if stop != n_tokens:
                return None
            branches = BranchStatistics(m=lengths[sha256], **lists).slice_from(first)
            has_branch = np.diff(branches.offsets) > 0
            is_mode = scored.statistics.argmax_id == scored.statistics.token_id
            # A branch starts only at tokens that are not the mode (the most likely token). If a part of the cache was
            # lost and the text was run again, near-ties may have resulted in other modes. The branches then do not fit
            # the statistics.
            return None if (has_branch & is_mode).any() else branches

        return look_up


class ReferenceProvider(provider.Provider[TextStatistics]):
    """The provider of the text's statistics under the reference model of the audited model.

    If the reference model cannot be loaded for a user's file, scoring fails. Otherwise a misspelt name would look like
    a detector that does not apply. In an audit, the detector has no scores and states the reason.
    """

    need = REFERENCE_MODEL
    not_run = "the reference model has not been run on the text. Run the audit again."
    runs_other_model = True
    source = "reference_model"

    @staticmethod
    def read_seen_versions(
        model: ModelEntry, seen: provider.SeenIdentities, paths: DataPaths
    ) -> Mapping[str, str] | None:
        """Return the version of the reference model, or None if it was never seen."""
        name = model.detector_reference
        if name is None:
            return {}
        if name not in seen:
            return None
        weights, tokenizer = seen[name]
        return {f"reference_model/{name}": f"{weights}/{tokenizer or None}"}

    @cached_property
    def _reference(self) -> TokenizedModel | str:
        """Return the reference model, or the reason why it is missing."""
        entry = self._model.entry
        try:
            reference = load_reference_model(self._model, self._scope.paths)
            if reference is not None and reference.identity.is_unprobed:
                raise ModelError(
                    f"the server of {reference.entry.name} has not been probed yet. Run the audit when the "
                    "server is reachable."
                )
            return reference or (
                f"{entry.name} has no reference model. Set reference_model, or base for a fine-tuned model, in its "
                "entry in config/models.yaml."
            )
        except TransientError:
            raise
        except AuditError as error:
            if self._scope.user_inputs is not None:
                raise ModelError(f"the reference model cannot be used: {error}") from error
            return str(error)

    @property
    def _reference_model(self) -> TokenizedModel:
        if isinstance(self._reference, str):
            raise ModelError(self._reference)
        return self._reference

    def explain_unmet(self) -> str | None:
        """Return why the reference model is missing, or None if it is loaded."""
        return self._reference if isinstance(self._reference, str) else None

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the version of the reference model."""
        return build_reference_upstream(self._reference_model)

    def compute(
        self, texts: Sequence[str], backend_of: BackendOf, on_progress: provider.OnProgress | None
    ) -> RunSummary:
        """Run the reference model over the texts."""
        model = self._reference_model
        return compute(model, texts, self._location, partial(backend_of, model), on_progress=on_progress)

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[TextStatistics]:
        """Return the lookup of the statistics of a text's scored parts under the reference model."""
        index = self._read_index(texts, self._reference_model)

        def look_up(scored: provider.TextWithStatistics) -> TextStatistics | None:
            return index.find(scored.model_input, scored.spans)

        return look_up


Floats = npt.NDArray[np.float64]
Ranks = Sequence[float] | UnmetNeed

_IN_PARTS = (
    "ranks require all texts of a benchmark, but a file is scored in parts. Define a benchmark of the texts in"
    " config/benchmarks.yaml, and audit it."
)
_IN_CONTEXT = "the text is scored after a context, and such texts are not ranked"
_NOT_RUN = UnmetNeed("the model had not been run on the text when the other texts were ranked. Run the model again.")


class RanksProvider(provider.Provider[Mapping[str, Ranks]]):
    """The provider of a text's mid-ranks by the detectors of each list in the settings.

    Each detector has its default setting. All texts must be looked up in one call.
    """

    need = combined.RANKS

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Read the lists of detectors from the settings.

        Raises:
            ConfigError: If a list names an unknown detector or a detector that requires extra passes.
        """
        super().__init__(scope, settings)
        self._detectors_by_list: dict[str, list[Detector]] = {}
        for detector_list in dict.fromkeys(str(setting["of"]) for setting in settings):
            names = combined.split_detector_names(detector_list)
            for name in names:
                if name not in ONE_PASS:
                    hint = did_you_mean(name, ONE_PASS)
                    raise ConfigError(f"{combined.NAME}.of: there is no one-pass detector '{name}'; {hint}")
            self._detectors_by_list[detector_list] = [ONE_PASS[name] for name in names]

    def explain_unmet(self) -> str | None:
        """Return the reason why texts of a file, and texts with a context, are not ranked. None for other texts."""
        if self._scope.in_parts:
            return _IN_PARTS
        return _IN_CONTEXT if self._scope.in_context else None

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[Mapping[str, Ranks]]:
        """Rank all texts, and return the lookup of a text's ranks by each list of detectors."""
        index = self._read_index(texts)
        statistics_by_text: dict[str, TextStatistics] = {}
        for text in texts:
            statistics = index.find(text)
            if statistics is not None:
                statistics_by_text[text] = statistics
        ranks_by_list: dict[str, Mapping[str, Ranks]] = {}
        for detector_list, detectors in self._detectors_by_list.items():
            ranks_by_list[detector_list] = rank_texts_by_detectors(statistics_by_text, detectors)

        def look_up(scored: provider.TextWithStatistics) -> Mapping[str, Ranks]:
            return {name: ranks.get(scored.model_input, _NOT_RUN) for name, ranks in ranks_by_list.items()}

        return look_up


def rank_texts_by_detectors(texts: Mapping[str, TextStatistics], detectors: Sequence[Detector]) -> Mapping[str, Ranks]:
    """Return for each text its mid-rank by each detector at its default setting.

    Ranks are divided by the number of texts that all detectors score. A text that a detector cannot score has the
    reason instead of ranks.
    """
    unscored: dict[str, UnmetNeed] = {}
    scores: dict[str, list[float | None]] = {}
    for text, statistics in texts.items():
        outcomes = {detector.name: detector.score(statistics, [detector.default])[0] for detector in detectors}
        reasons = [
            f"{name} does not score the text: {outcome.reason}" for name, outcome in outcomes.items() if outcome.reason
        ]
        if reasons:
            unscored[text] = UnmetNeed(reasons[0])
        else:
            scores[text] = [outcome.score for outcome in outcomes.values()]
    table = np.array(list(scores.values()), dtype=np.float64).reshape(len(scores), len(detectors))
    ranks = compute_mid_ranks(table).tolist()
    return {**unscored, **dict(zip(scores, ranks, strict=True))}


def compute_mid_ranks(scores: Floats) -> Floats:
    """Return the mid-ranks of texts by each detector, divided by the number of texts: in (0, 1].

    Args:
        scores: Array of shape (n_texts, n_detectors).

    Returns:
        Array of shape (n_texts, n_detectors). Tied texts share their rank.
    """
    return np.asarray(scipy.stats.rankdata(scores, axis=0) / max(len(scores), 1))
