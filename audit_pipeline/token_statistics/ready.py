"""A model made ready to score: its weights in memory, and what the check at loading found out, remembered.

What belongs here: putting the two together. What does not: reading weights (models/weights.py), the check (forward.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version

import joblib
import torch

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json
from audit_pipeline.models.load import TokenizedModel, write_card
from audit_pipeline.models.weights import default_device, load_weights
from audit_pipeline.token_statistics.forward import ForwardPass, LoadCheck

CHECK_VERSION = 4


def forward_pass(
    model: TokenizedModel, paths: DataPaths, device: str | None = None, tell: Callable[[str], None] = lambda words: None
) -> ForwardPass:
    """The model in memory and checked, its card written; ``device`` None: a GPU where there is one.

    Raises ModelError as :func:`load_weights` and :class:`ForwardPass` do.
    """
    where = device or default_device()
    if where == "cpu":
        threads = use_threads()
        tell(f"{model.entry.name}: the model runs on the CPU with {threads} thread{'s' if threads > 1 else ''}")
    weights = load_weights(model, where, tell)
    write_card(model, paths, parameters=sum(parameter.numel() for parameter in weights.parameters()))
    machine = _machine(where)
    path = paths.load_check(model.identity.model_fingerprint)
    kept = read_json_if_whole(path)
    known = LoadCheck(**kept["found"]) if kept is not None and kept["machine"] == machine else None
    ready = ForwardPass(weights, model.vocab_size, known)
    if known is None:
        write_json(path, {"machine": machine, "found": asdict(ready.checked)})
    if ready.checked.onednn:
        tell(f"{model.entry.name}: oneDNN multiplies its float32 weights faster on this processor, and is used")
    return ready


def use_threads() -> int:
    """Let torch compute with a thread per core that this process may use, and return how many.

    Left to itself torch counts the cores of the machine, also where a container is given a share of them, and its
    threads then wait for each other. What the user set (OMP_NUM_THREADS) stands. The pool for whole operators side by
    side stays idle in inference, so its size does not matter.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(joblib.cpu_count(only_physical_cores=True))
    return torch.get_num_threads()


def _machine(device: str) -> Mapping[str, object]:
    """All besides the model that the check's outcome hangs on."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
    return {
        "check": CHECK_VERSION,
        "device": f"{device.split(':', maxsplit=1)[0]} {name}",
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
