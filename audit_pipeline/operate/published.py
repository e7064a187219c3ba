"""What warehouse and report were made with besides the findings: the configuration, the code, whether texts are quoted.

What belongs here: keeping that with them, and telling whether it is as it was. What does not: the findings (done.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from audit_pipeline.catalogue.lineage import package_versions
from audit_pipeline.catalogue.paths import DataPaths, config_dir, texts_are_quoted
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json

_PACKAGE = Path(__file__).parents[1]
_OF_CODE = {".py", ".sql", ".j2", ".css", ".js"}


def note_published(paths: DataPaths, *, include_text: bool) -> None:
    """Keep what warehouse and report, which have just been written, were made with."""
    write_json(paths.published, _made_with(include_text=include_text))


def is_published_as_now(paths: DataPaths) -> bool:
    """Whether they would be made with the same now."""
    return read_json_if_whole(paths.published) == _made_with(include_text=texts_are_quoted())


def _made_with(*, include_text: bool) -> dict[str, object]:
    config = config_dir()
    return {
        "configuration": _digest(config, sorted(config.glob("*.yaml"))),
        "code": _digest(_PACKAGE, sorted(path for path in _PACKAGE.rglob("*") if path.suffix in _OF_CODE)),
        "packages": package_versions(),
        "include_text": include_text,
    }


def _digest(folder: Path, files: Iterable[Path]) -> str:
    known = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        known.update(f"{file.relative_to(folder)}:{len(content)}:".encode() + content)
    return known.hexdigest()
