"""Whole documents from users' files, and the few words of them that are quoted.

What belongs here: which texts are documents, their names, excerpts. What does not: the formats of rows (fetch/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit_pipeline.catalogue.contracts import EXCERPT_CHARACTERS, EXCERPT_WORDS
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.search import Document
from audit_pipeline.fetch.read import holds_rows, open_texts
from audit_pipeline.fetch.rows import SkippedRows

_NAMES = ("document_id", "id", "title")


def read_documents(path: Path, text_column: str | None) -> tuple[list[Document], SkippedRows]:
    """The documents of ``path``, and rows that are none.

    A .txt file, and each one in a folder, is one document by the file's name; in files of rows each row is one, by its
    column document_id, id or title, else by its number. Raises DataError where there is no document, where two have one
    name, and where a file is not UTF-8.
    """
    files = _text_files(path)
    if files:
        documents, skipped = [Document(one.stem, _text(one)) for one in files], SkippedRows()
    elif path.is_dir() and not holds_rows(path):
        raise DataError(f"{path}: the folder holds no .txt file, and is no data set that `datasets` saved")
    else:
        texts = open_texts(path, text_column, _NAMES)
        documents = [Document(_name(row.values, row.index), row.text) for row in texts]
        skipped = texts.skipped
    _require_distinct(path, documents)
    return documents, skipped


def excerpt(text: str, *, last: bool = False) -> str:
    """The first words of a passage, or its last, on one line: half as many as may be quoted, since prefix and suffix
    stand side by side."""
    words, characters = EXCERPT_WORDS // 2, EXCERPT_CHARACTERS // 2
    some = text.split()[-words:] if last else text.split()[:words]
    line = " ".join(some)
    return line[-characters:] if last else line[:characters]


def _text_files(path: Path) -> list[Path]:
    """The .txt files that ``path`` is or, as a folder, holds."""
    candidates = sorted(path.iterdir()) if path.is_dir() else [path]
    return [one for one in candidates if one.suffix.lower() == ".txt" and one.is_file()]


def _text(path: Path) -> str:
    try:
        # Bytes, so that the ends of lines stay what they are: places are counted in the user's own characters.
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 (byte {error.start:,}); save it as UTF-8") from None
    if not text.strip():
        raise DataError(f"{path}: the file holds no text")
    return text


def _name(values: Mapping[str, object], index: int) -> str:
    given = next((values[name] for name in _NAMES if values.get(name) not in (None, "")), None)
    return f"row {index}" if given is None else str(given)


def _require_distinct(path: Path, documents: Sequence[Document]) -> None:
    counted = Counter(one.name for one in documents)
    twice = [name for name, times in counted.items() if times > 1]
    if twice:
        raise DataError(f"{path}: {len(twice)} name(s) stand for two documents or more: {', '.join(twice[:5])}")
