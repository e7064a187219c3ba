"""Loading of a model: its weights in memory, checked and ready to score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from audit_pipeline.errors import ModelError
from audit_pipeline.models.adapters import HeldBase
from audit_pipeline.models.tokenized_model import TokenizedModel, write_card
from audit_pipeline.models.weights import choose_default_device, count_parameters, require_device
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics import load_checks
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.layer_tuning import set_threads


def load_forward_pass(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
    held: HeldBase | None = None,
) -> ForwardPass:
    """Load a model into memory, check it, and write its card.

    Args:
        model: The model.
        paths: Data folder that holds the results of the load checks.
        device: Device of the model. The default is a GPU, if any.
        notify: Function that shows a message to the user.
        held: The holder of a base model that may already be in memory.

    Raises:
        ModelError: If :meth:`HeldBase.load` or :class:`ForwardPass` raises it.
    """
    device = device or choose_default_device()
    require_device(device)
    name = model.entry.name
    load_check = load_checks.read_load_check(model, paths, device)
    weights = (held or HeldBase()).load(model, device, notify)
    if model.quantisation is not None:
        # Packed weights hold several parameters in one number, next to scales that are no parameters.
        n_parameters = count_parameters(model)
    else:
        n_parameters = sum(parameter.numel() for parameter in weights.parameters())
    if device == "cpu":
        threads = set_threads(n_parameters)
        notify(f"{name}: the model runs on the CPU with {threads} thread{'s' if threads > 1 else ''}")
    forward = ForwardPass(weights, model.vocab_size, load_check, compiles=model.entry.compile)
    write_card(model, paths, parameters=n_parameters)
    if load_check is None:
        path = paths.load_check(model.identity.model_fingerprint, model.entry.devices)
        write_json(path, {"machine": load_checks.describe_machine(device), "found": asdict(forward.checked)})
        if device != "cpu" and not forward.checked.compiled:
            notify(
                f"{name}: the statistics are computed without compilation on this machine, which takes longer. "
                "torch.compile requires a C++ compiler, Triton, and a GPU that Triton supports."
            )
    if forward.checked.onednn:
        notify(f"{name}: oneDNN is used, because it multiplies float32 weights faster on this processor")
    return forward


def load_local_pass(model: TokenizedModel, backend_of: BackendOf) -> ForwardPass:
    """Load a model into this process, for work that does not run in batches of windows.

    A model that runs on Ray workers is additionally loaded into this process.

    Raises:
        ModelError: If the model's weights are not available on this machine.
    """
    backend = backend_of(model).local_backend
    if not isinstance(backend, ForwardPass):
        raise ModelError(
            f"generated, near-verbatim and long continuations require the weights of {model.entry.name} on this "
            f"machine, but this model is {backend.described}"
        )
    return backend
