"""The forward pass: batches of token ids in, statistics of every scored token out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, DynamicCache

from audit_pipeline.errors import ModelError
from audit_pipeline.models.model_checks import silence_transformers
from audit_pipeline.tables import MEASURED, SIGMA_FLOOR
from audit_pipeline.token_statistics.backend import FloatArray, WindowBranches, WindowResult, Work
from audit_pipeline.token_statistics.compiled_reductions import CompiledReductions
from audit_pipeline.token_statistics.counterfactual_branches import (
    Branches,
    assign_rows,
    build_branch_inputs,
    build_layout,
    halve_batch,
    iterate_reruns,
    iterate_row_batches,
    list_branches,
    use_key_positions,
)
from audit_pipeline.token_statistics.layer_tuning import (
    choose_linear_function,
    compile_decoder_layers,
    find_input_device,
    find_linear_layers,
    find_longrope_switch,
    find_output_device,
    has_local_attention,
    is_model_faster_with_onednn,
    use_linear,
)
from audit_pipeline.token_statistics.local_pass import run_in_batches
from audit_pipeline.token_statistics.reductions import begin_fetch, copy_to_device, sweep
from audit_pipeline.token_statistics.shared_prefix import SharedPrefix, attend_to_prefix, build_prefix_inputs
from audit_pipeline.token_statistics.tokens import EncodedText, IntArray, Window, build_batch_arrays
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Head, Logits, Reduced, Scratch, find_head

# Matrix products of fewer rows take other kernels. Where a model has massive activations (at a start token, say), their
# rounding moved log-probabilities by 2e-4: a text of one token alone must take the path that it takes among others.
_MIN_LENGTH = 16
_ROW_TOKENS = {"cpu": 128, "cuda": 512}
BRANCH_TOKENS = {"cpu": 512, "cuda": 32768}
"""Padded tokens of one batch of branches."""
_FEW_BRANCH_TOKENS = 64
_MEASURED = frozenset(measured.name for measured in MEASURED)
_MOMENTS = ("logprob", "mean", "std")
# Largest relative deviation (root mean square) between two ways to the same logits that rounding explains.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
# Where rounding alone was measured, two ways may differ by so many times as much; in the check of padding by so many
# tolerances at most.
_ROUNDING_FACTOR, _MOST_ROUNDING = 4.0, 5.0
# What the compiled reductions may differ by from the sweep.
_COMPILED_TOLERANCE = 1e-4
# The batch whose time is taken: sequences and tokens of each.
_TIMED = (64, 128)
# Tokens by which two implementations of attention are compared, and the multiple of that deviation that they may
# differ by: rounding made 1.6 of it in 23 tiny models, and Falcon's eager ALiBi, which is wrong, 11.
_ATTENTION_TOKENS, _ATTENTION_FACTOR = 64, 4.0


@dataclass(frozen=True)
class LoadCheck:
    """What the check at loading finds out of a model.

    ``onednn``: its linear layers are multiplied faster by oneDNN (layer_tuning.py). ``split``: body and head run
    apart. ``equal_lengths``: only windows of one length share a batch. ``packed``: branches run as one packed pass
    over the keys and values of their text. ``shared_prefix``: the keys and values of a prefix are computed once
    for all texts after it. ``compiled``: its logits are reduced by compiled formulas (compiled_reductions.py).
    ``tokens_per_second`` is the rate of a GPU; None on a processor.
    """

    onednn: bool
    split: bool
    equal_lengths: bool
    packed: bool
    shared_prefix: bool
    compiled: bool = False
    tokens_per_second: float | None = None


class ForwardPass:
    """A model in this process, ready to score windows: a :class:`Backend`.

    ``load_check`` is what an earlier check of the same model on this machine found out; without it the check takes some
    seconds. ``compiles``: the decoder's layers are compiled. Raises ModelError where its logits are not numbers.

    The layers may lie on several devices; ``device`` is where token ids are given to the model.

    Sequences are padded on the right and no mask is passed: in a causal model no real token can see the padding after
    it, and the fast attention kernels stay in use. Where a model is not causal (or takes its positions from
    padding), the check at loading finds it out: ``equal_lengths``. ``length_step`` is the length beyond which a model
    encodes positions otherwise (LongRoPE): windows on either side of it do not share a batch, since the padded length
    decides. Where the check finds that packed branches, or texts after a shared prefix, do not give what running each
    separately gives (or the model keeps no keys and values), each is run separately.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        vocab_size: int,
        load_check: LoadCheck | None = None,
        *,
        compiles: bool = False,
    ) -> None:
        self.model = model
        self._compiles = compiles
        self.device = find_input_device(model)
        self.dtype = next(model.parameters()).dtype
        self._end = find_output_device(model)
        self._branch_tokens = BRANCH_TOKENS[self.device.type]
        self.vocab_size = vocab_size
        self.tokens_run = 0
        self.branch_tokens_run = 0
        config: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
        self.length_step = find_longrope_switch(config)
        self._config = config
        self._head: Head | None = None
        self._scratch = Scratch(self._end)
        self._reduce: Callable[..., Reduced] = sweep
        self._layers = find_linear_layers(model)
        self._last_prefix: SharedPrefix | None = None
        self._onednn = (
            not compiles and is_model_faster_with_onednn(self._layers) if load_check is None else load_check.onednn
        )
        # Made while the model is not run: within that, every layer looks as if another library held it.
        head = find_head(model, config, choose_linear_function(onednn=self._onednn))
        checked = self._run_load_checks(head) if load_check is None else load_check
        self._head = head if checked.split else None
        if checked.compiled:
            self._reduce = CompiledReductions()
        self.checked = checked
        self.equal_lengths, self.packed = checked.equal_lengths, checked.packed
        self.shared_prefix = checked.shared_prefix
        if compiles:
            self._compile_layers()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within it, the model is run, by whatever: no gradients, and products by the faster library."""
        with torch.inference_mode(), use_linear(self._layers, onednn=self._onednn):
            yield

    def _compile_layers(self) -> None:
        """Compile the decoder's layers; raises ModelError where torch cannot, or they give other logits then."""
        ids = torch.randint(self.vocab_size, (4, 16), generator=torch.Generator().manual_seed(0)).to(self.device)
        with self.running():
            expected, reference_rebatched = self._compute_whole_logits(ids), self._compute_whole_logits(ids[:1])
        compile_decoder_layers(self._decoder())
        try:
            with self.running():
                found = self._compute_whole_logits(ids)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ModelError(
                f"torch cannot compile the model's layers on this machine ({str(error).strip().splitlines()[0]}): "
                "leave compile out of its entry"
            ) from error
        rounding = _measure_deviation(reference_rebatched, expected)
        if not _are_close(found, expected, max(_TOLERANCE[self.dtype], _ROUNDING_FACTOR * rounding)):
            raise ModelError("the model gives other logits with its layers compiled: leave compile out of its entry")

    def _run_load_checks(self, head: Head | None) -> LoadCheck:
        """What the check at loading finds out; each part is run as the parts before it say."""
        self._require_default_attention()
        split, equal_lengths = self._check(head)
        self._head = head if split else None
        self.equal_lengths = equal_lengths
        shareable = not (equal_lengths or self.length_step is not None or has_local_attention(self._config))
        packed = shareable and self._check_packed()
        shared = shareable and self._check_shared_prefix()
        compiled = self._end.type == "cuda" and self._check_compiled_reductions()
        if compiled:
            self._reduce = CompiledReductions()
        rate = self._measure_rate() if self.device.type == "cuda" else None
        return LoadCheck(self._onednn, split, equal_lengths, packed, shared, compiled, rate)

    def _require_default_attention(self) -> None:
        """Raise ModelError where the attention asked for gives other logits than transformers' default one."""
        model: Any = self.model
        if not hasattr(model, "get_correct_attn_implementation"):
            return
        asked, default = model.config._attn_implementation, model.get_correct_attn_implementation(None)
        if asked == default:
            return
        length = min(_ATTENTION_TOKENS, getattr(self._config, "max_position_embeddings", None) or _ATTENTION_TOKENS)
        ids = torch.randint(self.vocab_size, (1, length), generator=torch.Generator().manual_seed(0)).to(self.device)
        with self.running():
            found = self._compute_whole_logits(ids)
            try:
                _set_attention(model, default)
                expected = self._compute_whole_logits(ids)
            finally:
                _set_attention(model, asked)
        if found.isnan().any() or _are_close(found, expected, _ATTENTION_FACTOR * _TOLERANCE[self.dtype]):
            return
        apart = (found.log_softmax(-1) - expected.log_softmax(-1))[:-1].gather(1, ids[0, 1:, None].to(self._end))
        raise ModelError(
            f"the model gives other log-probabilities with attention: {asked} than with transformers' default "
            f"({default}), up to {float(apart.abs().max()):.2g} nats for a token: leave attention out of its entry"
        )

    def _check(self, head: Head | None) -> tuple[bool, bool]:
        """Whether body and head apart give the model's own logits, and whether what follows a text changes its logits.

        Another shape of batch takes other kernels, whose rounding may be as large as the effect of padding: so the text
        is run twice in one shape, followed by other tokens and by padding. A causal model's logits are equal to the
        last bit then. Where they are not, because a model's experts or the scales of its activations hang on all tokens
        of a batch, the other texts of the batch change them as well: that says how much of it is rounding.
        """
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(self.vocab_size, (4, 12), generator=generator).to(self.device)
        padded, among_others = ids.clone(), ids.clone()
        padded[0, 7:] = 0
        among_others[1:] = torch.randint(self.vocab_size, (3, 12), generator=generator).to(self.device)
        with self.running():
            whole = self._compute_whole_logits(ids)
            if whole.isnan().any():
                raise ModelError(
                    f"the model's logits are not numbers in {str(self.dtype).removeprefix('torch.')}: "
                    "its weights are damaged, or it needs another dtype (bfloat16 or float32)"
                )
            try:
                split = head is not None and _are_close(
                    self._compute_split_logits(head, ids), whole, _TOLERANCE[self.dtype]
                )
            except (AttributeError, TypeError, RuntimeError):
                # A body that cannot be run without its head.
                split = False
            own = whole[:7]
            rounding = _measure_deviation(self._compute_whole_logits(among_others)[:7], own)
            moved = _measure_deviation(self._compute_whole_logits(padded)[:7], own)
            return split, moved > min(_ROUNDING_FACTOR * rounding, _MOST_ROUNDING * _TOLERANCE[self.dtype])

    def _compute_whole_logits(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits [length, V] of the first sequence, from the model as it is."""
        logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits[0].to(self._end).float()

    def _check_packed(self) -> bool:
        """Whether the packed pass gives the branches that running each separately gives."""
        generator = np.random.default_rng(0)
        texts = [_text_of_ids(generator.integers(self.vocab_size, size=n, dtype=np.int32), None) for n in (24, 17)]
        batch = [Window(number, 0, len(text.token_id), 1, False) for number, text in enumerate(texts)]
        argmax = [generator.integers(self.vocab_size, size=len(text.token_id) - 1, dtype=np.int32) for text in texts]
        ids, _, _ = build_batch_arrays(texts, batch, 24)
        branches = list_branches(batch, ids, argmax, 3)
        return self._has_equal_results(
            lambda: self._run_packed(branches, self._compute_kv_cache(torch.from_numpy(ids).to(self.device)))[0],
            lambda: self._run_separately(branches, batch, self._branch_tokens)[0],
            lambda: self._run_separately(branches, batch, _FEW_BRANCH_TOKENS)[0],
        )

    def _check_shared_prefix(self) -> bool:
        """Whether texts over the keys and values of a prefix give what prefix and text give as one sequence."""
        generator = np.random.default_rng(0)
        before = generator.integers(self.vocab_size, size=24).tolist()
        texts = [
            _text_of_ids(generator.integers(self.vocab_size, size=n, dtype=np.int32), before[-1]) for n in (17, 24)
        ]
        batch = [Window(number, 0, len(text.token_id), 0, True) for number, text in enumerate(texts)]

        def logprobs(batches: Sequence[Sequence[Window]], *, shared: bool) -> FloatArray:
            found = [self._begin(texts, windows, (), before=before[:-1], shared=shared)() for windows in batches]
            return np.concatenate([window.values["logprob"] for windows in found for window in windows])  # type: ignore[index]

        return self._has_equal_results(
            lambda: logprobs([batch], shared=True),
            lambda: logprobs([batch], shared=False),
            lambda: logprobs([[window] for window in batch], shared=False),
        )

    def _has_equal_results(
        self,
        fast: Callable[[], FloatArray],
        reference: Callable[[], FloatArray],
        reference_rebatched: Callable[[], FloatArray],
    ) -> bool:
        """Whether the model can be run one way, and gives then what the other way gives.

        ``reference_rebatched`` is the other way in batches of another shape: what it differs by is rounding.
        """
        try:
            with self.running():
                found = fast()
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, TypeError, ValueError, IndexError, KeyError, RuntimeError):
            # A model that takes no such cache or mask.
            return False
        with self.running():
            expected = torch.from_numpy(reference())
            rounding = _measure_deviation(torch.from_numpy(reference_rebatched()), expected)
        tolerance = max(_TOLERANCE[self.dtype], _ROUNDING_FACTOR * rounding)
        return _are_close(torch.from_numpy(found), expected, tolerance)

    @torch.inference_mode()
    def _check_compiled_reductions(self) -> bool:
        """Whether torch compiles the reductions on this machine, and they give what the sweep gives."""
        generator = torch.Generator().manual_seed(0)
        values = torch.randn(16, self.vocab_size, generator=generator).to(self._end, self.dtype)
        target = torch.arange(16, device=self._end) % self.vocab_size
        try:
            found = CompiledReductions()(ComputedLogits(values), target, self._scratch, _MEASURED)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # No compiler, no Triton, or a GPU that it does not know.
            return False
        expected = sweep(ComputedLogits(values), target, self._scratch, _MEASURED)
        # Which of several largest logits is the mode is not said.
        return all(
            _are_close(found[name].float(), expected[name].float(), _COMPILED_TOLERANCE)
            for name in _MEASURED - {"argmax_id"}
        )

    def _measure_rate(self) -> float | None:
        """Tokens a second of a batch, its reductions included; None where there is no room for it."""
        count, length = _TIMED
        length = min(length, getattr(self._config, "max_position_embeddings", None) or length)
        generator = np.random.default_rng(0)
        texts = [
            _text_of_ids(generator.integers(self.vocab_size, size=length, dtype=np.int32), None) for _ in range(count)
        ]
        batch = [Window(number, 0, length, 1, False) for number in range(count)]
        try:
            with self.running():
                # The first time holds that of compiling.
                self._begin(texts, batch, _MEASURED)()
                began = time.perf_counter()
                self._begin(texts, batch, _MEASURED)()
        except torch.OutOfMemoryError:
            return None
        return count * length / (time.perf_counter() - began)

    def _compute_hidden(self, **inputs: Any) -> torch.Tensor:
        return self.model.get_decoder()(**{"use_cache": False, **inputs}).last_hidden_state.to(self._end)  # type: ignore[operator,no-any-return]

    def _compute_split_logits(self, head: Head, ids: torch.Tensor) -> torch.Tensor:
        """The logits [length, V] of one sequence, from body and head apart."""
        logits = head.logits(self._compute_hidden(input_ids=ids)[0])
        return logits.block(0, logits.width, torch.empty(len(logits), logits.width, device=self._end))

    def _compute_kv_cache(self, ids: torch.Tensor) -> Cache:
        """The keys and values of every token of ``ids``."""
        cache = DynamicCache()
        inputs = {"input_ids": ids, "use_cache": True, "past_key_values": cache}
        with self._uncompiled():
            if self._head is not None:
                self._compute_hidden(**inputs)
            else:
                self.model(**inputs)
        return cache

    def forget_prefix(self) -> None:
        """Free the keys and values of the last prefix; where they are asked for again, it is run again."""
        self._last_prefix = None

    @property
    def described(self) -> str:
        """Where the model is run, and how branches are, in words."""
        how = "packed over their text" if self.packed else "each run separately, which takes far longer"
        return f"on {self.device}, branches {how}"

    @property
    def local_backend(self) -> Self:
        """See Backend."""
        return self

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """See Backend."""
        return run_in_batches(self, work)

    def begin(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        wanted: Collection[str] = _MEASURED,
        *,
        before: Sequence[int] = (),
    ) -> Callable[[], list[WindowResult]]:
        """Begin to score one batch of windows; what is returned waits for a device that is still at them.

        ``encoded`` is the list that the windows' text numbers point into. ``wanted`` names the statistics that are kept
        apart from the log-probability (reductions.py). ``before`` are the tokens before every window; its start token
        follows them. Their keys and values are computed once for all batches in a row that have the same, where
        ``shared_prefix`` says so.
        """
        with self.running():
            return self._begin(encoded, batch, wanted, before=before, shared=self.shared_prefix)

    def run_with_branches(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        steps: int,
        wanted: Collection[str] = _MEASURED,
        *,
        argmax: Sequence[IntArray] | None = None,
    ) -> list[WindowResult]:
        """Score a batch as :meth:`begin` does, with the branches of up to ``steps`` tokens.

        They start from ``argmax`` as :func:`run_branches` does, else from the modes found.
        """
        cache = DynamicCache() if self.packed else None
        with self.running():
            statistics = self._begin(encoded, batch, {*wanted, "argmax_id"}, cache=cache)()
            modes = [window.values["argmax_id"] for window in statistics] if argmax is None else argmax  # type: ignore[index]
            branched = self._compute_branches(encoded, batch, modes, steps, cache)
        return [replace(own, branches=found.branches) for own, found in zip(statistics, branched, strict=True)]

    def run_branches(
        self, encoded: Sequence[EncodedText], batch: Sequence[Window], argmax: Sequence[IntArray], steps: int
    ) -> list[WindowResult]:
        """The branches of windows whose statistics are known.

        ``argmax`` holds each window's modes, one a scored token: they are taken as they are, since a near-tie could
        turn out otherwise.
        """
        cache = None
        with self.running():
            if self.packed:
                ids, _, _ = build_batch_arrays(encoded, batch, self._padded_length(batch))
                self.tokens_run += ids.size
                cache = self._compute_kv_cache(torch.from_numpy(ids).to(self.device))
            return self._compute_branches(encoded, batch, argmax, steps, cache)

    def pad_length(self, length: int) -> int:
        """The length that a batch is run with whose longest sequence has ``length`` tokens.

        Compiled layers take few lengths, eight from one power of two to the next.
        """
        if self.equal_lengths:
            return length
        length = max(length, _MIN_LENGTH)
        step = 1 << max(0, (length - 1).bit_length() - 4) if self._compiles else 1
        longest = getattr(self._config, "max_position_embeddings", None) or math.inf
        return int(max(length, min(-(-length // step) * step, longest)))

    def _padded_length(self, batch: Sequence[Window]) -> int:
        return self.pad_length(max(window.length for window in batch))

    def _begin(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        wanted: Collection[str],
        *,
        cache: Cache | None = None,
        before: Sequence[int] = (),
        shared: bool = False,
    ) -> Callable[[], list[WindowResult]]:
        with ExitStack() as meanwhile:
            over_cache: Mapping[str, Any] = {} if cache is None else {"past_key_values": cache, "use_cache": True}
            if before and shared:
                if self._last_prefix is None or self._last_prefix.ids != before:
                    # One is kept, until it is forgotten; two need not be in memory.
                    self.forget_prefix()
                    self.tokens_run += len(before)
                    filled = self._compute_kv_cache(torch.tensor([before], device=self.device))
                    self._last_prefix = SharedPrefix.of(before, filled)
                prefix, before = self._last_prefix, ()
                over_cache = build_prefix_inputs(prefix)
                meanwhile.enter_context(
                    attend_to_prefix(self._config, prefix, choose_linear_function(onednn=self._onednn))
                )
            ids, rows, targets = build_batch_arrays(encoded, batch, len(before) + self._padded_length(batch), before)
            self.tokens_run += ids.size
            inputs = {"input_ids": copy_to_device(ids, self.device), **over_cache}
            of = copy_to_device(np.concatenate(targets).astype(np.int64), self._end)
            logits = self._compute_logits(inputs, copy_to_device(np.concatenate(rows), self._end))
            fetched = begin_fetch(self._reduce(logits, of, self._scratch, wanted))
            lengths = [len(target) for target in targets]
            return lambda: _split_statistics_by_window(batch, lengths, fetched())

    def _compute_logits(self, inputs: dict[str, Any], rows: torch.Tensor) -> Logits:
        """The logits at the places ``rows`` of the flattened batch, which lie on the logits' device."""
        with self._uncompiled() if "past_key_values" in inputs else nullcontext():
            if self._head is None:
                logits = self.model(**{"use_cache": False, **inputs}).logits
                return ComputedLogits(logits.to(self._end).flatten(0, 1)[rows])
            return self._head.logits(self._compute_hidden(**inputs).flatten(0, 1)[rows])

    def _uncompiled(self) -> AbstractContextManager[None]:
        """Within it, layers are run as they are: what goes over the keys and values of others has too many shapes."""
        return torch.compiler.set_stance("force_eager") if self._compiles else nullcontext()

    def _moments(self, inputs: dict[str, Any], rows: torch.Tensor, targets: npt.NDArray[np.int64]) -> FloatArray:
        """log p and z-score (log p - mu) / sigma, sigma at least ``SIGMA_FLOOR``, of the targets [n] at the places
        ``rows`` [n]: [2, n]."""
        of = copy_to_device(targets, self._end)
        found = self._reduce(self._compute_logits(inputs, rows.to(self._end)), of, self._scratch, _MOMENTS)
        logprob, deviation = found["logprob"], found["std"].clamp(min=SIGMA_FLOOR)
        return torch.stack([logprob, (logprob - found["mean"]) / deviation]).cpu().numpy()

    def _compute_branches(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        argmax: Sequence[IntArray],
        steps: int,
        cache: Cache | None,
    ) -> list[WindowResult]:
        ids, _, _ = build_batch_arrays(encoded, batch, self._padded_length(batch))
        branches = list_branches(batch, ids, argmax, steps)
        found = (
            self._run_packed(branches, cache)
            if cache is not None
            else self._run_separately(branches, batch, self._branch_tokens)
        )
        return _split_branches_by_window(batch, branches, found)

    def _run_packed(self, branches: Branches, prefix: Cache) -> FloatArray:
        """log p and z of every token along the branches: [2, tokens of all branches]."""
        found = np.empty((2, int(branches.offsets[-1])), dtype=np.float32)
        rows = assign_rows(branches, _ROW_TOKENS[self.device.type])
        targets = branches.targets
        pending = list(iterate_row_batches(branches, rows, self._branch_tokens))[::-1]
        while pending:
            chosen = pending.pop()
            try:
                layout = build_layout(branches, rows, chosen, self.device)
                inputs = build_branch_inputs(layout, prefix, self._config, self.dtype)
                with use_key_positions(self._decoder(), layout):
                    found[:, layout.which] = self._moments(inputs, layout.used, targets[layout.which])
                self.branch_tokens_run += layout.ids.numel()
            except torch.OutOfMemoryError:
                halves = halve_batch(rows, chosen)
                if len(halves) == 1:
                    raise
                torch.cuda.empty_cache()
                pending.extend(halves)
        return found

    def _run_separately(self, branches: Branches, batch: Sequence[Window], token_budget: int) -> FloatArray:
        """As :func:`_run_packed`, each branch a sequence of its own with its prefix."""
        found = np.empty((2, int(branches.offsets[-1])), dtype=np.float32)
        whole = np.array([window.length for window in batch])
        targets = branches.targets
        for rerun in iterate_reruns(
            branches, whole, token_budget, equal_lengths=self.equal_lengths, length_step=self.length_step
        ):
            self.branch_tokens_run += rerun.ids.size
            inputs = {"input_ids": torch.from_numpy(rerun.ids).to(self.device)}
            found[:, rerun.which] = self._moments(inputs, torch.from_numpy(rerun.rows), targets[rerun.which])
        return found

    def _decoder(self) -> torch.nn.Module:
        decoder: torch.nn.Module = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model  # type: ignore[operator]
        return decoder


def _set_attention(model: Any, attention: str) -> None:
    with silence_transformers():
        model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        # Falcon asks its configuration at every pass, and transformers does not set that.
        model.config._attn_implementation = attention


def _are_close(logits: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    return _measure_deviation(logits, expected) <= tolerance


def _measure_deviation(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """The relative deviation (root mean square) from what is expected; infinite where other values are infinite."""
    # Logits of -inf (tokens that a model rules out) would make every difference NaN.
    finite = expected.isfinite()
    if not torch.equal(logits.isfinite(), finite):
        return math.inf
    difference = torch.where(finite, logits - expected, 0.0).norm()
    return float(difference / torch.where(finite, expected, 0.0).norm()) if difference else 0.0


def _text_of_ids(ids: IntArray, start_token_id: int | None) -> EncodedText:
    """Tokens without a text, for the check at loading."""
    nowhere = np.zeros(len(ids), dtype=np.int32)
    return EncodedText("", ids, nowhere, nowhere, start_token_id, int(start_token_id is None))


def _split_branches_by_window(
    batch: Sequence[Window], branches: Branches, branch_values: FloatArray
) -> list[WindowResult]:
    """``branch_values`` [2, tokens of all branches], cut into windows."""
    tokens = np.bincount(branches.window, weights=branches.length, minlength=len(batch)).astype(np.int64)
    parts = np.split(branch_values, np.cumsum(tokens)[:-1], axis=1)
    result = []
    for number, window in enumerate(batch):
        own = branches.window == number
        lengths = np.zeros(window.end - window.score_from, dtype=np.int32)
        lengths[branches.scored[own]] = branches.length[own]
        result.append(WindowResult(window, branches=WindowBranches(lengths, *parts[number])))
    return result


def _split_statistics_by_window(
    batch: Sequence[Window], lengths: Sequence[int], columns: Mapping[str, npt.NDArray[Any]]
) -> list[WindowResult]:
    ends = np.cumsum(lengths).tolist()
    return [
        WindowResult(window, {name: values[end - length : end] for name, values in columns.items()})
        for window, length, end in zip(batch, lengths, ends, strict=True)
    ]
