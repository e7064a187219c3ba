"""The back end of a model, as its entry says.

What belongs here: choosing it. What does not: the interface (backend.py), and any one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster.engine import IN_PROCESS, Engine, chosen_engine
from audit_pipeline.errors import ModelError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.held import HeldModel

if TYPE_CHECKING:
    from audit_pipeline.endpoints.in_use import Endpoints
    from audit_pipeline.token_statistics.ranks import LocalPass


def open_backend(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    tell: Callable[[str], None] = lambda words: None,
    endpoints: Endpoints | None = None,
    engine: Engine = IN_PROCESS,
) -> Backend:
    """The model ready to be run; ``device`` None: a GPU where there is one. ``tell`` hears what takes time.

    ``endpoints`` are those that the command, or run, asks; None: none was asked yet. Raises ModelError where it cannot
    be made ready, ClusterError where the workers of ``engine`` cannot be had.
    """
    if model.entry.endpoint is not None:
        from audit_pipeline.endpoints.in_use import Endpoints  # noqa: PLC0415

        if engine.name == "ray":
            tell(f"{model.entry.name} is behind an interface: it is asked from this process, and Ray is not used")
        return (endpoints or Endpoints()).open(model, paths, tell)
    if engine.name == "ray":
        from audit_pipeline.cluster.backend import RayBackend  # noqa: PLC0415

        return RayBackend(model, paths, engine, device, tell, lambda: open_backend(model, paths, device, tell))
    # Imported where a model is run: a command that finds everything cached needs no torch.
    from audit_pipeline.token_statistics.ready import forward_pass  # noqa: PLC0415

    return forward_pass(model, paths, device, tell)


def loader(
    paths: DataPaths,
    device: str | None,
    endpoints: Endpoints,
    engine: Engine | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> BackendOf:
    """What makes a model ready where something of it is not in the cache; one is in memory at a time.

    ``endpoints`` are those that the command asks. ``engine`` None: as the environment says. ``tell`` hears of loading.
    """
    held = HeldModel()

    def load(wanted: TokenizedModel) -> Backend:
        if wanted.entry.endpoint is None:
            tell(f"loading {wanted.entry.name}")
        ready = open_backend(wanted, paths, device, tell, endpoints, engine or chosen_engine())
        tell(f"{wanted.entry.name}: {ready.described}")
        return ready

    return lambda wanted: held.ready(wanted, load)


def in_memory(model: TokenizedModel, backend_of: BackendOf) -> LocalPass:
    """The model on this machine, for what goes through it otherwise than window by window.

    One that workers run is loaded here as well.
    Raises ModelError where its entry says another back end.
    """
    from audit_pipeline.cluster.backend import RayBackend  # noqa: PLC0415
    from audit_pipeline.token_statistics.ranks import LocalPass  # noqa: PLC0415

    backend = backend_of(model)
    if isinstance(backend, RayBackend):
        backend = backend.here
    if not isinstance(backend, LocalPass):
        raise ModelError(
            f"{model.entry.name} is {backend.described}: generated, near-verbatim and long continuations need its "
            "weights on this machine"
        )
    return backend
