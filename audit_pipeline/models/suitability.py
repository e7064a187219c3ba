"""Whether a model predicts next tokens and has a plausible size; and why not, in words.

What belongs here: what a configuration and an error of transformers say of that. What does not: reading weights
(tokenized_model.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from audit_pipeline.config.hints import find_nearest_names
from audit_pipeline.errors import ModelError, to_one_line
from audit_pipeline.models.config_json import MOST, require_plausible_sizes

_LONGEST_REASON = 300


def require_usable(config: Any, name: str) -> None:
    """Raise ModelError, with the reason, unless a model of ``config`` predicts next tokens and is of a size that is."""
    text = config.get_text_config()
    # By attribute: families call their sizes by names of their own.
    require_plausible_sizes({key: getattr(text, key, None) for key in MOST}, name)
    kind = config.model_type
    if config.is_encoder_decoder:
        raise ModelError(
            f"{name} is an encoder with a decoder ({kind}): it predicts what answers a text that its encoder has read, "
            "not the next token of that text; take a decoder-only model"
        )
    is_decoder = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_decoder:
        raise ModelError(
            f"{name} is an encoder ({kind}): it predicts masked tokens from both sides, not the next token of a text; "
            "take a decoder-only model (GPT, Llama and their like)"
        )
    if kind in CONFIG_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not _is_remote(config):
        raise ModelError(
            f"{name} predicts no next tokens: transformers {transformers.__version__} has no causal language model of "
            f"the architecture {kind}; take another model"
        )


def require_divisible(
    name: str, config_folder: Path, ranks: int, quantisation: object | None, *, trust_remote_code: bool
) -> None:
    """Raise ModelError unless transformers can divide every layer of a model by ``ranks``."""
    if quantisation is not None:
        raise ModelError(
            f"{name} cannot be divided: its weights are quantised ({quantisation}); set devices: auto "
            "in its entry instead of tensor_parallel"
        )
    config = transformers.AutoConfig.from_pretrained(config_folder, trust_remote_code=trust_remote_code)
    text = config.get_text_config()
    if not getattr(text, "base_model_tp_plan", None):
        raise ModelError(
            f"{name} cannot be divided: transformers has no tensor-parallel plan for {config.model_type}; "
            "set devices: auto in its entry instead of tensor_parallel"
        )
    # Some architectures have other numbers in some layers.
    heads = {layer.num_attention_heads for layer in text.per_layer_config}
    key_values = {
        getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads for layer in text.per_layer_config
    }
    # A number divides all of several numbers where it divides their greatest common divisor.
    common = math.gcd(*heads, *key_values)
    if common % ranks:
        possible = [str(number) for number in range(2, common + 1) if not common % number]
        fitting = f"set tensor_parallel: {' or '.join(possible)}" if possible else "no number does"
        raise ModelError(
            f"{name} cannot be divided by tensor_parallel: {ranks}, which has to divide its {_join_with_or(heads)} "
            f"attention heads and its {_join_with_or(key_values)} key-value heads: {fitting}, or devices: auto in its "
            "entry instead"
        )


def _join_with_or(numbers: Collection[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def _is_remote(config: Any) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def build_read_error(name: str, source: object, part: str, error: Exception) -> ModelError:
    """The error for a user: why ``part`` ('weights') of the model ``name``, stored at ``source``, cannot be read."""
    problem = to_one_line(error)
    if "trust_remote_code" in problem:
        return ModelError(
            f"{name} needs Python code that comes with it: read that code ({source}/*.py), and if you trust it, set "
            "trust_remote_code: true in the entry of this model in config/models.yaml"
        )
    if isinstance(error, StrictDataclassError):
        return ModelError(f"the config.json of {name} ({source}) cannot be used: {problem[:_LONGEST_REASON]}")
    return ModelError(
        f"the {part} of {name} cannot be read; if {source} was cut short, fetch it again: {problem[:_LONGEST_REASON]}"
    )


def find_architecture_error(config: Mapping[str, Any], name: str) -> ModelError | None:
    """The error for a config.json whose architecture transformers does not know and that brings no code of its own."""
    kind = config.get("model_type")
    if config.get("auto_map") or kind in CONFIG_MAPPING_NAMES:
        return None
    if not isinstance(kind, str):
        return ModelError(
            f"the config.json of {name} names no model_type, so its architecture is unknown: fetch it again"
        )
    near = find_nearest_names(kind, CONFIG_MAPPING_NAMES)
    hint = f"did you mean {near[0]}?" if near else "a later version may know it"
    return ModelError(
        f"{name} is of the architecture {kind!r}, which transformers {transformers.__version__} does not know; {hint}"
    )


def require_vocabulary_in(config: Any, files: Iterable[Path], name: str) -> None:
    """Raise ModelError, before anything is made of it, where the vocabulary alone takes more numbers than all ``files``
    (safetensors) hold."""
    text = config.get_text_config()
    expected = int(text.vocab_size) * int(getattr(text, "hidden_size", None) or 1)
    found = 0
    for file in files:
        with safe_open(file, framework="pt") as opened:
            found += sum(math.prod(opened.get_slice(tensor).get_shape()) for tensor in opened.keys())  # noqa: SIM118
    if expected > found:
        raise ModelError(
            f"the weights of {name} are not those of its config.json: {text.vocab_size:,} tokens of size "
            f"{text.hidden_size:,} would take more than the {found:,} numbers in its files: fetch both again"
        )


def require_same_tensors(name: str, loading: Mapping[str, Any], parameters: Sequence[str], *, is_packed: bool) -> None:
    """Raise ModelError where the files' tensors are not those of the model that config.json describes.

    ``loading`` is what transformers says of it, ``parameters`` are the names of the model's own tensors; ``is_packed``
    says that weights are quantised: another package reads their scales. Left to itself transformers fills what is
    missing or of another shape with random numbers, and leaves out what is too many.
    """
    if mismatched := sorted(loading["mismatched_keys"]):
        tensor, found, expected = mismatched[0]
        raise ModelError(
            f"the weights of {name} are not those of its config.json: {tensor} is {_format_shape(found)} in "
            "the file, and "
            f"by config.json it would be {_format_shape(expected)} ({len(mismatched)} tensors differ): fetch both again"
        )
    if missing := sorted(loading["missing_keys"]):
        raise ModelError(
            f"the weights of {name} lack {len(missing)} tensors of the model, {missing[0]} first: "
            "the files are incomplete, or config.json says more layers than there are; fetch them again"
        )
    kinds = {_mask_layer_numbers(tensor_name) for tensor_name in parameters}
    if more := sorted(
        tensor_name for tensor_name in loading["unexpected_keys"] if _mask_layer_numbers(tensor_name) in kinds
    ):
        raise ModelError(
            f"the weights of {name} have more layers than its config.json says: {more[0]} and {len(more) - 1} more "
            "tensors would be left out; fetch both again"
        )
    modules = {tensor_name.rpartition(".")[0] for tensor_name in parameters}
    # A bias, a scale of quantised weights, an adapter: without it the module computes something else.
    if left_out := sorted(
        tensor_name
        for tensor_name in loading["unexpected_keys"]
        if not is_packed and not modules.isdisjoint(accumulate(tensor_name.split(".")[:-1], "{}.{}".format))
    ):
        raise ModelError(
            f"the weights of {name} have tensors that its config.json says nothing of: {left_out[0]} and "
            f"{len(left_out) - 1} more would be left out; fetch both again"
        )


def _format_shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _mask_layer_numbers(tensor: str) -> str:
    """The name of a tensor, whichever layer it is of."""
    return ".".join("#" if part.isdigit() else part for part in tensor.split("."))


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Keep tables and advice of transformers off the terminal: the user reads our own messages instead."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
