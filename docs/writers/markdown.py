"""Markdown: tables, texts as they are, and what is between the marks of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BEGIN = "<!-- From here to the end mark: `make docs` writes it from the code. Change the declarations. -->"
END = "<!-- The end mark. -->"


def insert_between_marks(text: str, content: str) -> str:
    """``text`` with ``content`` between its two marks; raises ValueError where it lacks them."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def format_markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escape_markdown(words: str) -> str:
    """Text in Markdown as it is: no bar ends a cell, nothing is a tag or an emphasis."""
    for character in "|*<":
        words = words.replace(character, f"\\{character}")
    return words
