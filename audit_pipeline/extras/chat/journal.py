"""The answers of a run that is not finished: a run that was killed loses none and asks nothing twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from audit_pipeline.errors import DataError
from audit_pipeline.store.locks import hold_lock

_PRIVATE = 0o600
_MOMENT = "asked_at"
"""The only column of answers that JSON has no value for."""


class AskJournal:
    """The rows of answers in the file at ``path``, which is there while a run is not finished.

    Only its owner can read the file: where texts are kept it holds prompts and answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the journal within the block; raises HeldError at once where another process holds it.

        A last line that a killed process has left unfinished is cut off.
        """
        with hold_lock(self.path.with_suffix(".lock"), 0.0):
            if self.path.exists():
                os.truncate(self.path, len(_whole_lines(self.path.read_bytes())))
            yield

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; it is on the disk when this returns."""
        moment: datetime | None = row[_MOMENT]
        line = json.dumps({**row, _MOMENT: moment and moment.isoformat()}) + "\n"
        with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE), "wb") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return the rows, less a last one that is unfinished; none where there is no file.

        Raises DataError for a damaged line.
        """
        rows: list[dict[str, Any]] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(_whole_lines(content).split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
                moment = row[_MOMENT]
                rows.append({**row, _MOMENT: moment and datetime.fromisoformat(moment)})
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self.path}, line {number}: cannot be read: delete this line, and what it holds is asked again"
                ) from error
        return rows


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
