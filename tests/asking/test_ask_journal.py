"""The journal of a run: what was appended is there after a kill, and one process at a time writes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer

from audit_pipeline.asking.journal import AskJournal
from audit_pipeline.catalogue.locks import HeldError
from audit_pipeline.errors import DataError

ROOT = Path(__file__).parents[2]
AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "output": "two\nlines \u2028 and “more” \r",
        "asked_at": AT,
        "cost": 0.1,
        "edits": None,
        **fields,
    }


@pytest.fixture
def journal(tmp_path: Path) -> AskJournal:
    return AskJournal(tmp_path / "answers.jsonl")


def test_rows_come_back_as_they_were_with_their_moments(journal: AskJournal) -> None:
    assert journal.read() == []
    rows = [row(0), row(1, asked_at=None), row(2, is_right=True)]
    for one in rows:
        journal.append(one)
    assert journal.read() == rows
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_is_dropped_and_the_next_row_stands_on_a_line_of_its_own(journal: AskJournal) -> None:
    journal.append(row(0))
    whole = journal.path.stat().st_size
    journal.append(row(1))
    for size in range(whole + 1, journal.path.stat().st_size):
        os.truncate(journal.path, size) if size == whole + 1 else journal.path.open("ab").write(b"x")
        assert journal.read() == [row(0)]
    with journal.hold():
        journal.append(row(2))
    assert journal.read() == [row(0), row(2)]


@pytest.mark.parametrize("damaged", [b"{", b"nonsense", b"[]", b'{"number": 1}', b"\x00\xff", b'{"asked_at": "then"}'])
def test_a_damaged_line_is_told_by_file_and_number(damaged: bytes, journal: AskJournal) -> None:
    journal.append(row(0))
    with journal.path.open("ab") as file:
        file.write(damaged + b"\n")
    journal.append(row(2))
    with pytest.raises(DataError, match=r"answers\.jsonl, line 2: cannot be read"):
        journal.read()


def test_one_process_at_a_time_asks(journal: AskJournal) -> None:
    with (
        journal.hold(),
        pytest.raises(HeldError, match="another process is asking the same"),
        AskJournal(journal.path).hold(),
    ):
        pass
    with journal.hold():
        pass


KILLED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.chat_client import ask_all, open_budget
from audit_pipeline.asking.interfaces import Prompt, Sampling
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.asking.journal import AskJournal
journal = AskJournal(Path({path!r}))
entry = ChatModel(name="made", model="openai/made-1", url={url!r}, concurrency=2)
requests = ((number, Prompt(None, "prompt %d" % number), Sampling(0.0, 20)) for number in range(1000))
def keep(number, reply):
    journal.append({{"number": number, "output": reply.text, "asked_at": reply.asked_at}})
    print(number, flush=True)
with journal.hold():
    ask_all(entry, requests, open_budget(entry, Limits()), keep, print)
"""


def test_what_came_before_a_kill_is_there_and_the_lock_is_free(journal: AskJournal, tmp_path: Path) -> None:
    with ChatServer(lambda prompt: f"words of {prompt}") as server:
        server.pause = 0.01
        code = KILLED.format(root=str(ROOT), path=str(journal.path), url=f"{server.url}/v1")
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        came = [int(child.stdout.readline()) for _ in range(10)]
        with pytest.raises(HeldError), journal.hold():
            pass
        child.send_signal(signal.SIGKILL)
        came += [int(line) for line in child.stdout.read().splitlines()]
        child.wait()
        asked = len(server.requests)
    with journal.hold():
        rows = journal.read()
    numbers = [one["number"] for one in rows]
    assert numbers[: len(came)] == came
    # One more may have been written and not printed; two were under way.
    assert len(came) <= len(numbers) <= len(came) + 1
    assert len(numbers) <= asked <= len(numbers) + 3
    assert all(one["output"] == f"words of prompt {one['number']}" for one in rows)
