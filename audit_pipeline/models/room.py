"""Whether a model's weights fit the devices: found out from their files' headers, before anything is loaded.

What belongs here: bytes in memory, what devices have, and both in words. What does not: what a pass takes besides
(token_statistics/), loading (weights.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from audit_pipeline.errors import ModelError
from audit_pipeline.models.architecture import cannot_read
from audit_pipeline.models.load import TokenizedModel

# The numbers of quantised weights stay as they are published; plain ones become the entry's dtype.
_PLAIN = {"F64", "F32", "F16", "BF16"}
_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class Memory:
    """Bytes of a device: all that it has, and those that are free now."""

    total: int
    free: int


@dataclass(frozen=True)
class Fit:
    """Whether weights of so many ``bytes`` fit: now, and at all where nothing else takes memory; and that in words."""

    bytes: int
    now: bool
    ever: bool
    words: str


def require_device(device: str) -> None:
    """Raise ModelError where ``device`` is a GPU and there is none."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("no CUDA device is available: leave --device out or give --device cpu")


def main_memory() -> Memory:
    """The memory of the CPU."""
    found = psutil.virtual_memory()
    return Memory(found.total, found.available)


def gpus() -> list[Memory]:
    """The memory of every GPU."""
    found = (torch.cuda.mem_get_info(number) for number in range(torch.cuda.device_count()))
    return [Memory(total, free) for free, total in found]


def weight_bytes(tokenized: TokenizedModel, device: str) -> int:
    """What the weights take in memory, on ``device``: 'cpu' or 'cuda'.

    Raises ModelError where the header of a file cannot be read.
    """
    quantisation = tokenized.quantisation
    if quantisation is not None and not quantisation.stays_packed(device):
        return parameters(tokenized) * _itemsize(tokenized)
    try:
        files = sorted(tokenized.weights_folder.glob("*.safetensors"))
        found = sum(_bytes_in(file, tokenized) for file in files)
    except (SafetensorError, OSError) as error:
        if tokenized.located.gguf is None:
            raise cannot_read(tokenized.entry.name, tokenized.weights_folder, "weights", error) from error
        found = 0
    # A .gguf that has not been converted yet, or has to be again.
    return found or parameters(tokenized) * _itemsize(tokenized)


def _bytes_in(file: Path, tokenized: TokenizedModel) -> int:
    packed, total = tokenized.quantisation is not None, 0
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118  (not a mapping)
            part = opened.get_slice(name)
            kind = part.get_dtype()
            size = _BYTES.get(kind, 1) if packed and kind not in _PLAIN else _itemsize(tokenized)
            total += math.prod(part.get_shape()) * size
    return total


def _itemsize(tokenized: TokenizedModel) -> int:
    return int(getattr(torch, tokenized.entry.dtype).itemsize)


def parameters(tokenized: TokenizedModel) -> int:
    """The number of parameters, from the configuration alone; tied ones count once."""
    trusted = tokenized.entry.trust_remote_code
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(tokenized.config_folder, trust_remote_code=trusted), trust_remote_code=trusted
        )
    return sum(parameter.numel() for parameter in empty.parameters())


def fit_of(tokenized: TokenizedModel, device: str) -> Fit:
    """Whether the model's weights fit where its entry puts them; ``device``: 'cpu' or 'cuda'."""
    needed, ranks = weight_bytes(tokenized, device), tokenized.entry.tensor_parallel
    head = f"The weights take {_gb(needed)} in memory ({tokenized.quantisation or tokenized.entry.dtype})"
    if not device.startswith("cuda"):
        return _on_cpu(head, needed, tokenized.entry.devices is not None)
    every = gpus()
    if tokenized.entry.devices is not None:
        return _on_all(head, needed, every)
    if ranks is None:
        number = torch.device(device).index or 0
        return _fit(head, needed, needed, every[number : number + 1], "the GPU")
    if len(every) < ranks:
        words = f"{head}; tensor_parallel: {ranks} takes as many GPUs, and there are {len(every)}."
        return Fit(needed, now=False, ever=False, words=words)
    return _fit(f"{head}, {_gb(needed // ranks)} a GPU", needed, needed // ranks, every[:ranks], "the fullest GPU")


def require_room(tokenized: TokenizedModel, device: str) -> None:
    """Raise ModelError where the weights cannot fit, whatever else is in memory."""
    fit = fit_of(tokenized, device)
    if not fit.ever:
        raise ModelError(
            f"{tokenized.entry.name} is too large: {fit.words} Set devices: auto or tensor_parallel in its entry, "
            "or a smaller dtype (docs/new-model.md)"
        )


def _fit(head: str, needed: int, share: int, devices: Sequence[Memory], where: str) -> Fit:
    free, total = min(one.free for one in devices), min(one.total for one in devices)
    words = f"{head}, and {_verb(share, free)}: {where} has {_gb(free)} free of {_gb(total)}."
    return Fit(needed, share <= free, share <= total, words)


def _on_cpu(head: str, needed: int, to_disk: bool) -> Fit:
    memory, swap = main_memory(), psutil.swap_memory().total
    fit = _fit(head, needed, needed, [memory], "main memory")
    rest = " What has no room stays on disk and is read anew for every batch, which is slow." if to_disk else ""
    return Fit(needed, fit.now, to_disk or needed <= memory.total + swap, fit.words + ("" if fit.now else rest))


def _on_all(head: str, needed: int, every: Sequence[Memory]) -> Fit:
    free = sum(one.free for one in every)
    words = f"{head}, and {_verb(needed, free)}: {len(every)} GPUs have {_gb(free)} free together."
    if needed > free:
        words += f" The rest lies in main memory, which has {_gb(main_memory().free)} free, or on disk, which is slow."
    # There is always a place, if a slow one.
    return Fit(needed, needed <= free, ever=True, words=words)


def _verb(needed: int, free: int) -> str:
    return "fit" if needed <= free else "do not fit"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
