"""A model made ready to score: its weights in memory, what the check at loading found out, the time of a pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version

import torch

from audit_pipeline.errors import ModelError
from audit_pipeline.models.adapters import HeldBase
from audit_pipeline.models.tokenized_model import TokenizedModel, write_card
from audit_pipeline.models.weights import choose_default_device, count_parameters, require_device
from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.forward import ForwardPass, LoadCheck
from audit_pipeline.token_statistics.layer_tuning import choose_linear_function, is_faster_with_onednn, set_threads

CHECK_VERSION = 6


def load_forward_pass(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    notify: Callable[[str], None] = lambda words: None,
    held: HeldBase | None = None,
) -> ForwardPass:
    """The model in memory and checked, its card written; ``device`` None: a GPU if any.

    ``held``: the base that may be in memory. Raises ModelError as :meth:`HeldBase.load` and :class:`ForwardPass` do.
    """
    place = device or choose_default_device()
    require_device(place)
    known = read_load_check(model, paths, place)
    if place == "cpu":
        threads = set_threads()
        notify(f"{model.entry.name}: the model runs on the CPU with {threads} thread{'s' if threads > 1 else ''}")
    weights = (held or HeldBase()).load(model, place, notify)
    # Packed weights hold several in one number, and scales next to them.
    packed = model.quantisation is not None
    count = count_parameters(model) if packed else sum(parameter.numel() for parameter in weights.parameters())
    ready = ForwardPass(weights, model.vocab_size, known, compiles=model.entry.compile)
    write_card(model, paths, parameters=count)
    if known is None:
        path = paths.load_check(model.identity.model_fingerprint, model.entry.devices)
        write_json(path, {"machine": _describe_machine(place), "found": asdict(ready.checked)})
        if place != "cpu" and not ready.checked.compiled:
            notify(
                f"{model.entry.name}: the reductions of its logits are not compiled on this machine, and take longer: "
                "torch.compile needs a C++ compiler, Triton, and a GPU that Triton knows"
            )
    if ready.checked.onednn:
        notify(f"{model.entry.name}: oneDNN multiplies its float32 weights faster on this processor, and is used")
    return ready


def load_local_pass(model: TokenizedModel, backend_of: BackendOf) -> ForwardPass:
    """The model on this machine, for work that does not go window by window.

    One that workers run is loaded here as well. Raises ModelError where its entry names a back end elsewhere.
    """
    backend = backend_of(model).local_backend
    if not isinstance(backend, ForwardPass):
        raise ModelError(
            f"{model.entry.name} is {backend.described}: generated, near-verbatim and long continuations need its "
            "weights on this machine"
        )
    return backend


def read_load_check(model: TokenizedModel, paths: DataPaths, device: str) -> LoadCheck | None:
    """What an earlier check at loading found out of the model on this machine; None where there was none."""
    cached = read_json_if_whole(paths.load_check(model.identity.model_fingerprint, model.entry.devices))
    if cached is None or cached["machine"] != _describe_machine(device):
        return None
    return LoadCheck(**cached["found"])


def _describe_machine(device: str) -> Mapping[str, object]:
    """All apart from the model and its devices that the check's outcome hangs on."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
    return {
        "check": CHECK_VERSION,
        "device": f"{device.split(':', maxsplit=1)[0]} {name}",
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


_SIDE = {"cpu": 1024, "cuda": 8192}
_SHARE_OF_PEAK = 0.7


def estimate_pass_seconds(model: TokenizedModel, paths: DataPaths, tokens: int, device: str) -> float:
    """About how long ``tokens`` tokens take on ``device``.

    On a GPU that the model was loaded on before, at the rate that was measured then. Else two operations a parameter
    and token, at the rate of a square matrix product in the model's dtype, of which a forward pass reaches roughly 70%;
    attention over long windows comes on top. Raises ModelError where there is no such device.
    """
    require_device(device)
    if not tokens:
        return 0.0
    known = read_load_check(model, paths, device)
    if known is not None and known.tokens_per_second is not None:
        return tokens / known.tokens_per_second
    rate = _SHARE_OF_PEAK * _measure_operation_rate(model.entry.dtype, device)
    return 2.0 * count_parameters(model) * tokens / rate


def _measure_operation_rate(dtype: str, device: str) -> float:
    side = _SIDE["cuda" if device.startswith("cuda") else "cpu"]
    matrix = torch.ones(side, side, dtype=getattr(torch, dtype), device=device)
    linear = choose_linear_function(onednn=is_faster_with_onednn(matrix))

    def product() -> float:
        started = time.perf_counter()
        # .item() waits for the device.
        linear(matrix, matrix, None)[0, 0].item()
        return time.perf_counter() - started

    product()
    return 2.0 * side**3 / min(product() for _ in range(3))
