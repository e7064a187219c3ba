"""Checks that a model predicts next tokens and that its files belong together, with messages for users."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from audit_pipeline.config.problems import find_nearest_names
from audit_pipeline.errors import ModelError, to_one_line

_LONGEST_REASON = 300


def require_causal(config: Any, name: str) -> None:
    """Raise ModelError if a model with this configuration does not predict next tokens."""
    kind = config.model_type
    is_decoder = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    brings_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    is_another = kind in CONFIG_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not brings_code
    if config.is_encoder_decoder or is_another or (kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_decoder):
        raise ModelError(
            f"{name} ({kind}) does not predict the next token of a text. Use a decoder-only model, such as GPT or "
            "Llama."
        )


def build_read_error(name: str, source: object, part: str, error: Exception) -> ModelError:
    """Return the error that a ``part`` (such as 'weights') of the model ``name`` cannot be read from ``source``."""
    problem = to_one_line(error)
    if "trust_remote_code" in problem:
        return ModelError(
            f"{name} requires Python code that is among its files. Read the code ({source}/*.py). If you trust it, set "
            "trust_remote_code: true in the entry of this model in config/models.yaml."
        )
    if isinstance(error, StrictDataclassError):
        return ModelError(f"the config.json of {name} ({source}) cannot be used: {problem[:_LONGEST_REASON]}")
    again = "copy" if os.path.exists(str(source)) else "fetch"
    return ModelError(
        f"the {part} of {name} cannot be read. If {source} is incomplete, {again} it again. Cause: "
        f"{problem[:_LONGEST_REASON]}"
    )


def require_known_architecture(config: Mapping[str, Any], name: str) -> None:
    """Raise ModelError if transformers lacks the architecture of a config.json and the model brings no code."""
    kind = config.get("model_type")
    if config.get("auto_map") or kind in CONFIG_MAPPING_NAMES:
        return
    near = find_nearest_names(str(kind), CONFIG_MAPPING_NAMES)
    hint = "A later version of transformers may support it."
    if near:
        hint = f"Did you mean {near[0]}?"
    raise ModelError(
        f"{name} has the architecture {kind!r}, which transformers {transformers.__version__} does not support. {hint}"
    )


def require_same_tensors(name: str, loading: Mapping[str, Any], parameters: Sequence[str], *, is_packed: bool) -> None:
    """Raise ModelError if the tensors in the files differ from those that config.json describes.

    transformers fills missing tensors, or tensors of another shape, with random numbers. It ignores additional tensors,
    such as layers, a bias or an adapter.

    Args:
        name: Name of the model.
        loading: Report of transformers about the loaded tensors.
        parameters: Names of the model's tensors.
        is_packed: True if the weights are quantised. Their scales are additional tensors that another package reads.
    """
    kinds = {_mask_layer_numbers(tensor) for tensor in parameters}
    modules = {tensor.rpartition(".")[0] for tensor in parameters}
    ignored = []
    for tensor in sorted(loading["unexpected_keys"]):
        parents = accumulate(tensor.split(".")[:-1], "{}.{}".format)
        if _mask_layer_numbers(tensor) in kinds or not (is_packed or modules.isdisjoint(parents)):
            ignored.append(tensor)
    reshaped = sorted(tensor for tensor, *_ in loading["mismatched_keys"])
    wrong = [*reshaped, *sorted(loading["missing_keys"]), *ignored]
    if wrong:
        raise ModelError(
            f"the weights of {name} do not match its config.json: {len(wrong)} tensors are missing, unexpected or of "
            f"another shape, for example {wrong[0]}. Use weights and config.json of the same model."
        )


def _mask_layer_numbers(tensor: str) -> str:
    """Return the name of a tensor with '#' in place of layer numbers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "#", tensor)


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Hide tables and advice of transformers inside this block. Our own messages replace them."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
