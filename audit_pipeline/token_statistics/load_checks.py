"""The checks of a model at loading: fast ways of running it must give the logits of a plain forward pass.

A check compares a fast result with its reference by the relative deviation (root mean square). The tolerance is the
deviation that rounding in the model's dtype explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from audit_pipeline.errors import ModelError
from audit_pipeline.models.model_checks import silence_transformers
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import FloatArray
from audit_pipeline.token_statistics.compiled_reductions import CompiledReductions
from audit_pipeline.token_statistics.counterfactual_branches import list_branches
from audit_pipeline.token_statistics.layer_tuning import compile_decoder_layers, has_local_attention
from audit_pipeline.token_statistics.reductions import MEASURED_NAMES, sweep
from audit_pipeline.token_statistics.tokens import Window, build_batch_arrays, wrap_token_ids
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits

# forward.py imports this module, so its class cannot be imported here.
ForwardPass = Any

CHECK_VERSION = 6

# Largest relative deviation that rounding explains between two computations of the same logits.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
# If rounding was measured, this multiple of the measured deviation is tolerated.
_ROUNDING_FACTOR = 4.0
# The check of padding tolerates at most this multiple of _TOLERANCE, however large the measured rounding is.
_MAX_ROUNDING_TOLERANCES = 5.0
# Tolerated deviation of the compiled reductions from the sweep.
_COMPILED_TOLERANCE = 1e-4
# Two implementations of attention are compared over this number of tokens. The tolerated multiple of _TOLERANCE lies
# between two measurements: rounding reached 1.6 in 23 tiny models. Falcon's eager ALiBi, which is wrong, reached 11.
_ATTENTION_TOKENS = 64
_ATTENTION_FACTOR = 4.0
# Token budget of the branch check, small enough that its two texts run in several batches.
_FEW_BRANCH_TOKENS = 64
# Lengths of the two texts with which branches and prefixes are checked.
_TEXT_LENGTHS = (24, 17)


@dataclass(frozen=True)
class LoadCheck:
    """The results of the load checks of a model on a machine.

    Attributes:
        onednn: True if oneDNN multiplies the linear layers faster than torch's default library (calibration.py).
        split: True if decoder and head can run separately.
        equal_lengths: True if only windows of equal length may share a batch.
        packed: True if branches can run as one packed pass over the keys and values of their text.
        shared_prefix: True if the keys and values of a prefix can be computed once for all texts after it.
        compiled: True if compiled formulas reduce the logits (compiled_reductions.py).
        tokens_per_second: Measured speed on a GPU; None on a CPU.
    """

    onednn: bool
    split: bool
    equal_lengths: bool
    packed: bool
    shared_prefix: bool
    compiled: bool = False
    tokens_per_second: float | None = None


def read_load_check(model: TokenizedModel, paths: DataPaths, device: str) -> LoadCheck | None:
    """Return the results of earlier load checks of the model on this machine, or None."""
    cached = read_json_if_whole(paths.load_check(model.identity.model_fingerprint, model.entry.devices))
    if cached is None or cached["machine"] != describe_machine(device):
        return None
    return LoadCheck(**cached["found"])


def describe_machine(device: str) -> Mapping[str, object]:
    """Return what the results of load checks depend on besides the model: versions and the processor."""
    if device.startswith("cuda"):
        processor = torch.cuda.get_device_name(device)
    else:
        processor = torch.backends.cpu.get_cpu_capability()
    return {
        "check": CHECK_VERSION,
        "device": f"{device.split(':', maxsplit=1)[0]} {processor}",
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def check_model(forward: ForwardPass) -> LoadCheck:
    """Run all load checks of a model. Each check already uses the fast ways that passed earlier checks.

    Raises:
        ModelError: If the logits are not numbers, or if the requested attention gives other logits than the default.
    """
    _require_default_attention(forward)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(forward.vocab_size, (4, 12), generator=generator).to(forward.device)
    other_ids = torch.randint(forward.vocab_size, (3, 12), generator=generator).to(forward.device)
    with forward.running():
        expected = compute_whole_logits(forward, ids)
        _require_numbers(forward, expected)
        split = _is_split_equal(forward, ids, expected)
        equal_lengths = _is_changed_by_padding(forward, ids, other_ids, expected)
    check = LoadCheck(forward.checked.onednn, split, equal_lengths, packed=False, shared_prefix=False)
    forward.apply_load_check(check)
    if not (equal_lengths or forward.length_step is not None or has_local_attention(forward.config)):
        packed = _is_packed_equal(forward)
        shared_prefix = _is_shared_prefix_equal(forward)
        check = LoadCheck(check.onednn, split, equal_lengths, packed, shared_prefix)
    if forward.logits_device.type == "cuda":
        check = replace(check, compiled=_is_compiled_reduction_equal(forward))
    forward.apply_load_check(check)
    return check


def _require_default_attention(forward: ForwardPass) -> None:
    """Raise ModelError if the requested attention gives other logits than the default of transformers."""
    model: Any = forward.model
    if not hasattr(model, "get_correct_attn_implementation"):
        return
    requested = model.config._attn_implementation
    default = model.get_correct_attn_implementation(None)
    if requested == default:
        return
    max_length = getattr(forward.config, "max_position_embeddings", None) or _ATTENTION_TOKENS
    shape = (1, min(_ATTENTION_TOKENS, max_length))
    ids = torch.randint(forward.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(forward.device)
    with forward.running():
        logits = compute_whole_logits(forward, ids)
        try:
            _set_attention(model, default)
            expected = compute_whole_logits(forward, ids)
        finally:
            _set_attention(model, requested)
    if logits.isnan().any() or _are_close(logits, expected, _ATTENTION_FACTOR * _TOLERANCE[forward.dtype]):
        return
    targets = ids[0, 1:, None].to(forward.logits_device)
    deviation = (logits.log_softmax(-1) - expected.log_softmax(-1))[:-1].gather(1, targets).abs()
    raise ModelError(
        f"'attention: {requested}' changes the log-probabilities of tokens by up to {float(deviation.max()):.2g} nats "
        f"compared with transformers' default ({default}). Remove 'attention' from the model's entry."
    )


def _set_attention(model: Any, attention: str) -> None:
    with silence_transformers():
        model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        # Falcon reads its configuration at every pass, and transformers does not update that field.
        model.config._attn_implementation = attention


def _require_numbers(forward: ForwardPass, logits: torch.Tensor) -> None:
    if logits.isnan().any():
        raise ModelError(
            f"with dtype {str(forward.dtype).removeprefix('torch.')}, the model's logits are not numbers. Check its "
            "weights for damage, or set another 'dtype' in its entry (bfloat16 or float32)."
        )


def _is_split_equal(forward: ForwardPass, ids: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return True if decoder and head, run separately, give the logits of the whole model."""
    if forward.separate_head is None:
        return False
    try:
        logits = compute_split_logits(forward, ids)
    except (AttributeError, TypeError, RuntimeError):
        # The decoder of this model cannot run without its head.
        return False
    return _are_close(logits, expected, _TOLERANCE[forward.dtype])


def _is_changed_by_padding(
    forward: ForwardPass, ids: torch.Tensor, other_ids: torch.Tensor, expected: torch.Tensor
) -> bool:
    """Return True if padding after a text changes its logits by more than rounding.

    A batch of another shape uses other kernels, whose rounding can be as large as the effect of padding. So both runs
    have one shape: the text is followed by other tokens in one, and by padding in the other. The logits of a causal
    model are then equal to the last bit.

    In some models the logits depend on all tokens of a batch, through experts or the scales of activations. A third run
    with other texts in the batch measures this dependence, which counts as rounding.

    Args:
        forward: The model.
        ids: Token ids [4, 12].
        other_ids: Other texts for the batch: [3, 12].
        expected: Logits [12, V] of the first sequence of ``ids``.
    """
    text_length = 7
    padded = ids.clone()
    padded[0, text_length:] = 0
    among_others = ids.clone()
    among_others[1:] = other_ids
    expected = expected[:text_length]
    rounding = measure_deviation(compute_whole_logits(forward, among_others)[:text_length], expected)
    deviation = measure_deviation(compute_whole_logits(forward, padded)[:text_length], expected)
    tolerance = min(_ROUNDING_FACTOR * rounding, _MAX_ROUNDING_TOLERANCES * _TOLERANCE[forward.dtype])
    return deviation > tolerance


def compute_whole_logits(forward: ForwardPass, ids: torch.Tensor) -> torch.Tensor:
    """Compute the logits [length, V] of the first sequence with the model as a whole, in float32."""
    logits: torch.Tensor = forward.model(input_ids=ids, use_cache=False).logits
    return logits[0].to(forward.logits_device).float()


def compute_split_logits(forward: ForwardPass, ids: torch.Tensor) -> torch.Tensor:
    """Compute the logits [length, V] of the first sequence with decoder and head run separately."""
    assert forward.separate_head is not None
    logits = forward.separate_head.logits(forward.compute_hidden(input_ids=ids)[0])
    buffer = torch.empty(len(logits), logits.width, device=forward.logits_device)
    block: torch.Tensor = logits.block(0, logits.width, buffer)
    return block


def _is_packed_equal(forward: ForwardPass) -> bool:
    """Return True if the packed pass gives the branches that separate runs give."""
    generator = np.random.default_rng(0)
    texts = []
    for length in _TEXT_LENGTHS:
        ids_of_text = generator.integers(forward.vocab_size, size=length, dtype=np.int32)
        texts.append(wrap_token_ids(ids_of_text))
    argmax = []
    for length in _TEXT_LENGTHS:
        argmax.append(generator.integers(forward.vocab_size, size=length - 1, dtype=np.int32))
    batch = [Window(number, 0, length, 1, False) for number, length in enumerate(_TEXT_LENGTHS)]
    ids, _, _ = build_batch_arrays(texts, batch, max(_TEXT_LENGTHS))
    branches = list_branches(batch, ids, argmax, 3)

    def run_packed() -> FloatArray:
        cache = forward.compute_kv_cache(torch.from_numpy(ids).to(forward.device))
        logprob: FloatArray = forward.run_packed(branches, cache)[0]
        return logprob

    return _has_equal_results(
        forward,
        run_packed,
        reference=lambda: forward.run_separately(branches, batch)[0],
        rebatched_reference=lambda: forward.run_separately(branches, batch, _FEW_BRANCH_TOKENS)[0],
    )


def _is_shared_prefix_equal(forward: ForwardPass) -> bool:
    """Return True if texts over the cached keys and values of a prefix give the results of prefix and text together."""
    generator = np.random.default_rng(0)
    before = generator.integers(forward.vocab_size, size=24).tolist()
    texts = []
    for length in reversed(_TEXT_LENGTHS):
        ids = generator.integers(forward.vocab_size, size=length, dtype=np.int32)
        texts.append(wrap_token_ids(ids, start_token_id=before[-1]))
    batch = [Window(number, 0, len(text.token_id), 0, True) for number, text in enumerate(texts)]

    def compute_logprobs(batches: Sequence[Sequence[Window]], *, shared: bool) -> FloatArray:
        columns: list[FloatArray] = []
        for windows in batches:
            results = forward.begin_batch(texts, windows, (), before=before[:-1], shared=shared)()
            columns += [result.values["logprob"] for result in results]
        return np.concatenate(columns)

    return _has_equal_results(
        forward,
        lambda: compute_logprobs([batch], shared=True),
        reference=lambda: compute_logprobs([batch], shared=False),
        rebatched_reference=lambda: compute_logprobs([[window] for window in batch], shared=False),
    )


def _has_equal_results(
    forward: ForwardPass,
    fast: Callable[[], FloatArray],
    *,
    reference: Callable[[], FloatArray],
    rebatched_reference: Callable[[], FloatArray],
) -> bool:
    """Return True if the model can run the fast way and then gives the results of the reference.

    ``rebatched_reference`` is the reference in batches of another shape: the two differ by rounding only.
    """
    try:
        with forward.running():
            fast_values = fast()
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, RuntimeError):
        # The model accepts no such cache or mask.
        return False
    with forward.running():
        expected = torch.from_numpy(reference())
        rounding = measure_deviation(torch.from_numpy(rebatched_reference()), expected)
    tolerance = max(_TOLERANCE[forward.dtype], _ROUNDING_FACTOR * rounding)
    return _are_close(torch.from_numpy(fast_values), expected, tolerance)


@torch.inference_mode()
def _is_compiled_reduction_equal(forward: ForwardPass) -> bool:
    """Return True if torch can compile the reductions on this machine, and they give the results of the sweep."""
    device = forward.logits_device
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(16, forward.vocab_size, generator=generator).to(device, forward.dtype)
    target = torch.arange(16, device=device) % forward.vocab_size
    try:
        statistics = CompiledReductions()(ComputedLogits(values), target, forward.scratch, MEASURED_NAMES)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # The compiler or Triton is missing, or Triton does not support this GPU.
        return False
    expected = sweep(ComputedLogits(values), target, forward.scratch, MEASURED_NAMES)
    # argmax_id is not compared: several tokens can share the largest logit, and either may be reported.
    return all(
        _are_close(statistics[name].float(), expected[name].float(), _COMPILED_TOLERANCE)
        for name in MEASURED_NAMES - {"argmax_id"}
    )


def compile_and_check_layers(forward: ForwardPass) -> None:
    """Compile the layers of the decoder and check that the logits stay equal.

    Raises:
        ModelError: If torch cannot compile the layers, or if the compiled layers change the logits.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(forward.vocab_size, (4, 16), generator=generator).to(forward.device)
    with forward.running():
        expected = compute_whole_logits(forward, ids)
        rebatched = compute_whole_logits(forward, ids[:1])
    compile_decoder_layers(forward.decoder)
    try:
        with forward.running():
            logits = compute_whole_logits(forward, ids)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"torch cannot compile the model's layers on this machine ({reason}). "
            "Remove 'compile' from the model's entry."
        ) from error
    rounding = measure_deviation(rebatched, expected)
    if not _are_close(logits, expected, max(_TOLERANCE[forward.dtype], _ROUNDING_FACTOR * rounding)):
        raise ModelError("compiled layers change the model's logits. Remove 'compile' from the model's entry.")


def _are_close(values: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    return measure_deviation(values, expected) <= tolerance


def measure_deviation(values: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative deviation (root mean square). It is infinite if other values than expected are infinite."""
    # Logits of -inf (tokens that a model rules out) would make every difference NaN.
    is_finite = expected.isfinite()
    if not torch.equal(values.isfinite(), is_finite):
        return math.inf
    difference = torch.where(is_finite, values - expected, 0.0).norm()
    if not difference:
        return 0.0
    return float(difference / torch.where(is_finite, expected, 0.0).norm())
