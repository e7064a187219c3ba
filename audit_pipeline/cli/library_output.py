"""What libraries print of their own on standard error, held back while a command runs.

What belongs here: holding it back, and giving it out or keeping it in a file. What does not: what a command tells
(operate/console.py), and when it is kept (cli/command_group.py).

On a full disk Dagster and SQLAlchemy print an account of every record that they could not write. The user is told of
the disk in one line; what they printed is worth keeping for whoever looks into it, and not worth reading else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from audit_pipeline.catalogue.paths import make_private


class DeferredStderr:
    """Stands in the place of standard error; ``rich_proxied_file`` is where consoles of rich, so ours, write on to.

    Of everything but writing it is that stream.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.rich_proxied_file = terminal
        self._written: list[str] = []
        self._released = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            # By this click tells a stream of text from one of bytes.
            raise TypeError(f"text is written here, not {type(text).__name__}")
        if self._released:
            return self.rich_proxied_file.write(text)
        self._written.append(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def release(self) -> None:
        """Give out what was held back, and hold nothing back from now on: a logger may have kept this stream."""
        self._released = True
        self.rich_proxied_file.write(self._drain_buffer())
        self.rich_proxied_file.flush()

    def keep(self, *folders: Path) -> Path | None:
        """Write what was held back to a file in the first of ``folders`` that takes it, else in the system's temporary
        one; None where nothing was held back or nowhere is room, and then it is given out in the end."""
        text = "".join(self._written)
        for folder in (*folders, Path(tempfile.gettempdir())):
            if text and (file := _write_log(folder, text)) is not None:
                self._drain_buffer()
                return file
        return None

    def _drain_buffer(self) -> str:
        text = "".join(self._written)
        self._written.clear()
        return text


@contextmanager
def defer_stderr() -> Iterator[DeferredStderr]:
    """Hold back what is printed on standard error by anything but consoles of rich, until the end or its release."""
    before = sys.stderr
    held = DeferredStderr(before)
    sys.stderr = cast(TextIO, held)
    try:
        yield held
    finally:
        sys.stderr = before
        held.release()


def release_deferred_stderr() -> None:
    """Give out what is held back, where this process is about to become another program."""
    stream: object = sys.stderr
    if isinstance(stream, DeferredStderr):
        stream.release()


def _write_log(folder: Path, text: str) -> Path | None:
    try:
        make_private(folder)
        handle, name = tempfile.mkstemp(dir=folder, prefix="corpus-audit-", suffix=".log")
    except OSError:
        return None
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError:
        file.unlink()
        return None
    return file
