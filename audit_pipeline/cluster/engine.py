"""Where models are run: in this process, or by the workers of a Ray cluster.

What belongs here: the choice, from the command line, a run's configuration or the environment. What does not: Ray
(ray_pool.py), and what a model's own entry says of how it is run (scoring/backends.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any, Literal, get_type_hints

from audit_pipeline.errors import ConfigError

EngineName = Literal["in_process", "ray"]

FEWEST_WORKERS = 1
_BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "workers": {"ge": FEWEST_WORKERS},
    "gpus_per_worker": {"ge": 0},
    "shard_minutes": {"gt": 0},
}
_VARIABLES = {
    "name": "CORPUS_AUDIT_ENGINE",
    "workers": "CORPUS_AUDIT_WORKERS",
    "gpus_per_worker": "CORPUS_AUDIT_GPUS_PER_WORKER",
    "shard_minutes": "CORPUS_AUDIT_SHARD_MINUTES",
}


@dataclass(frozen=True)
class Engine:
    """What runs models. All but the name is about Ray's workers, and left to the cluster where it is None.

    ``workers``: how many hold the model; None: one a GPU, else one a node. ``gpus_per_worker``: None: what the
    model is divided over, else 1, where the cluster has GPUs, else 0; on the device cpu none. ``shard_minutes``: how
    long a shard may go without a result before it is given to another worker; None: by its tokens (dispatch.py).
    The bounds are checked by :func:`choose_engine`.
    """

    name: EngineName = "in_process"
    workers: int | None = None
    gpus_per_worker: float | None = None
    shard_minutes: float | None = None

    @property
    def run_config(self) -> dict[str, object]:
        """The same as the configuration of the resource ``models`` of a Dagster run."""
        # In this process there are no workers for the environment to say anything of.
        given = {name: value for name, value in vars(self).items() if name != "name" and value is not None}
        return {"engine": self.name, **(given if self.name == "ray" else {})}


IN_PROCESS = Engine()


def choose_engine(options: Mapping[str, object] | None = None) -> Engine:
    """The engine of ``options``; what is absent or None there is taken from the environment (CORPUS_AUDIT_ENGINE, …).

    Raises ConfigError where a value makes no sense, and where Ray is chosen and not installed.
    """
    # Imported here: the help of commands waits for no pydantic.
    from pydantic import Field, ValidationError, create_model  # noqa: PLC0415

    types = get_type_hints(Engine)
    bounded: dict[str, Any] = {
        field.name: (types[field.name], Field(field.default, **_BOUNDS.get(field.name, {}))) for field in fields(Engine)
    }

    given = {name: value for name, value in (options or {}).items() if value is not None}
    environment = {name: os.environ[variable] for name, variable in _VARIABLES.items() if os.environ.get(variable)}
    try:
        engine = Engine(**create_model("Engine", **bounded).model_validate({**environment, **given}).model_dump())
    except ValidationError as error:
        [first, *_] = error.errors()
        variable = _VARIABLES[str(first["loc"][0])]
        raise ConfigError(f"{variable} (or the option): {first['input']!r}: {first['msg']}") from error
    if engine.name == "in_process" and given.keys() - {"name"}:
        raise ConfigError("workers are those of the engine ray: give --engine ray, or leave --workers out")
    if engine.name == "ray" and find_spec("ray") is None:
        raise ConfigError("the engine ray needs the package ray: pip install 'corpus-audit[ray]'")
    return engine
