"""Walk over a user's folder: the files to read, and the reasons for skipping other files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from audit_pipeline.errors import escape_unprintable
from audit_pipeline.readers.file_bytes import BROKEN_LINK, VANISHED, find_irregular_kind, is_unicode


def walk_files(
    root: Path,
    is_leaf_folder: Callable[[Path], bool] = lambda folder: False,
    find_refusal: Callable[[Path], str | None] = lambda folder: None,
) -> Iterator[tuple[str, Path, str | None]]:
    """Yield every file below a folder: printable name relative to the folder, path, and refusal.

    Hidden files are ignored. Only regular files within the folder are read: linked folders and links out of the folder
    are refused.

    Args:
        root: The folder.
        is_leaf_folder: Returns True for a folder that is yielded like a file and not entered.
        find_refusal: Returns the reason why a folder is not entered, or None.

    Yields:
        The files of each folder in the order of names. The refusal is the reason for not reading a file, or None.
    """
    real_root = Path(os.path.realpath(root))
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
            if kind in (BROKEN_LINK, VANISHED):
                # The target may exist later. So the reader reports the file as missing, not as unusable.
                kind = None
            refusal = kind or _explain_unusable_name(path, root, real_root)
            if name in names and refusal is None:
                refusal = "another file has this name once control characters are spelled out: rename it"
            names.add(name)
            yield name, path, refusal
    for error in unreadable:
        path = Path(os.fsdecode(error.filename))
        yield _name_file(path, root), path, f"a folder that cannot be read ({error.strerror})"


def _name_file(path: Path, root: Path) -> str:
    return escape_unprintable(path.relative_to(root).as_posix())


def _explain_unusable_name(path: Path, root: Path, real_root: Path) -> str | None:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(real_root):
        return "a link out of the folder"
    if not is_unicode(str(path.relative_to(root))):
        return "a name that is not UTF-8"
    return None
