"""The back end of a model, as its entry says, and the one model that is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audit_pipeline.models.adapters import HeldBase, give_back_memory
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.engine_choice import IN_PROCESS, Engine, choose_engine

if TYPE_CHECKING:
    from audit_pipeline.scoring.used_endpoints import Endpoints


class HeldModel:
    """Gives the model that was made ready last again, and frees it before another is made ready.

    Another division of the same weights over devices, another endpoint's settings and another start token are another
    model here: a back end keeps the entry that it was made from. The weights of ``base`` stay for models of the same
    base with other adapters.
    """

    def __init__(self) -> None:
        self._held: tuple[object, Backend] | None = None
        self.base = HeldBase()

    def ensure_loaded(self, model: TokenizedModel, load: BackendOf) -> Backend:
        """The model, ready to be run; ``load`` makes it so where it is not the one that is held.

        What ``load`` raises goes on to the caller, and no model is held then.
        """
        key = (model.identity.model_fingerprint, model.entry.devices, model.entry.host, model.start_token_id)
        if self._held is None or self._held[0] != key:
            self.free(keeps_base=model.entry.host.is_here)
            self._held = (key, load(model))
        return self._held[1]

    def free(self, *, keeps_base: bool = False) -> None:
        """Hold no model any more, and give its memory back; ``keeps_base``: but that of the base."""
        self._held = None
        if keeps_base:
            give_back_memory()
        else:
            self.base.free()


def open_backend(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    notify: Callable[[str], None] = lambda words: None,
    endpoints: Endpoints | None = None,
    engine: Engine = IN_PROCESS,
    base: HeldBase | None = None,
) -> Backend:
    """The model ready to be run; ``device`` None: a GPU if any. ``notify`` hears what takes time. ``base``: the weights
    that may be in memory.

    ``endpoints`` are those that the command, or run, asks; None: none was asked yet. Raises ModelError where it cannot
    be made ready, ClusterError where the workers of ``engine`` cannot be had.
    """
    if not model.entry.host.is_here:
        from audit_pipeline.scoring.used_endpoints import Endpoints  # noqa: PLC0415

        if engine.name == "ray":
            notify(f"{model.entry.name} runs on a server: this process sends the requests, and Ray is not used")
        return (endpoints or Endpoints()).open(model, paths, notify)
    if engine.name == "ray":
        from audit_pipeline.extras.ray.ray_backend import RayBackend  # noqa: PLC0415

        return RayBackend(model, paths, engine, device, notify, lambda: open_backend(model, paths, device, notify))
    # Imported where a model is run: a command that finds everything cached needs no torch.
    from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

    return load_forward_pass(model, paths, device, notify, base)


def build_backend_loader(
    paths: DataPaths,
    device: str | None,
    endpoints: Endpoints,
    engine: Engine | None = None,
    notify: Callable[[str], None] = lambda words: None,
) -> BackendOf:
    """What makes a model ready where something of it is not in the cache; one is in memory at a time.

    ``endpoints`` are those that the command asks. ``engine`` None: as the environment says. ``notify`` hears of
    loading.
    """
    held = HeldModel()

    def load(wanted: TokenizedModel) -> Backend:
        if wanted.entry.host.is_here:
            notify(f"loading {wanted.entry.name}")
        ready = open_backend(wanted, paths, device, notify, endpoints, engine or choose_engine(), held.base)
        notify(f"{wanted.entry.name}: {ready.described}")
        return ready

    return lambda wanted: held.ensure_loaded(wanted, load)
