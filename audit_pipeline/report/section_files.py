"""The sections of a report: found in the folder sections/, a query and a template each.

What belongs here: finding them, and what a query's head says of it. What does not: running queries (page.py), rendering
templates (html.py).

A section is two files of one name, NN_name.sql and NN_name.html.j2; NN is its place on the page. A folder of that name
holds the parts of its rows, two files each as well: they belong to the row of the same model and benchmark. The first
paragraph of comments in a query says what its rows are, and a line "-- column: words" what a column means where no
table says so already. A column in_all says how many rows there would be without a limit; it counts and is no part of a
row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

SECTIONS = resources.files(__package__) / "sections"

_NAMED = re.compile(r"(\d+)_(\w+)\.sql")
_COLUMN = re.compile(r"-- (\w+): (.+)")


@dataclass(frozen=True)
class SectionFiles:
    """A section: its query, where its template stands, and the sections of its rows.

    ``description``: what its rows are; ``columns``: what some of them mean, by name.
    """

    name: str
    sql: str
    template: str
    description: str
    columns: Mapping[str, str]
    parts: tuple[SectionFiles, ...]


@cache
def sections() -> tuple[SectionFiles, ...]:
    """All sections, in the order of the page."""
    return _found(SECTIONS, "")


def _found(folder: Traversable, below: str) -> tuple[SectionFiles, ...]:
    names = {one.name: one for one in folder.iterdir()}
    found = []
    for file in sorted(name for name in names if _NAMED.fullmatch(name)):
        stem = file.removesuffix(".sql")
        parts = _found(names[stem], f"{below}{stem}/") if stem in names else ()
        found.append(_section(names[file].read_text(encoding="utf-8"), below + stem, parts))
    return tuple(found)


def _section(sql: str, stem: str, parts: tuple[SectionFiles, ...]) -> SectionFiles:
    head = sql.splitlines()[: _lines_of_head(sql)]
    end = head.index("--") if "--" in head else len(head)
    known = [_COLUMN.fullmatch(line) for line in head[end:]]
    return SectionFiles(
        name=stem.rpartition("/")[2].partition("_")[2],
        sql=sql,
        template=f"{stem}.html.j2",
        description=" ".join(line.removeprefix("-- ") for line in head[:end]),
        columns={match[1]: match[2] for match in known if match},
        parts=parts,
    )


def _lines_of_head(sql: str) -> int:
    lines = sql.splitlines()
    return next((place for place, line in enumerate(lines) if not line.startswith("--")), len(lines))
