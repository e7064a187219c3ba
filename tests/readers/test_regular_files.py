"""Only regular files are opened. Other kinds of paths are named."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.readers.file_bytes import VANISHED, find_irregular_kind, open_regular_file
from audit_pipeline.readers.formats import compute_file_digest, open_rows
from audit_pipeline.readers.whole_files.document import WHOLE_FILES, read_document

KINDS = {
    "plain": None,
    "link": None,
    "folder": "a folder",
    "pipe": "a pipe",
    "link_to_pipe": "a pipe",
    "socket": "a socket",
    "device": "a device",
    "itself": "a link that leads back to itself",
    "there": "a link that leads back to itself",
    "broken": "a broken link",
    "absent": "a file that has vanished",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_only_regular_files_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str | None
) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    # The path of a socket may have 107 bytes.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    links = {"link": "plain", "link_to_pipe": "pipe", "device": "/dev/zero", "broken": "absent"}
    for link, target in {**links, "itself": "itself", "there": "back", "back": "there"}.items():
        (tmp_path / link).symlink_to(target)
    path = tmp_path / name
    assert find_irregular_kind(path) == kind
    if kind is None:
        with open_regular_file(path) as opened:
            assert opened.read() == b"text"
    else:
        reason = "No such file" if kind == VANISHED else f"it is {kind}"
        with pytest.raises(OSError, match=reason):
            open_regular_file(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet", ".arrow", ".xlsx"])
def test_a_pipe_of_rows_is_refused(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"rows{suffix}"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="is a pipe"):
        open_rows(pipe)
    with pytest.raises(OSError, match="it is a pipe"):
        compute_file_digest(pipe)


@pytest.mark.parametrize("suffix", WHOLE_FILES)
def test_a_pipe_of_a_document_is_refused(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"book{suffix}"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="it is a pipe, not a regular file"):
        read_document(pipe)


def test_a_file_that_is_replaced_by_a_pipe_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "one"}\n')
    rows = open_rows(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DataError, match="it is a pipe"):
        list(rows.entries())
