"""The weights of a model: loading them into memory, and checking beforehand if they fit."""

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
from audit_pipeline.models.conversion import READ_ERRORS, cache_gguf_parsing, store_weights
from audit_pipeline.models.converted_files import read_manifest_if_whole
from audit_pipeline.models.model_checks import build_read_error, require_same_tensors, silence_transformers
from audit_pipeline.models.model_files import (
    WeightFiles,
    choose_weight_files,
    require_quantisation_package,
    shorten_names,
)
from audit_pipeline.models.tokenized_model import TokenizedModel

# Number formats of plain weights, which are converted to the entry's dtype. Quantised weights keep their format.
_PLAIN = {"F64", "F32", "F16", "BF16"}
_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}

# Linux limits the memory of process groups in these files (control groups, version 2).
_GROUPS = Path("/sys/fs/cgroup")
_GROUPS_OF_THIS = Path("/proc/self/cgroup")
_FOR_WEIGHTS = 0.9


@dataclass(frozen=True)
class Memory:
    """The memory of a device in bytes: in total, and free at present."""

    total: int
    free: int


@dataclass(frozen=True)
class Fit:
    """The result of the check that weights fit into memory.

    Attributes:
        bytes: Size of the weights in bytes.
        now: True if the weights fit into the free memory.
        ever: True if the weights fit when nothing else uses memory.
        sentences: The result as sentences for the user.
    """

    bytes: int
    now: bool
    ever: bool
    sentences: str


def require_device(device: str) -> None:
    """Raise ModelError if ``device`` is a GPU and none is available."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("no CUDA device is available. Remove --device or use --device cpu.")


def measure_main_memory() -> Memory:
    """Return the main memory of the machine, or less if a control group limits this process."""
    memory = psutil.virtual_memory()
    groups = _GROUPS_OF_THIS.read_text(encoding="utf-8") if _GROUPS_OF_THIS.exists() else ""
    return apply_cgroup_limits(Memory(memory.total, memory.available), groups, _GROUPS)


def apply_cgroup_limits(memory: Memory, groups: str, root: Path) -> Memory:
    """Return the part of ``memory`` that the limits of control groups leave to a process.

    Inactive pages of the file cache count as free: the kernel releases them before an allocation fails.

    Args:
        memory: Memory of the machine.
        groups: Content of /proc/self/cgroup.
        root: Folder of the files with the limits.
    """
    group = Path(groups.rpartition("0::/")[2].strip())
    # In a container, the path of the group may not exist. The root folder then holds the container's limits.
    for parent in (group, *group.parents):
        folder = root / parent
        try:
            limit = (folder / "memory.max").read_text(encoding="utf-8")
            used = (folder / "memory.current").read_text(encoding="utf-8")
            statistics = (folder / "memory.stat").read_text(encoding="utf-8")
        except OSError:
            continue
        if limit.strip() != "max":
            free = int(limit) - int(used)
            inactive = re.search(r"^inactive_file (\d+)", statistics, re.M)
            if inactive is not None:
                free += int(inactive[1])
            memory = Memory(min(memory.total, int(limit)), min(memory.free, max(0, free)))
    return memory


def compute_weight_budget() -> int:
    """Return the bytes of main memory for layers if other layers lie on disk. The rest is for the forward pass."""
    return int(_FOR_WEIGHTS * measure_main_memory().free)


def measure_gpu_memory() -> list[Memory]:
    """Return the memory of every GPU."""
    memories = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        memories.append(Memory(total, free))
    return memories


def compute_weight_bytes(tokenized: TokenizedModel, device: str) -> int:
    """Return the size of the weights in the memory of ``device`` ('cpu' or 'cuda'), in bytes.

    Raises:
        ModelError: If the header of a file cannot be read.
    """
    quantisation = tokenized.quantisation
    if quantisation is not None and not quantisation.stays_packed(device):
        return count_parameters(tokenized) * _itemsize(tokenized)
    name = tokenized.entry.name
    folder = tokenized.weights_folder
    try:
        return sum(_count_weight_bytes(file, tokenized) for file in choose_weight_files(folder, name).paths)
    except ModelError:
        if tokenized.located.gguf is None:
            raise
    except (SafetensorError, OSError) as error:
        if tokenized.located.gguf is None:
            raise build_read_error(name, folder, "weights", error) from error
    # The .gguf has not been converted yet, or its converted weights are damaged.
    return count_parameters(tokenized) * _itemsize(tokenized)


def _count_weight_bytes(file: Path, tokenized: TokenizedModel) -> int:
    is_packed = tokenized.quantisation is not None
    total = 0
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118  (not a mapping)
            part = opened.get_slice(name)
            kind = part.get_dtype()
            size = _itemsize(tokenized)
            if is_packed and kind not in _PLAIN:
                size = _BYTES.get(kind, 1)
            total += math.prod(part.get_shape()) * size
    return total


def _itemsize(tokenized: TokenizedModel) -> int:
    return int(getattr(torch, tokenized.entry.dtype).itemsize)


def count_parameters(tokenized: TokenizedModel) -> int:
    """Return the number of parameters according to the configuration. Tied parameters count once."""
    return sum(parameter.numel() for parameter in _build_empty_model(tokenized).parameters())


def _read_config(tokenized: TokenizedModel) -> Any:
    return AutoConfig.from_pretrained(tokenized.config_folder, trust_remote_code=tokenized.entry.trust_remote_code)


def _build_empty_model(tokenized: TokenizedModel) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            _read_config(tokenized), trust_remote_code=tokenized.entry.trust_remote_code
        )


def _read_indexed_tensors(weights: WeightFiles) -> dict[str, Any]:
    """Return each tensor by name, from the shard that the index assigns. Its data is read when it is used."""
    opened: dict[str, Any] = {name: safe_open(weights.folder / name, framework="pt") for name in weights.names}
    shard_by_tensor = weights.shard_by_tensor or {}
    slices: dict[str, Any] = {}
    for tensor, shard in shard_by_tensor.items():
        slices[tensor] = opened[shard].get_slice(tensor)
    return slices


def check_memory_fit(tokenized: TokenizedModel, device: str) -> Fit:
    """Check that the model's weights fit on the device of its entry. ``device`` is 'cpu' or 'cuda'."""
    needed = compute_weight_bytes(tokenized, device)
    spreads = tokenized.entry.devices is not None
    uses_gpu = device.startswith("cuda")
    memory, device_phrase = _measure_device_memory(device, spreads=spreads)
    fits = needed <= memory.free
    largest = memory.total
    if not uses_gpu:
        largest += psutil.swap_memory().total
    number_format = tokenized.quantisation or tokenized.entry.dtype
    verb = "fit" if fits else "do not fit"
    sentences = (
        f"The weights take {_format_gb(needed)} in memory ({number_format}), and {verb}: "
        f"{device_phrase} {_format_gb(memory.free)} free of {_format_gb(memory.total)}."
    )
    if spreads and not fits:
        rest = "on disk"
        if uses_gpu:
            rest = f"in main memory, which has {_format_gb(measure_main_memory().free)} free, or on disk"
        sentences += f" The model can still run: the weights that do not fit stay {rest}. This is slow, because every "
        sentences += "batch reads them again."
    return Fit(needed, fits, spreads or needed <= largest, sentences)


def _measure_device_memory(device: str, *, spreads: bool) -> tuple[Memory, str]:
    """Return the memory that weights may use, and a phrase for the sentence about it, such as 'the GPU has'."""
    if device.startswith("cuda"):
        gpus = measure_gpu_memory()
        if not spreads:
            return gpus[torch.device(device).index or 0], "the GPU has"
        total = 0
        free = 0
        for gpu in gpus:
            total += gpu.total
            free += gpu.free
        return Memory(total, free), f"{len(gpus)} GPUs have"
    memory = measure_main_memory()
    if not spreads:
        return memory, "main memory has"
    return Memory(memory.total, compute_weight_budget()), "main memory, minus a tenth for the pass, has"


def _format_gb(size: int) -> str:
    if size >= 1e8:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.1f} MB"


# Converted weights are stored only if at least this number of bytes stays free on the disk.
_MIN_FREE_BYTES = 2 << 30


def choose_default_device() -> str:
    """Return 'cuda' if a GPU is available, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_weights(
    tokenized: TokenizedModel, device: str, notify: Callable[[str], None] = lambda message: None
) -> torch.nn.Module:
    """Load the model in evaluation mode on ``device``, in the entry's dtype.

    With ``devices: auto``, its layers are spread over all devices of this type, then main memory, then the disk. A
    .gguf is dequantised once into safetensors in the data folder, and later loads read those files.

    Args:
        tokenized: The model.
        device: 'cpu' or 'cuda'.
        notify: Function that shows progress to the user.

    Raises:
        ModelError: If weights are missing, damaged, too large, or in a format that can run code. Also if a package that
            reads them is missing.
    """
    if tokenized.entry.endpoint is not None:
        raise ModelError(
            f"{tokenized.entry.name} runs on the server {tokenized.entry.endpoint.url}, but this command needs the "
            "weights on this machine. Use a model whose entry has 'hub', 'path' or 'package'."
        )
    require_device(device)
    transformers_logging.disable_progress_bar()
    require_quantisation_package(tokenized.entry.name, tokenized.quantisation)
    fit = check_memory_fit(tokenized, device)
    if not fit.ever:
        raise ModelError(
            f"{tokenized.entry.name} is too large: {fit.sentences} Set devices: auto or a smaller dtype in its entry "
            "(docs/new-model.md)."
        )
    if tokenized.entry.devices is None:
        model = _load_on_single_device(tokenized, device, notify).eval()
    else:
        model = _load_on_all_devices(tokenized, device, notify).eval()
    model.requires_grad_(requires_grad=False)
    return model  # type: ignore[no-any-return]


def _load_on_all_devices(tokenized: TokenizedModel, device: str, notify: Callable[[str], None]) -> Any:
    located = tokenized.located
    folder = tokenized.weights_folder
    if located.gguf is not None:
        # Loading onto several devices supports safetensors only.
        if read_manifest_if_whole(folder) is None:
            _load_from_gguf(tokenized, notify)
        if not folder.exists():
            raise ModelError(
                f"{located.entry.name} requires converted weights to use several devices, but the disk has too little "
                f"free space for them. Free space under {folder.parent}, or remove 'devices' from its entry."
            )
        tokenized = replace(tokenized, located=replace(located, folder=folder, gguf=None), config_folder=folder)
    # For the device 'cpu', transformers would also use the GPUs if max_memory did not exclude them.
    max_memory = None
    if device == "cpu":
        max_memory = {"cpu": compute_weight_budget()}
    model = _load_pretrained(tokenized, folder, device_map=tokenized.entry.devices, max_memory=max_memory)
    # Layers on 'disk' are read each time they run.
    device_by_layer = getattr(model, "hf_device_map", None) or {"": model.device}
    devices = set()
    for layer_device in device_by_layer.values():
        if isinstance(layer_device, int):
            devices.add(f"cuda:{layer_device}")
        else:
            devices.add(str(layer_device))
    notify(f"{tokenized.entry.name}: the layers are on {', '.join(sorted(devices))}")
    return model


def _load_on_single_device(tokenized: TokenizedModel, device: str, notify: Callable[[str], None]) -> Any:
    if tokenized.located.gguf is not None and read_manifest_if_whole(tokenized.weights_folder) is None:
        return _load_from_gguf(tokenized, notify).to(device)
    if tokenized.quantisation is not None:
        # Packed weights are loaded directly onto their device: moving them would fail or unpack them.
        return _load_pretrained(tokenized, tokenized.weights_folder, device_map={"": device})
    return _load_pretrained(tokenized, tokenized.weights_folder).to(device)


def _load_from_gguf(tokenized: TokenizedModel, notify: Callable[[str], None]) -> Any:
    """Load the model from its .gguf onto the CPU. Store the converted weights if the disk has enough space.

    The weights are always dequantised. Otherwise a score would depend on installed packages with kernels for packed
    weights.
    """
    assert tokenized.located.gguf is not None
    notify(f"{tokenized.entry.name}: converting {tokenized.located.gguf.name} to safetensors")
    with cache_gguf_parsing():
        model = _load_pretrained(
            tokenized,
            tokenized.located.folder,
            # The configuration was stored together with the tokenizer. Reading it from the .gguf takes seconds.
            config=AutoConfig.from_pretrained(tokenized.config_folder),
            gguf_file=tokenized.located.gguf.name,
            quantization_config=GgufConfig(dequantize=True),
        )
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    folder = tokenized.weights_folder
    free = shutil.disk_usage(next(parent for parent in folder.parents if parent.exists())).free
    if free < size + _MIN_FREE_BYTES:
        notify(
            f"the converted weights are not stored: they take {size / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are "
            "free"
        )
        return model
    store_weights(model, tokenized.located, folder)
    notify(
        f"{size / 1e9:.2f} GB of converted weights are stored in {folder}. 'corpus-audit forget --model' deletes them."
    )
    return model


def _load_pretrained(tokenized: TokenizedModel, folder: Path, **options: Any) -> Any:
    entry = tokenized.entry
    located = tokenized.located
    model_class: Any = AutoModelForCausalLM
    source: Path | None = folder
    if "gguf_file" not in options:
        weights = choose_weight_files(folder, entry.name)
        strays = weights.find_unindexed_tensors()
        if strays:
            message = (
                f"{entry.name}: {len(strays)} tensors are not read, because the index assigns them to another file or "
                f"to no file: {shorten_names(strays)}"
            )
            warnings.warn(ModelFilesWarning(message), stacklevel=2)
            # transformers reads every tensor of every shard. If two have the same name, the later shard wins.
            options |= {"state_dict": _read_indexed_tensors(weights), "config": _read_config(tokenized)}
            model_class = type(_build_empty_model(tokenized))
            source = None
    if source is not None:
        options["trust_remote_code"] = entry.trust_remote_code
    # By default transformers uses sdpa if the architecture has it, else eager (Gemma 2, Mamba). If sdpa is requested by
    # name, transformers refuses those architectures.
    attention = None if entry.attention == "sdpa" else entry.attention
    try:
        with silence_transformers():
            model, loading = model_class.from_pretrained(
                source,
                dtype=getattr(torch, entry.dtype),
                attn_implementation=attention,
                use_safetensors=True,
                output_loading_info=True,
                # Tensors of another shape are reported below, by require_same_tensors.
                ignore_mismatched_sizes=True,
                **options,
            )
    except (*READ_ERRORS, ImportError) as error:
        raise build_read_error(entry.name, located.gguf or located.folder, "weights", error) from error
    parameters = [tensor for tensor, _ in model.named_parameters()]
    require_same_tensors(entry.name, loading, parameters, is_packed=tokenized.quantisation is not None)
    return model
