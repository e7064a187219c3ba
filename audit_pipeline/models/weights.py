"""A model's weights in memory.

What belongs here: reading weights with transformers, and the choice of a device. What does not: what is known of a
model without them (load.py), running it (token_statistics/).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig
from transformers.distributed import DistributedConfig
from transformers.utils import logging as transformers_logging

from audit_pipeline.errors import ModelError
from audit_pipeline.models.architecture import cannot_read, quiet, require_same_tensors, require_vocabulary_in
from audit_pipeline.models.convert import READ_ERRORS, keep_weights, parsing_once
from audit_pipeline.models.kept import weights_are_whole
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.models.quantised import require_package
from audit_pipeline.models.room import compute_weight_memory, require_device, require_room, weight_files

# Converted weights are kept where so much stays free beside them.
_LEFT_FREE = 2 << 30


def default_device() -> str:
    """'cuda' where there is one, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_weights(
    tokenized: TokenizedModel, device: str, tell: Callable[[str], None] = lambda words: None
) -> torch.nn.Module:
    """The model in evaluation mode on ``device``, in the entry's dtype.

    With ``devices: auto`` its layers lie on all devices of that kind, and what they have no room for in main memory and
    on disk. In a process that is a rank of several, it holds this rank's part of every layer. A .gguf is dequantised
    once, into safetensors under the data folder, and read from there from then on; ``tell`` hears of it. Raises
    ModelError where the weights are missing, cut short, in a format that can run code or that a package is lacking for,
    and where there is certainly no room for them.
    """
    if tokenized.entry.endpoint is not None:
        raise ModelError(
            f"the weights of {tokenized.entry.name} are not on this machine: {tokenized.entry.endpoint.url}"
        )
    require_device(device)
    transformers_logging.disable_progress_bar()
    require_package(tokenized.entry.name, tokenized.quantisation)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        how = DistributedConfig(tp_size=torch.distributed.get_world_size())
        model = _from_pretrained(tokenized, tokenized.weights_folder, distributed_config=how)
    else:
        require_room(tokenized, device)
        put = _on_one if tokenized.entry.devices is None else _on_all
        model = put(tokenized, device, tell)
    model = model.eval()
    model.requires_grad_(requires_grad=False)
    return model  # type: ignore[no-any-return]


def in_safetensors(tokenized: TokenizedModel, tell: Callable[[str], None]) -> TokenizedModel:
    """The same model, read from safetensors: a .gguf is converted where that has not been done.

    Raises ModelError where the disk has no room for what it is converted into.
    """
    located = tokenized.located
    if located.gguf is None:
        return tokenized
    if not weights_are_whole(tokenized.weights_folder):
        _converted(tokenized, tell)
    if not tokenized.weights_folder.exists():
        raise ModelError(
            f"{located.entry.name} is read by several devices out of converted weights, and the disk has no room for "
            f"them: make room under {tokenized.weights_folder.parent}, or leave devices and tensor_parallel out"
        )
    folder = tokenized.weights_folder
    return replace(tokenized, located=replace(located, folder=folder, gguf=None), config_folder=folder)


def _on_all(tokenized: TokenizedModel, device: str, tell: Callable[[str], None]) -> Any:
    plain = in_safetensors(tokenized, tell)
    # Else the library would take the GPUs as well.
    room = {"cpu": compute_weight_memory()} if device == "cpu" else None
    model = _from_pretrained(plain, plain.weights_folder, device_map=plain.entry.devices, max_memory=room)
    tell(f"{plain.entry.name}: its layers lie on {', '.join(sorted(_devices_of(model)))}")
    return model


def _on_one(tokenized: TokenizedModel, device: str, tell: Callable[[str], None]) -> Any:
    if tokenized.located.gguf is not None and not weights_are_whole(tokenized.weights_folder):
        return _converted(tokenized, tell).to(device)
    if tokenized.quantisation is not None:
        # Packed weights are put where they stay: they cannot be moved, or not without being unpacked.
        return _from_pretrained(tokenized, tokenized.weights_folder, device_map={"": device})
    return _from_pretrained(tokenized, tokenized.weights_folder).to(device)


def _converted(tokenized: TokenizedModel, tell: Callable[[str], None]) -> Any:
    """The model out of its .gguf, on the CPU; what it is converted into is kept."""
    assert tokenized.located.gguf is not None
    tell(f"{tokenized.entry.name}: converting {tokenized.located.gguf.name}, once")
    model = _from_gguf(tokenized)
    _keep(model, tokenized, tell)
    return model


def _devices_of(model: Any) -> set[str]:
    """The devices that the layers of a model lie on, and 'disk' where they are read when they are run."""
    by_layer = getattr(model, "hf_device_map", None) or {"": model.device}
    return {f"cuda:{where}" if isinstance(where, int) else str(where) for where in by_layer.values()}


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
                config = AutoConfig.from_pretrained(located.folder, trust_remote_code=entry.trust_remote_code)
                require_vocabulary_in(config, weight_files(located.folder), entry.name)
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
