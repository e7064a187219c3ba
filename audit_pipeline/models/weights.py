"""A model's weights in memory, and before they are loaded whether they fit there."""

from __future__ import annotations

import math
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig
from transformers.utils import logging as transformers_logging

from audit_pipeline.errors import ModelError, ModelFilesWarning
from audit_pipeline.models.conversion import READ_ERRORS, cache_gguf_parsing, keep_weights
from audit_pipeline.models.converted_files import read_manifest_if_whole
from audit_pipeline.models.model_checks import build_read_error, require_same_tensors, silence_transformers
from audit_pipeline.models.quantisation import require_quantisation_package
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.weight_files import WeightFiles, choose_weight_files, shorten_names

# The numbers of quantised weights stay as they are published; plain ones become the entry's dtype.
_PLAIN = {"F64", "F32", "F16", "BF16"}
_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}

# Where Linux says what a group of processes may have of the memory (control groups, version 2).
_GROUPS, _GROUPS_OF_THIS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_FOR_WEIGHTS = 0.9


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


def measure_main_memory() -> Memory:
    """Return the memory of the CPU: the machine's, or what this process may have of it."""
    found = psutil.virtual_memory()
    groups = _GROUPS_OF_THIS.read_text(encoding="utf-8") if _GROUPS_OF_THIS.exists() else ""
    return apply_cgroup_limits(Memory(found.total, found.available), groups, _GROUPS)


def apply_cgroup_limits(memory: Memory, groups: str, root: Path) -> Memory:
    """Return what is left of ``memory`` to a process in these control ``groups`` (the lines of /proc/self/cgroup),
    whose limits are files below ``root``.

    Pages of files that are not in use count as free: the kernel gives them back before anything fails.
    """
    own = Path(groups.rpartition("0::/")[2].strip())
    # In a container the group's own path may be one outside of it; the outermost is then the container's.
    for folder in (root / group for group in (own, *own.parents)):
        try:
            limit, used = ((folder / name).read_text(encoding="utf-8") for name in ("memory.max", "memory.current"))
            unused = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(encoding="utf-8"), re.M)
        except OSError:
            continue
        if limit.strip() != "max":
            free = max(0, int(limit) - int(used) + (int(unused[1]) if unused else 0))
            memory = Memory(min(memory.total, int(limit)), min(memory.free, free))
    return memory


def compute_weight_budget() -> int:
    """Return the bytes of main memory that layers may take where others lie on disk: a pass takes some, too."""
    return int(_FOR_WEIGHTS * measure_main_memory().free)


def measure_gpu_memory() -> list[Memory]:
    """Return the memory of every GPU."""
    found = (torch.cuda.mem_get_info(number) for number in range(torch.cuda.device_count()))
    return [Memory(total, free) for free, total in found]


def compute_weight_bytes(tokenized: TokenizedModel, device: str) -> int:
    """Return what the weights take in memory, on ``device``: 'cpu' or 'cuda'.

    Raises:
        ModelError: If the header of a file cannot be read.
    """
    quantisation = tokenized.quantisation
    if quantisation is not None and not quantisation.stays_packed(device):
        return count_parameters(tokenized) * _itemsize(tokenized)
    name, folder = tokenized.entry.name, tokenized.weights_folder
    try:
        return sum(_count_weight_bytes(file, tokenized) for file in choose_weight_files(folder, name).paths)
    except ModelError:
        if tokenized.located.gguf is None:
            raise
    except (SafetensorError, OSError) as error:
        if tokenized.located.gguf is None:
            raise build_read_error(name, folder, "weights", error) from error
    # A .gguf that has not been converted yet, or has to be again.
    return count_parameters(tokenized) * _itemsize(tokenized)


def _count_weight_bytes(file: Path, tokenized: TokenizedModel) -> int:
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


def count_parameters(tokenized: TokenizedModel) -> int:
    """Return the number of parameters, from the configuration alone; tied parameters count once."""
    return sum(parameter.numel() for parameter in _build_empty_model(tokenized).parameters())


def _read_config(tokenized: TokenizedModel) -> Any:
    return AutoConfig.from_pretrained(tokenized.config_folder, trust_remote_code=tokenized.entry.trust_remote_code)


def _build_empty_model(tokenized: TokenizedModel) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            _read_config(tokenized), trust_remote_code=tokenized.entry.trust_remote_code
        )


def _read_indexed_tensors(weights: WeightFiles) -> dict[str, Any]:
    """Return every tensor of the index out of the shard that the index names; its data is read when it is used."""
    opened: dict[str, Any] = {name: safe_open(weights.folder / name, framework="pt") for name in weights.names}
    shard_by_tensor = weights.shard_by_tensor or {}
    slices: dict[str, Any] = {}
    for tensor, shard in shard_by_tensor.items():
        slices[tensor] = opened[shard].get_slice(tensor)
    return slices


def check_memory_fit(tokenized: TokenizedModel, device: str) -> Fit:
    """Return whether the model's weights fit where its entry puts them; ``device``: 'cpu' or 'cuda'."""
    needed = compute_weight_bytes(tokenized, device)
    spreads = tokenized.entry.devices is not None
    swap, place, rest = 0, "the GPU has", ""
    if not device.startswith("cuda"):
        swap, place, rest = psutil.swap_memory().total, "main memory has", "on disk"
        memory = measure_main_memory()
        if spreads:
            memory, place = (
                Memory(memory.total, compute_weight_budget()),
                "main memory, minus a tenth for the pass, has",
            )
    elif spreads:
        gpus = measure_gpu_memory()
        memory = Memory(sum(gpu.total for gpu in gpus), sum(gpu.free for gpu in gpus))
        place = f"{len(gpus)} GPUs have"
        rest = f"in main memory, which has {_format_gb(measure_main_memory().free)} free, or on disk"
    else:
        memory = measure_gpu_memory()[torch.device(device).index or 0]
    fits = needed <= memory.free
    words = (
        f"The weights take {_format_gb(needed)} in memory ({tokenized.quantisation or tokenized.entry.dtype}), and "
        f"{'fit' if fits else 'do not fit'}: {place} {_format_gb(memory.free)} free of {_format_gb(memory.total)}."
    )
    if spreads and not fits:
        words += f" The rest lies {rest}, which is slow: it is read again for every batch."
    return Fit(needed, fits, spreads or needed <= memory.total + swap, words)


def _format_gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


# Converted weights are kept where so much of the disk stays free.
_LEFT_FREE = 2 << 30


def choose_default_device() -> str:
    """'cuda' if any, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_weights(
    tokenized: TokenizedModel, device: str, notify: Callable[[str], None] = lambda words: None
) -> torch.nn.Module:
    """Return the model in evaluation mode on ``device``, in the entry's dtype.

    With ``devices: auto`` its layers lie on all devices of that kind, and what they have no room for in main memory and
    on disk. A .gguf is dequantised once, into safetensors under the data folder, and read from there from then on;
    ``notify`` hears of it. Raises ModelError where the weights are missing, cut short, in a format that can run code or
    that a package is lacking for, and where there is certainly no room for them.
    """
    if tokenized.entry.endpoint is not None:
        raise ModelError(
            f"the weights of {tokenized.entry.name} are not on this machine: {tokenized.entry.endpoint.url}"
        )
    require_device(device)
    transformers_logging.disable_progress_bar()
    require_quantisation_package(tokenized.entry.name, tokenized.quantisation)
    fit = check_memory_fit(tokenized, device)
    if not fit.ever:
        raise ModelError(
            f"{tokenized.entry.name} is too large: {fit.words} Set devices: auto in its entry, or a smaller dtype "
            "(docs/new-model.md)"
        )
    put = _load_on_single_device if tokenized.entry.devices is None else _load_on_all_devices
    model = put(tokenized, device, notify).eval()
    model.requires_grad_(requires_grad=False)
    return model  # type: ignore[no-any-return]


def _load_on_all_devices(tokenized: TokenizedModel, device: str, notify: Callable[[str], None]) -> Any:
    located, folder = tokenized.located, tokenized.weights_folder
    if located.gguf is not None:
        # Several devices read safetensors alone.
        if read_manifest_if_whole(folder) is None:
            _load_converted(tokenized, notify)
        if not folder.exists():
            raise ModelError(
                f"{located.entry.name} is read by several devices out of converted weights, and the disk has no room "
                f"for them: make room under {folder.parent}, or leave devices out"
            )
        tokenized = replace(tokenized, located=replace(located, folder=folder, gguf=None), config_folder=folder)
    # Else the library would take the GPUs as well.
    room = {"cpu": compute_weight_budget()} if device == "cpu" else None
    model = _load_pretrained(tokenized, folder, device_map=tokenized.entry.devices, max_memory=room)
    # 'disk': read when they are run.
    by_layer = getattr(model, "hf_device_map", None) or {"": model.device}
    devices = {f"cuda:{device}" if isinstance(device, int) else str(device) for device in by_layer.values()}
    notify(f"{tokenized.entry.name}: its layers lie on {', '.join(sorted(devices))}")
    return model


def _load_on_single_device(tokenized: TokenizedModel, device: str, notify: Callable[[str], None]) -> Any:
    if tokenized.located.gguf is not None and read_manifest_if_whole(tokenized.weights_folder) is None:
        return _load_converted(tokenized, notify).to(device)
    if tokenized.quantisation is not None:
        # Packed weights are put where they stay: they cannot be moved, or not without being unpacked.
        return _load_pretrained(tokenized, tokenized.weights_folder, device_map={"": device})
    return _load_pretrained(tokenized, tokenized.weights_folder).to(device)


def _load_converted(tokenized: TokenizedModel, notify: Callable[[str], None]) -> Any:
    """Return the model out of its .gguf, on the CPU; what it is converted into is kept where the disk has room for it.

    It is dequantised always: whether a package with kernels for packed weights is installed must not change a score.
    """
    assert tokenized.located.gguf is not None
    notify(f"{tokenized.entry.name}: converting {tokenized.located.gguf.name}, once")
    with cache_gguf_parsing():
        model = _load_pretrained(
            tokenized,
            tokenized.located.folder,
            # Read once already, when the tokenizer was converted; out of the .gguf it takes seconds.
            config=AutoConfig.from_pretrained(tokenized.config_folder),
            gguf_file=tokenized.located.gguf.name,
            quantization_config=GgufConfig(dequantize=True),
        )
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    folder = tokenized.weights_folder
    free = shutil.disk_usage(next(parent for parent in folder.parents if parent.exists())).free
    if free < size + _LEFT_FREE:
        notify(f"the converted weights are not kept: they take {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free")
        return model
    keep_weights(model, tokenized.located, folder)
    notify(f"kept {size / 1e9:.2f} GB of converted weights in {folder}; `corpus-audit forget --model` removes them")
    return model


def _load_pretrained(tokenized: TokenizedModel, folder: Path, **options: Any) -> Any:
    entry, located = tokenized.entry, tokenized.located
    model_class: Any = AutoModelForCausalLM
    source: Path | None = folder
    if "gguf_file" not in options:
        weights = choose_weight_files(folder, entry.name)
        strays = weights.find_tensors_beside_index()
        if strays:
            words = (
                f"{entry.name}: not read, as the index has them in another shard or in none: {shorten_names(strays)}"
            )
            warnings.warn(ModelFilesWarning(words), stacklevel=2)
            # transformers reads every tensor of every shard: of two with one name it takes the one of the later shard.
            options |= {"state_dict": _read_indexed_tensors(weights), "config": _read_config(tokenized)}
            model_class, source = type(_build_empty_model(tokenized)), None
    try:
        with silence_transformers():
            model, loading = model_class.from_pretrained(
                source,
                dtype=getattr(torch, entry.dtype),
                # Left to itself transformers takes sdpa where the architecture has it, else eager (Gemma 2, Mamba);
                # asked for sdpa by name it refuses those architectures.
                attn_implementation=None if entry.attention == "sdpa" else entry.attention,
                **({"trust_remote_code": entry.trust_remote_code} if source is not None else {}),
                use_safetensors=True,
                output_loading_info=True,
                # Said in our words, below.
                ignore_mismatched_sizes=True,
                **options,
            )
    except (*READ_ERRORS, ImportError) as error:
        raise build_read_error(entry.name, located.gguf or located.folder, "weights", error) from error
    parameters = [tensor for tensor, _ in model.named_parameters()]
    require_same_tensors(entry.name, loading, parameters, is_packed=tokenized.quantisation is not None)
    return model
