"""What a worker does, on whatever machine it is: hold a model, run shards into the shared cache, and pass on errors.

What belongs here: making the model ready and sure that it is the one meant, running a shard; and keeping what caused an
error on its way to the process that asks, which pickling loses, and which says whether trying again may help. What does
not: who gets which shard and what is done about an error (dispatch.py), and Ray (ray_pool.py).
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from audit_pipeline.catalogue.lineage import package_versions
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import resolve_data_root
from audit_pipeline.errors import AuditError, ClusterError, TransientError, to_one_line
from audit_pipeline.fetch.retry import causes, is_transient_fault
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend, Work
    from audit_pipeline.token_statistics.cached_texts import Caches
    from audit_pipeline.token_statistics.run import RunSummary


class WorkerError(Exception):
    """An error in a worker, with what caused it, and what caused that: one after the other in ``args``."""


@contextmanager
def raise_picklable_errors() -> Generator[None]:
    """Raise a WorkerError in the place of any error, in a form that pickling keeps."""
    try:
        yield
    except Exception as error:
        raise WorkerError(*map(_to_picklable_error, causes(error))) from error


def restore_worker_error(error: Exception, remote_error: Exception | None = None) -> Exception:
    """The error that a worker met, with its causes.

    ``remote_error`` is what arrived; it shows the worker's traceback. It becomes the cause of the last of the causes,
    unless the error itself says all that a user needs.
    """
    chain = list(error.args) if isinstance(error, WorkerError) else [error]
    for effect, cause in pairwise(chain):
        effect.__cause__ = cause
    if remote_error is not None and not isinstance(chain[0], AuditError):
        chain[-1].__cause__ = remote_error
    return chain[0]


def _to_picklable_error(error: BaseException) -> BaseException:
    """The error itself where pickling keeps it, else one that says the same, and whether it may pass."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (made a moment ago)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        words = f"{type(error).__name__}: {to_one_line(str(error))}"
        return TransientError(words) if is_transient_fault(error) else RuntimeError(words)
    return error


@dataclass(frozen=True)
class Assignment:
    """Which model a worker holds, its data folder (a path, or a bucket's address), and what it computes with.

    ``identity`` and ``versions`` are those of the process that asks: a worker that has others would write other
    numbers under the same keys, and refuses.
    """

    entry: ModelEntry
    identity: ModelIdentity
    versions: Mapping[str, str]
    data: str
    device: str
    threads: int


class Worker:
    """A model in memory that runs shards."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._held: tuple[TokenizedModel, Backend, Caches] | None = None

    def placed(self) -> None:
        """Answer: a process that can has been given room."""

    def prepare(self) -> str:
        """Load the model; where it is and what it runs on, in words.

        Raises WorkerError, as :meth:`run` does, with the ModelError where it cannot be had here, or is not the one
        meant.
        """
        with raise_picklable_errors():
            return self._prepare()

    def _prepare(self) -> str:
        assignment = self._assignment
        # Read when torch is loaded, which nothing has done in this process yet.
        os.environ["OMP_NUM_THREADS"] = str(assignment.threads)
        _require_same("packages", assignment.versions, package_versions())
        paths = DataPaths(resolve_data_root(assignment.data))
        model = load_tokenizer(assignment.entry, paths)
        _require_same(f"files of {assignment.entry.name}", vars(assignment.identity), vars(model.identity))
        from audit_pipeline.token_statistics.cached_texts import Caches  # noqa: PLC0415
        from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

        backend = load_forward_pass(model, paths, assignment.device)
        self._held = model, backend, Caches(paths, only_written=True)
        return f"process {os.getpid()} on {socket.gethostname()}, {backend.described}"

    def run(self, work: Work) -> RunSummary:
        """Run a shard, and write its rows; they are on disk when this returns.

        The cache is neither read nor compacted: what is missing has been found out, and is given.
        """
        with raise_picklable_errors():
            return self._run(work)

    def _run(self, work: Work) -> RunSummary:
        from audit_pipeline.token_statistics.cached_texts import caches_of  # noqa: PLC0415
        from audit_pipeline.token_statistics.run import run_prepared  # noqa: PLC0415

        assert self._held is not None, "prepare comes first"
        model, backend, caches = self._held
        return run_prepared(
            model,
            work.prepared,
            caches_of(model, caches, sorted(frozenset().union(*work.prepared.missing))),
            lambda: backend,
            modes=work.modes,
            branch_steps=work.steps,
        )


def _require_same(subject: str, expected: Mapping[str, object], actual: Mapping[str, object]) -> None:
    if differing := sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name)):
        first = differing[0]
        raise ClusterError(
            f"a worker on {socket.gethostname()} has other {subject} than the process that asks: {first} is "
            f"{actual.get(first)} there and {expected.get(first)} here; install and share the same everywhere"
        )
