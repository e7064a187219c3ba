"""One rank of a model that is divided over several processes: loads its share, and runs the calls that it receives.

What belongs here: the process itself, and the messages that it takes and gives. What does not: starting ranks and what
is sent to them (ranked_pass.py).

It is started with the number of a file as its argument: its end of a socket to the process that writes. Where that
process ends, however it ends, this one does.
"""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from audit_pipeline.errors import AuditError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.weights import load_weights
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.layers import use_threads
from audit_pipeline.token_statistics.local_pass import LoadCheck

# A rank that is gone is noticed by the process that writes. This is how long one waits for another that reads its share
# of the weights from a slower disk.
_PATIENCE = timedelta(hours=1)


@dataclass(frozen=True)
class Start:
    """The first message to a rank. ``folder`` is where the ranks find each other, theirs alone."""

    model: TokenizedModel
    rank: int
    ranks: int
    device: str
    folder: Path
    known: LoadCheck | None
    branch_tokens: int | None


@dataclass(frozen=True)
class Call:
    """What is to be done with the model: ``function`` with the forward pass as its first argument.

    ``number`` is in the answer, too.
    """

    number: int
    function: Callable[..., Any]
    given: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True)
class RankReady:
    """What is known of the model once it is loaded."""

    checked: LoadCheck
    length_step: int | None
    parameters: int


@dataclass(frozen=True)
class RankAnswer:
    """What was found (None from every rank but the first) for the call of this ``number``, and how many tokens were run
    for it."""

    number: int
    found: Any
    tokens: int
    branch_tokens: int


@dataclass(frozen=True)
class NoMemory:
    """The device of this rank had no room."""

    words: str


@dataclass(frozen=True)
class RankFailed:
    """An error, in words for a user where ``is_for_user``, else with its traceback."""

    words: str
    is_for_user: bool


def serve() -> None:
    """Load the model, and run what comes, until the other end is closed."""
    connection = Connection(int(sys.argv[1]))
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    start: Start = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox, start.folder), daemon=True).start()
    forward: ForwardPass | None = None
    message: bytes | None = None
    while True:
        try:
            if message is None:
                forward = _load_share(start)
                connection.send(
                    RankReady(
                        forward.checked,
                        forward.length_step,
                        sum(parameter.numel() for parameter in forward.model.parameters()),
                    )
                )
            else:
                assert forward is not None
                # Unpickled here rather than in the listening thread, so that a failure is reported like any other.
                connection.send(_run_call(forward, pickle.loads(message), start.rank))  # noqa: S301  (our own)
        except torch.OutOfMemoryError as error:
            connection.send(NoMemory(str(error)))
        except AuditError as error:
            connection.send(RankFailed(str(error), is_for_user=True))
        except Exception:  # noqa: BLE001  (sent to the process that writes, which raises it)
            connection.send(RankFailed(traceback.format_exc(), is_for_user=False))
        message = inbox.get()


def _listen(connection: Connection, inbox: queue.SimpleQueue[bytes], folder: Path) -> None:
    """Take what is sent, also while the model runs: so the end of the other process is noticed at once."""
    while True:
        try:
            inbox.put(connection.recv_bytes())
        except (EOFError, OSError):
            shutil.rmtree(folder, ignore_errors=True)
            # Not by an exception: the main thread may wait in a library for ranks that are gone.
            os._exit(1)


def _load_share(start: Start) -> ForwardPass:
    on_gpu = start.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(start.rank)
    else:
        use_threads()
    torch.distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{start.folder / 'ranks'}",
        rank=start.rank,
        world_size=start.ranks,
        timeout=_PATIENCE,
        device_id=torch.device("cuda", start.rank) if on_gpu else None,
    )
    weights = load_weights(start.model, start.device)
    forward = ForwardPass(weights, start.model.vocab_size, start.known, branch_tokens=start.branch_tokens, in_step=True)
    torch.distributed.barrier()
    return forward


def _run_call(forward: ForwardPass, call: Call, rank: int) -> RankAnswer:
    tokens, branch_tokens = forward.tokens_run, forward.branch_tokens_run
    found = call.function(forward, *call.given, **call.named)
    return RankAnswer(
        call.number,
        found if rank == 0 else None,
        forward.tokens_run - tokens,
        forward.branch_tokens_run - branch_tokens,
    )
