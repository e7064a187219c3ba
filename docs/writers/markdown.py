"""Markdown: tables, escaped texts, and the generated part of a page between its marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BEGIN = "<!-- From here to the end mark: `make docs` writes it from the code. Change the declarations. -->"
END = "<!-- The end mark. -->"


def insert_between_marks(text: str, content: str) -> str:
    """Return ``text`` with ``content`` between its two marks. Raises ValueError if a mark is missing."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def format_markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escape_markdown(words: str) -> str:
    """Return the text with escaped bars, tags and emphasis."""
    for character in "|*<":
        words = words.replace(character, f"\\{character}")
    return words
