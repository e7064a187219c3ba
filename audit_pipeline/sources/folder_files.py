"""The files of a user's folder: which are read, and why the others are not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from audit_pipeline.readers.text_rows import explain_invalid_unicode


def walk_files(
    root: Path,
    is_leaf_folder: Callable[[Path], bool] = lambda folder: False,
    find_refusal: Callable[[Path], str | None] = lambda folder: None,
) -> Iterator[tuple[str, Path, str | None]]:
    """Yield every file below the folder ``root`` in the order of names: its name from there, its path, and why it is
    not read (None: nothing speaks against it).

    Hidden files are ignored, and no link leads out of the folder: a linked folder is named, not entered. A folder that
    ``is_file`` is given as one, and one that ``find_refusal`` has a reason against is not entered.
    """
    inside = root.resolve()
    for folder, folders, files in os.walk(root, followlinks=False):
        entered = []
        for path in (Path(folder) / name for name in sorted(folders) if not name.startswith(".")):
            refusal = "a linked folder" if path.is_symlink() else find_refusal(path)
            if refusal is not None or is_leaf_folder(path):
                yield path.relative_to(root).as_posix(), path, refusal
            else:
                entered.append(path.name)
        folders[:] = entered
        for path in (Path(folder) / name for name in sorted(files) if not name.startswith(".")):
            name = path.relative_to(root).as_posix()
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                yield name, path, "a link out of the folder"
            elif explain_invalid_unicode(name) is not None:
                yield name.encode("utf-8", "backslashreplace").decode(), path, "a name that is not UTF-8"
            else:
                yield name, path, None
