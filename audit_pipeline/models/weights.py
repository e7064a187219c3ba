"""A model's weights in memory.

What belongs here: reading weights with transformers, and the choice of a device. What does not: what is known of a
model without them (load.py), running it (token_statistics/).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig
from transformers.utils import logging as transformers_logging

from audit_pipeline.errors import ModelError
from audit_pipeline.models.architecture import cannot_read, quiet, require_same_tensors, require_vocabulary_in
from audit_pipeline.models.convert import READ_ERRORS, keep_weights, parsing_once
from audit_pipeline.models.kept import weights_are_whole
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.models.locate import LocatedModel

# Converted weights are kept where so much stays free beside them.
_LEFT_FREE = 2 << 30


def default_device() -> str:
    """'cuda' where there is one, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_weights(
    tokenized: TokenizedModel, device: str, tell: Callable[[str], None] = lambda words: None
) -> torch.nn.Module:
    """The model in evaluation mode on ``device``, in the entry's dtype.

    A .gguf is dequantised once, into safetensors under the data folder, and read from there from then on; ``tell``
    hears of it. Raises ModelError where the weights are missing, cut short, or in a format that can run code.
    """
    if tokenized.entry.endpoint is not None:
        raise ModelError(
            f"the weights of {tokenized.entry.name} are not on this machine: {tokenized.entry.endpoint.url}"
        )
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("no CUDA device is available: leave --device out or give --device cpu")
    transformers_logging.disable_progress_bar()
    located = tokenized.located
    if located.gguf is None or weights_are_whole(tokenized.weights_folder):
        model = _from_pretrained(tokenized, tokenized.weights_folder)
    else:
        tell(f"{located.entry.name}: converting {located.gguf.name}, once")
        model = _from_gguf(tokenized)
        _keep(model, tokenized, tell)
    model = model.to(device).eval()
    model.requires_grad_(requires_grad=False)
    return model  # type: ignore[no-any-return]


def _from_gguf(tokenized: TokenizedModel) -> Any:
    """The model out of its .gguf, dequantised always: whether a package with kernels for packed weights is installed
    must not change a score."""
    assert tokenized.located.gguf is not None
    with parsing_once():
        return _from_pretrained(
            tokenized,
            tokenized.located.folder,
            # Read once already, when the tokenizer was converted; out of the .gguf it takes seconds.
            config=AutoConfig.from_pretrained(tokenized.config_folder),
            gguf_file=tokenized.located.gguf.name,
            quantization_config=GgufConfig(dequantize=True),
        )


def _from_pretrained(tokenized: TokenizedModel, folder: Any, **options: Any) -> Any:
    entry, located = tokenized.entry, tokenized.located
    try:
        with quiet():
            if located.gguf is None:
                _require_own_vocabulary(located)
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, entry.dtype),
                # Left to itself transformers takes sdpa where the architecture has it, else eager (Gemma 2, Mamba);
                # asked for sdpa by name it refuses those architectures.
                attn_implementation=None if entry.attention == "sdpa" else entry.attention,
                trust_remote_code=entry.trust_remote_code,
                use_safetensors=True,
                output_loading_info=True,
                # Told in our words, below.
                ignore_mismatched_sizes=True,
                **options,
            )
    except (*READ_ERRORS, ImportError) as error:
        raise cannot_read(entry.name, located.gguf or located.folder, "weights", error) from error
    require_same_tensors(entry.name, loading, [tensor for tensor, _ in model.named_parameters()])
    return model


def _require_own_vocabulary(located: LocatedModel) -> None:
    config = AutoConfig.from_pretrained(located.folder, trust_remote_code=located.entry.trust_remote_code)
    require_vocabulary_in(config, sorted(located.folder.glob("*.safetensors")), located.entry.name)


def _keep(model: Any, tokenized: TokenizedModel, tell: Callable[[str], None]) -> None:
    """Keep the converted weights, where the disk has room for them."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    folder = tokenized.weights_folder
    existing = next(parent for parent in folder.parents if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < size + _LEFT_FREE:
        tell(f"the converted weights are not kept: they take {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free")
        return
    keep_weights(model, tokenized.located, folder)
    tell(f"kept {size / 1e9:.2f} GB of converted weights in {folder}; `corpus-audit forget --model` removes them")
