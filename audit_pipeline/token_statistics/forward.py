"""The forward pass: batches of token ids in, statistics of every scored token out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, DynamicCache

from audit_pipeline.tables import SIGMA_FLOOR
from audit_pipeline.token_statistics import (
    calibration,
    counterfactual_branches,
    layer_tuning,
    load_checks,
    vocabulary_blocks,
)
from audit_pipeline.token_statistics.backend import FloatArray, WindowBranches, WindowResult, Work
from audit_pipeline.token_statistics.compiled_reductions import CompiledReductions
from audit_pipeline.token_statistics.counterfactual_branches import Branches
from audit_pipeline.token_statistics.local_pass import run_in_batches
from audit_pipeline.token_statistics.reductions import MEASURED_NAMES, sweep
from audit_pipeline.token_statistics.shared_prefix import SharedPrefix, attend_to_prefix, build_prefix_inputs
from audit_pipeline.token_statistics.tokens import EncodedText, IntArray, Window, build_batch_arrays

# Minimum padded length in tokens. Matrix products with fewer rows use other kernels. In a model with massive
# activations, for example at a start token, their rounding moved log-probabilities by 2e-4. A text of one token must
# use the same kernels alone and in a batch.
_MIN_LENGTH = 16
_MOMENTS = ("logprob", "mean", "std")


class ForwardPass:
    """A loaded model that scores batches of windows. It implements :class:`Backend`.

    Sequences are padded on the right, and the model receives no mask. In a causal model no token sees the padding after
    it, and the fast attention kernels stay in use. The load checks detect a model that padding disturbs.

    Args:
        model: A causal language model in evaluation mode. Its layers may lie on several devices.
        vocab_size: Number of token ids that the model has.
        load_check: Results of earlier load checks of this model on this machine. Without them the checks run now, which
            takes some seconds.
        compiles: True to compile the layers of the decoder.

    Attributes:
        device: Device that receives the token ids.
        logits_device: Device that computes the logits.
        checked: Results of the load checks.
        equal_lengths: True if only windows of equal length share a batch, because padding changes the logits.
        length_step: Length beyond which the model encodes positions in another way (LongRoPE), or None. The padded
            length of a batch counts. Windows up to this length never share a batch with longer ones.
        min_batch_tokens: Number of tokens from which a batch takes no windows that are much shorter.
        packed: True if branches run as one packed pass over the keys and values of their text. Otherwise each branch
            runs separately.
        shared_prefix: True if the keys and values of a prefix are computed once for all texts after it. Otherwise the
            prefix runs again with every text.
        tokens_run: Number of tokens that have passed the model, including padding, without branches.
        branch_tokens_run: Number of tokens of branches that have passed the model, including padding.

    Raises:
        ModelError: If the logits are not numbers, or if the requested attention or the compiled layers change them.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        vocab_size: int,
        load_check: load_checks.LoadCheck | None = None,
        *,
        compiles: bool = False,
    ) -> None:
        self.model = model
        self.vocab_size = vocab_size
        self.tokens_run = 0
        self.branch_tokens_run = 0
        self.dtype = next(model.parameters()).dtype
        self.device = layer_tuning.find_input_device(model)
        self.logits_device = layer_tuning.find_output_device(model)
        self.config: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
        self.length_step = layer_tuning.find_longrope_switch(self.config)
        self.min_batch_tokens = calibration.choose_min_batch_tokens(model, self.device)
        self.scratch = vocabulary_blocks.Scratch(self.logits_device)
        self._compiles = compiles
        self._reduce: Callable[..., vocabulary_blocks.Reduced] = sweep
        self._last_prefix: SharedPrefix | None = None
        self._layers = layer_tuning.find_linear_layers(model)
        if load_check is None:
            use_onednn = not compiles and calibration.is_model_faster_with_onednn(self._layers)
        else:
            use_onednn = load_check.onednn
        self._linear = layer_tuning.choose_linear_function(onednn=use_onednn)
        # The head is found here because inside running(), every linear layer looks wrapped (is_wrapped).
        self.separate_head = vocabulary_blocks.find_head(model, self.config, self._linear)
        if load_check is None:
            self.apply_load_check(load_checks.LoadCheck(use_onednn, False, True, False, False))
            load_check = load_checks.check_model(self)
            if self.device.type == "cuda":
                load_check = replace(load_check, tokens_per_second=calibration.measure_tokens_per_second(self))
        self.apply_load_check(load_check)
        if compiles:
            load_checks.compile_and_check_layers(self)

    def apply_load_check(self, check: load_checks.LoadCheck) -> None:
        """Use from now on the fast ways of running the model that passed its load checks."""
        self.checked = check
        self.equal_lengths = check.equal_lengths
        self.packed = check.packed
        self.shared_prefix = check.shared_prefix
        self._head = self.separate_head if check.split else None
        if check.compiled and self._reduce is sweep:
            self._reduce = CompiledReductions()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Open a context in which the model runs without gradients and with the faster library for matrix products."""
        with torch.inference_mode(), layer_tuning.use_linear(self._layers, onednn=self.checked.onednn):
            yield

    @property
    def decoder(self) -> torch.nn.Module:
        """Return the model without its head."""
        if not hasattr(self.model, "get_decoder"):
            return self.model
        decoder: torch.nn.Module = self.model.get_decoder()  # type: ignore[operator]
        return decoder

    @property
    def described(self) -> str:
        """Return the device and the way of running branches, as a phrase for the log."""
        if self.packed:
            return f"on {self.device}, where branches share the pass of their text"
        return f"on {self.device}, where each branch has a pass of its own, which takes far longer"

    @property
    def local_backend(self) -> Self:
        """Return this model: it already runs in this process."""
        return self

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Run all windows of ``work``. See :meth:`Backend.run_work`."""
        return run_in_batches(self, work)

    def begin(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        wanted: Collection[str] = MEASURED_NAMES,
        *,
        before: Sequence[int] = (),
    ) -> Callable[[], list[WindowResult]]:
        """Start to score one batch of windows, without waiting for the device.

        Args:
            encoded: The texts. ``Window.text`` is an index of this list.
            batch: The windows.
            wanted: Names of the statistics to compute besides the log-probability. See :func:`reductions.sweep`.
            before: Token ids before every window. The window's start token follows them. If ``shared_prefix`` is set,
                consecutive batches with equal ids reuse their keys and values.

        Returns:
            A function that waits for the results and returns one result per window.
        """
        with self.running():
            return self.begin_batch(encoded, batch, wanted, before=before, shared=self.shared_prefix)

    def run_with_branches(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        steps: int,
        wanted: Collection[str] = MEASURED_NAMES,
        *,
        argmax: Sequence[IntArray] | None = None,
    ) -> list[WindowResult]:
        """Score a batch and its branches of up to ``steps`` tokens.

        Args:
            encoded: See :meth:`begin`.
            batch: See :meth:`begin`.
            steps: Maximum number of tokens per branch.
            wanted: See :meth:`begin`.
            argmax: See :meth:`run_branches`. Without it the branches start from the argmax tokens of this pass.
        """
        cache = DynamicCache() if self.packed else None
        with self.running():
            statistics = self.begin_batch(encoded, batch, {*wanted, "argmax_id"}, cache=cache)()
            if argmax is None:
                argmax = [result.values["argmax_id"] for result in statistics]  # type: ignore[index]
            branches = self._compute_branches(encoded, batch, argmax, steps, cache)
        return [replace(result, branches=own) for result, own in zip(statistics, branches, strict=True)]

    def run_branches(
        self, encoded: Sequence[EncodedText], batch: Sequence[Window], argmax: Sequence[IntArray], steps: int
    ) -> list[WindowResult]:
        """Compute the branches of windows whose statistics are already known.

        Args:
            encoded: See :meth:`begin`.
            batch: See :meth:`begin`.
            argmax: Argmax token of each scored token, one array per window. They are not computed again, because a
                near-tie could have another argmax in this pass.
            steps: Maximum number of tokens per branch.
        """
        cache = None
        with self.running():
            if self.packed:
                ids, _, _ = build_batch_arrays(encoded, batch, self._compute_padded_length(batch))
                self.tokens_run += ids.size
                cache = self.compute_kv_cache(torch.from_numpy(ids).to(self.device))
            branches = self._compute_branches(encoded, batch, argmax, steps, cache)
        return [WindowResult(window, branches=own) for window, own in zip(batch, branches, strict=True)]

    def pad_length(self, length: int) -> int:
        """Return the padded length of a batch whose longest sequence has ``length`` tokens.

        For compiled layers, only few lengths are used: sixteen between consecutive powers of two.
        """
        if self.equal_lengths:
            return length
        length = max(length, _MIN_LENGTH)
        step = 1
        if self._compiles:
            step = 1 << max(0, (length - 1).bit_length() - 5)
        max_length = getattr(self.config, "max_position_embeddings", None) or math.inf
        return int(max(length, min(-(-length // step) * step, max_length)))

    def _compute_padded_length(self, batch: Sequence[Window]) -> int:
        return self.pad_length(max(window.length for window in batch))

    # The methods below expect that the caller has entered running().

    def begin_batch(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        wanted: Collection[str],
        *,
        cache: Cache | None = None,
        before: Sequence[int] = (),
        shared: bool = False,
    ) -> Callable[[], list[WindowResult]]:
        """Start to score one batch, as :meth:`begin`.

        Args:
            encoded: See :meth:`begin`.
            batch: See :meth:`begin`.
            wanted: See :meth:`begin`.
            cache: An empty cache that receives the keys and values of the batch.
            before: See :meth:`begin`.
            shared: Compute the keys and values of ``before`` once instead of once per window.
        """
        cache_inputs: Mapping[str, Any] = {}
        attention: AbstractContextManager[None] = nullcontext()
        if cache is not None:
            cache_inputs = {"past_key_values": cache, "use_cache": True}
        if before and shared:
            prefix = self._get_shared_prefix(before)
            cache_inputs = build_prefix_inputs(prefix)
            attention = attend_to_prefix(self.config, prefix, self._linear)
            before = ()
        length = len(before) + self._compute_padded_length(batch)
        ids, rows, targets = build_batch_arrays(encoded, batch, length, before)
        self.tokens_run += ids.size
        inputs = {"input_ids": vocabulary_blocks.copy_to_device(ids, self.device), **cache_inputs}
        target = vocabulary_blocks.copy_to_device(np.concatenate(targets).astype(np.int64), self.logits_device)
        with attention:
            logits = self._compute_logits(
                inputs, vocabulary_blocks.copy_to_device(np.concatenate(rows), self.logits_device)
            )
        fetch = vocabulary_blocks.begin_fetch(self._reduce(logits, target, self.scratch, wanted))
        lengths = [len(scored) for scored in targets]
        return lambda: _split_statistics_by_window(batch, lengths, fetch())

    def _get_shared_prefix(self, ids: Sequence[int]) -> SharedPrefix:
        """Return the keys and values of a prefix. Reuse those of the last call if the token ids are equal."""
        if self._last_prefix is None or self._last_prefix.ids != ids:
            # Free the last prefix before the next one is computed: memory must not hold both.
            self.forget_prefix()
            self.tokens_run += len(ids)
            cache = self.compute_kv_cache(torch.tensor([ids], device=self.device))
            self._last_prefix = SharedPrefix.from_cache(ids, cache)
        return self._last_prefix

    def forget_prefix(self) -> None:
        """Free the keys and values of the last prefix. The next request for them computes them again."""
        self._last_prefix = None

    def compute_kv_cache(self, ids: torch.Tensor) -> Cache:
        """Return the keys and values of all tokens of ``ids`` [sequences, length]."""
        cache = DynamicCache()
        inputs = {"input_ids": ids, "use_cache": True, "past_key_values": cache}
        with self._disable_compiled_layers():
            if self._head is not None:
                self.compute_hidden(**inputs)
            else:
                self.model(**inputs)
        return cache

    def compute_hidden(self, **inputs: Any) -> torch.Tensor:
        """Return the last hidden states [sequences, length, d] of the decoder, on the device of the logits."""
        output = self.model.get_decoder()(**{"use_cache": False, **inputs})  # type: ignore[operator]
        hidden: torch.Tensor = output.last_hidden_state.to(self.logits_device)
        return hidden

    def _compute_logits(self, inputs: dict[str, Any], rows: torch.Tensor) -> vocabulary_blocks.Logits:
        """Return the logits at the positions ``rows`` [n] of the flattened batch, on the device of the logits."""
        compiled: AbstractContextManager[None] = nullcontext()
        if "past_key_values" in inputs:
            compiled = self._disable_compiled_layers()
        with compiled:
            if self._head is None:
                logits = self.model(**{"use_cache": False, **inputs}).logits
                return vocabulary_blocks.ComputedLogits(logits.to(self.logits_device).flatten(0, 1)[rows])
            return self._head.logits(self.compute_hidden(**inputs).flatten(0, 1)[rows])

    def _disable_compiled_layers(self) -> AbstractContextManager[None]:
        """Run the layers uncompiled inside this block: passes over cached keys and values have too many shapes."""
        return torch.compiler.set_stance("force_eager") if self._compiles else nullcontext()

    def _compute_branches(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        argmax: Sequence[IntArray],
        steps: int,
        cache: Cache | None,
    ) -> list[WindowBranches]:
        """Compute the branches of a batch. ``cache`` holds its keys and values. For None, each branch runs alone."""
        ids, _, _ = build_batch_arrays(encoded, batch, self._compute_padded_length(batch))
        branches = counterfactual_branches.list_branches(batch, ids, argmax, steps)
        if cache is None:
            return _split_branches_by_window(batch, branches, self.run_separately(branches, batch))
        return _split_branches_by_window(batch, branches, self.run_packed(branches, cache))

    def run_packed(self, branches: Branches, prefix: Cache) -> FloatArray:
        """Run branches over the keys and values of their windows. Batches that exceed the memory are halved.

        Returns:
            log p and z-score of every token of all branches: float array of shape (2, n_tokens).
        """
        moments = np.empty((2, int(branches.offsets[-1])), dtype=np.float32)
        rows = counterfactual_branches.assign_rows(branches, calibration.BRANCH_ROW_TOKENS[self.device.type])
        targets = branches.targets
        budget = calibration.BRANCH_TOKENS[self.device.type]
        waiting = list(counterfactual_branches.iterate_row_batches(branches, rows, budget))[::-1]
        while waiting:
            chosen = waiting.pop()
            try:
                layout = counterfactual_branches.build_layout(branches, rows, chosen, self.device)
                inputs = counterfactual_branches.build_branch_inputs(layout, prefix, self.config, self.dtype)
                with counterfactual_branches.use_key_positions(self.decoder, layout):
                    moments[:, layout.which] = self._compute_moments(inputs, layout.used, targets[layout.which])
                self.branch_tokens_run += layout.ids.numel()
            except torch.OutOfMemoryError:
                halves = counterfactual_branches.halve_batch(rows, chosen)
                if len(halves) == 1:
                    raise
                torch.cuda.empty_cache()
                waiting.extend(halves)
        return moments

    def run_separately(
        self, branches: Branches, batch: Sequence[Window], token_budget: int | None = None
    ) -> FloatArray:
        """Run each branch as a sequence of its own, with its prefix.

        Args:
            branches: The branches of ``batch``.
            batch: The windows.
            token_budget: Maximum number of tokens per batch of branches, including padding. The default depends on
                the device (calibration.py).

        Returns:
            log p and z-score as :meth:`run_packed` returns them.
        """
        moments = np.empty((2, int(branches.offsets[-1])), dtype=np.float32)
        window_lengths = np.array([window.length for window in batch])
        token_budget = token_budget or calibration.BRANCH_TOKENS[self.device.type]
        targets = branches.targets
        for rerun in counterfactual_branches.iterate_reruns(
            branches, window_lengths, token_budget, equal_lengths=self.equal_lengths, length_step=self.length_step
        ):
            self.branch_tokens_run += rerun.ids.size
            inputs = {"input_ids": torch.from_numpy(rerun.ids).to(self.device)}
            rows = torch.from_numpy(rerun.rows)
            moments[:, rerun.which] = self._compute_moments(inputs, rows, targets[rerun.which])
        return moments

    def _compute_moments(
        self, inputs: dict[str, Any], rows: torch.Tensor, targets: npt.NDArray[np.int64]
    ) -> FloatArray:
        """Compute log p and the z-score (log p - mu) / sigma of ``targets`` [n], with sigma at least ``SIGMA_FLOOR``.

        Args:
            inputs: Arguments of the model.
            rows: Positions of the logits in the flattened batch: [n].
            targets: Token ids that the logits predict: [n].

        Returns:
            Float array of shape (2, n).
        """
        target = vocabulary_blocks.copy_to_device(targets, self.logits_device)
        logits = self._compute_logits(inputs, rows.to(self.logits_device))
        statistics = self._reduce(logits, target, self.scratch, _MOMENTS)
        logprob = statistics["logprob"]
        sigma = statistics["std"].clamp(min=SIGMA_FLOOR)
        return torch.stack([logprob, (logprob - statistics["mean"]) / sigma]).cpu().numpy()


def _split_branches_by_window(batch: Sequence[Window], branches: Branches, moments: FloatArray) -> list[WindowBranches]:
    """Split the log p and z-scores of all branches by window: ``moments`` is of shape (2, n_tokens)."""
    tokens = np.bincount(branches.window, weights=branches.length, minlength=len(batch)).astype(np.int64)
    parts = np.split(moments, np.cumsum(tokens)[:-1], axis=1)
    result = []
    for number, window in enumerate(batch):
        is_own = branches.window == number
        lengths = np.zeros(window.end - window.score_from, dtype=np.int32)
        lengths[branches.scored[is_own]] = branches.length[is_own]
        result.append(WindowBranches(lengths, *parts[number]))
    return result


def _split_statistics_by_window(
    batch: Sequence[Window], lengths: Sequence[int], columns: Mapping[str, npt.NDArray[Any]]
) -> list[WindowResult]:
    """Split columns by window. ``lengths`` are the numbers of scored tokens per window."""
    results = []
    begin = 0
    for window, length in zip(batch, lengths, strict=True):
        end = begin + length
        results.append(WindowResult(window, {name: values[begin:end] for name, values in columns.items()}))
        begin = end
    return results
