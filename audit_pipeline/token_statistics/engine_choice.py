"""The choice of the engine that runs models: this process, or the workers of a Ray cluster (ray_backend.py)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

from audit_pipeline.errors import ConfigError

EngineName = Literal["in_process", "ray"]


@dataclass(frozen=True)
class Engine:
    """The engine that runs models.

    Attributes:
        name: Name of the engine.
        workers: Number of Ray workers that hold the model. None: one per GPU, else one per node.
    """

    name: EngineName = "in_process"
    workers: int | None = None

    @property
    def run_config(self) -> dict[str, object]:
        """Return the configuration of the resource ``models`` of a Dagster run."""
        if self.workers is None:
            return {"engine": self.name}
        return {"engine": self.name, "workers": self.workers}


IN_PROCESS = Engine()


def choose_engine(name: str | None = None, workers: int | None = None) -> Engine:
    """Return the chosen engine. None takes the variable CORPUS_AUDIT_ENGINE or CORPUS_AUDIT_WORKERS instead.

    Raises:
        ConfigError: If a value is invalid, or if Ray is not installed.
    """
    chosen: Any = name or os.environ.get("CORPUS_AUDIT_ENGINE") or "in_process"
    if chosen not in get_args(EngineName):
        raise ConfigError(
            f"the engine (--engine or CORPUS_AUDIT_ENGINE) is {chosen!r}. Use {' or '.join(get_args(EngineName))}."
        )
    if chosen == "in_process":
        if workers is not None:
            raise ConfigError("the number of workers requires the engine ray. Use --engine ray, or remove --workers.")
        return IN_PROCESS
    if find_spec("ray") is None:
        raise ConfigError("the engine ray requires the package ray. Run: pip install 'corpus-audit[ray]'")
    count = str(workers or os.environ.get("CORPUS_AUDIT_WORKERS") or "")
    if count and not (count.isdecimal() and int(count)):
        raise ConfigError(
            f"the number of workers (--workers or CORPUS_AUDIT_WORKERS) is {count!r}. Use a whole number of at least 1."
        )
    return Engine(chosen, int(count) if count else None)
