"""A model made ready to score: its weights in memory, and what the check at loading found out, remembered.

What belongs here: putting the two together. What does not: reading weights (models/weights.py), the check (forward.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version

import torch

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json
from audit_pipeline.models.load import TokenizedModel, write_card
from audit_pipeline.models.weights import default_device, load_weights
from audit_pipeline.token_statistics.forward import ForwardPass, LoadCheck
from audit_pipeline.token_statistics.threads import use_threads

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


def _machine(device: str) -> Mapping[str, object]:
    """All besides the model that the check's outcome hangs on."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
    return {
        "check": CHECK_VERSION,
        "device": f"{device.split(':', maxsplit=1)[0]} {name}",
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
