"""Saved pages of patents, out of folders of .html files.

Links out of the folder are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.folders import walk_files

SUFFIXES = (".html", ".htm")


def read_saved_pages(root: Path) -> Iterator[tuple[str, bytes] | LeftOut | MissingPart]:
    """Yield name and content of every page in the file or folder ``root``, and every file that holds none, with the
    reason.

    Missing, without a collection, are files that cannot be read: the caller knows whose documents they may hold.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: no such file or folder")
        return
    for name, path, refusal in [(root.name, root, None)] if root.is_file() else walk_files(root):
        if refusal is not None or path.suffix.lower() not in SUFFIXES:
            yield LeftOut(name, refusal or f"not one of {', '.join(SUFFIXES)}")
            continue
        try:
            yield name, path.read_bytes()
        except OSError as error:
            yield MissingPart(name, f"{path}: cannot be read ({error.strerror or error})")
