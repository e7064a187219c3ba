"""Loading of a model or connection to its server, and the holder that keeps a single model in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audit_pipeline.models.adapters import HeldBase, release_unused_memory
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.engine_choice import IN_PROCESS, Engine, choose_engine

if TYPE_CHECKING:
    from audit_pipeline.scoring.used_endpoints import Endpoints


class HeldModel:
    """A holder of the last loaded model. It frees this model before it loads another model.

    A back end depends on the whole entry of a model. The same weights with another device, other endpoint settings or
    another start token therefore count as another model.

    Attributes:
        base: The weights of the base model. They stay in memory for other models that are adapters of the same base.
    """

    def __init__(self) -> None:
        """Create a holder that holds no model yet."""
        self._held: tuple[object, Backend] | None = None
        self.base = HeldBase()

    def ensure_loaded(self, model: TokenizedModel, load: BackendOf) -> Backend:
        """Return the back end of a model. Call ``load`` unless this model is held already.

        If ``load`` raises an exception, no model is held.
        """
        key = (model.identity.model_fingerprint, model.entry.devices, model.entry.host, model.start_token_id)
        if self._held is None or self._held[0] != key:
            self.free(keeps_base=model.entry.host.is_here)
            self._held = (key, load(model))
        return self._held[1]

    def free(self, *, keeps_base: bool = False) -> None:
        """Release the model and its memory.

        Args:
            keeps_base: True to keep the weights of the base model in memory.
        """
        self._held = None
        if keeps_base:
            release_unused_memory()
        else:
            self.base.free()


def open_backend(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
    endpoints: Endpoints | None = None,
    engine: Engine = IN_PROCESS,
    base: HeldBase | None = None,
) -> Backend:
    """Load a model, or connect to its server.

    Args:
        model: The model.
        paths: The data folder.
        device: The device. By default a GPU if there is one.
        notify: A callback with messages about slow steps.
        endpoints: The endpoints that the command has used so far.
        engine: The engine: this process, or Ray.
        base: The holder of a base model that may be in memory.

    Raises:
        ModelError: If the model cannot be loaded or its server cannot be used.
        ClusterError: If the workers of the engine are unavailable.
    """
    if not model.entry.host.is_here:
        from audit_pipeline.scoring.used_endpoints import Endpoints  # noqa: PLC0415

        if engine.name == "ray":
            notify(f"{model.entry.name} runs on a server: this process sends the requests, and Ray is not used")
        return (endpoints or Endpoints()).open(model, paths, notify)
    if engine.name == "ray":
        from audit_pipeline.extras.ray.ray_backend import RayBackend  # noqa: PLC0415

        return RayBackend(model, paths, engine, device, notify, lambda: open_backend(model, paths, device, notify))
    # This import loads torch, which a command with a complete cache does not need.
    from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

    return load_forward_pass(model, paths, device, notify, base)


def build_backend_loader(
    paths: DataPaths,
    device: str | None,
    endpoints: Endpoints,
    engine: Engine | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> BackendOf:
    """Return a function that loads models on demand. One model at a time is in memory.

    Args:
        paths: The data folder.
        device: The device. By default a GPU if there is one.
        endpoints: The endpoints that the command uses.
        engine: The engine. By default it depends on the environment.
        notify: A callback with messages about loading.
    """
    held = HeldModel()

    def load(model: TokenizedModel) -> Backend:
        if model.entry.host.is_here:
            notify(f"loading {model.entry.name}")
        backend = open_backend(model, paths, device, notify, endpoints, engine or choose_engine(), held.base)
        notify(f"{model.entry.name}: {backend.described}")
        return backend

    return lambda model: held.ensure_loaded(model, load)
