"""The files of a user's folder: which are read, and why the others are not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from audit_pipeline.errors import escape_unprintable
from audit_pipeline.readers.regular_files import BROKEN_LINK, VANISHED, find_irregular_kind, is_unicode


def walk_files(
    root: Path,
    is_leaf_folder: Callable[[Path], bool] = lambda folder: False,
    find_refusal: Callable[[Path], str | None] = lambda folder: None,
) -> Iterator[tuple[str, Path, str | None]]:
    """Yield every file below the folder ``root``: its printable name from there, its path, and why it is not read.

    Hidden files are ignored. Only regular files are read, and no link leads out of the folder: a linked folder is
    named, not entered.

    Args:
        is_leaf_folder: Returns True for a folder that is yielded like a file and not entered.
        find_refusal: Returns the reason why a folder is not entered, or None.

    Yields:
        Files in the order of names. The third part is None if nothing speaks against reading the file.
    """
    inside = Path(os.path.realpath(root))
    unreadable: list[OSError] = []
    names: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=False, onerror=unreadable.append):
        entered = []
        for path in (Path(folder) / name for name in sorted(folders) if not name.startswith(".")):
            refusal = "a linked folder" if path.is_symlink() else find_refusal(path)
            if refusal is not None or is_leaf_folder(path):
                yield _name_file(path, root), path, refusal
            else:
                entered.append(path.name)
        folders[:] = entered
        for path in (Path(folder) / name for name in sorted(files) if not name.startswith(".")):
            name = _name_file(path, root)
            kind = find_irregular_kind(path)
            # What is behind a broken link may be there tomorrow. So its reader reports it as missing, not as unusable.
            kind = None if kind in (BROKEN_LINK, VANISHED) else kind
            refusal = kind or _explain_unusable_name(path, root, inside)
            if name in names and refusal is None:
                refusal = "another file has this name once control characters are spelled out: rename it"
            names.add(name)
            yield name, path, refusal
    for error in unreadable:
        path = Path(os.fsdecode(error.filename))
        yield _name_file(path, root), path, f"a folder that cannot be read ({error.strerror})"


def _name_file(path: Path, root: Path) -> str:
    return escape_unprintable(path.relative_to(root).as_posix())


def _explain_unusable_name(path: Path, root: Path, inside: Path) -> str | None:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
        return "a link out of the folder"
    return None if is_unicode(str(path.relative_to(root))) else "a name that is not UTF-8"
