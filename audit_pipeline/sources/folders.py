"""The files of a user's folder: which are read, and why the others are not.

What belongs here: walking the folder. What does not: what a file of it holds (each source).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.fetch.rows import unicode_problem


def walk_files(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Every file below the folder ``root`` in the order of names: its name from there, its path, and why it is not
    read (None: nothing speaks against it).

    Hidden files are ignored, and no link leads out of the folder: a linked folder is named, not entered.
    """
    inside = root.resolve()
    for folder, folders, files in os.walk(root, followlinks=False):
        here = Path(folder)
        visible = sorted(name for name in folders if not name.startswith("."))
        linked = [name for name in visible if (here / name).is_symlink()]
        for name in linked:
            yield (here / name).relative_to(root).as_posix(), here / name, "a linked folder"
        folders[:] = [name for name in visible if name not in linked]
        for path in (here / name for name in sorted(files) if not name.startswith(".")):
            name = path.relative_to(root).as_posix()
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                yield name, path, "a link out of the folder"
            elif unicode_problem(name) is not None:
                yield name.encode("utf-8", "backslashreplace").decode(), path, "a name that is not UTF-8"
            else:
                yield name, path, None
