"""Which windows of a corpus are members, which are held out, and how often each member is trained on.

Roles are drawn at random among windows (or documents) of one pool, so that members and held-out texts differ in
nothing but that the model was trained on the former: the labels of the benchmark are randomised by design.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import cycle, islice
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.words import word_unit
from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.controls.config import ControlEntry
from audit_pipeline.errors import DataError

MEMBER, HELD_OUT, TWIN, SURROUNDING = "member", "held_out", "twin", "surrounding"
ROLES = (MEMBER, HELD_OUT, TWIN, SURROUNDING)


@dataclass(frozen=True)
class DrawnText:
    """One window: its role, and how often each of the two models is trained on it in an epoch."""

    document_id: str
    group: str
    collection: str
    language: str
    published: date | None
    text: str
    role: str
    exposed: int
    twin: int


@dataclass(frozen=True)
class _DrawnWindow:
    document: Mapping[str, Any]
    unit: str
    text: str


def draw_texts(documents: pa.Table, entry: ControlEntry) -> list[DrawnText]:
    """The texts of ``entry`` out of ``documents`` (schema DOCUMENTS, any order), by role and in the order of drawing.

    Every document is cut into windows of exactly ``entry.words`` words, one after the other; a text that occurs twice
    in the corpus is left out altogether, since no role of its own could be given to it. What is randomised is the
    window or, for ``randomise: document``, the document with all its windows. The model is trained on the members and
    the surrounding windows; the control model (role twin) on as many windows that are neither members nor held out,
    with the same number of occurrences, and the same surrounding ones. A member whose Poisson draw is 0 is never
    trained on: it is held out. Where the entry names several numbers of occurrences, chance divides the members among
    them, into parts that differ by one text at most.

    Raises DataError where the corpus holds too few windows.
    """
    pool = _cut_into_windows(documents, entry)
    needed = {
        MEMBER: entry.members,
        HELD_OUT: entry.held_out,
        TWIN: entry.members,
        SURROUNDING: entry.surrounding,
    }
    chosen = (
        _assign_roles_by_document(pool, needed, entry)
        if entry.randomise == "document"
        else _assign_roles_by_window(pool, needed, entry)
    )
    # A generator of its own for each, so that another corpus size or mean leaves the members as they are.
    counts = {role: _draw_occurrences(entry, role) for role in (MEMBER, TWIN)}
    drawn = []
    for role in ROLES:
        for place, window in enumerate(chosen[role]):
            times = 1 if role == SURROUNDING else counts[role][place] if role in counts else 0
            drawn.append(
                DrawnText(
                    document_id=window.document["document_id"],
                    group=window.unit,
                    collection=window.document["collection"],
                    language=window.document["language"],
                    published=window.document["published"],
                    text=window.text,
                    role=HELD_OUT if role == MEMBER and times == 0 else role,
                    exposed=times if role in (MEMBER, SURROUNDING) else 0,
                    twin=times if role in (TWIN, SURROUNDING) else 0,
                )
            )
    return drawn


def _cut_into_windows(documents: pa.Table, entry: ControlEntry) -> list[_DrawnWindow]:
    unit = word_unit(entry.unit)
    windows: list[_DrawnWindow] = []
    for document in sorted(documents.to_pylist(), key=lambda row: row["document_id"]):
        words = unit.split(document["text"])
        for start in range(0, len(words) - entry.words + 1, entry.words):
            text = unit.join(words[start : start + entry.words])
            if len(unit.split(text)) == entry.words:
                identity = document["document_id"]
                whole = entry.randomise == "document"
                windows.append(_DrawnWindow(document, identity if whole else f"{identity}:{start}", text))
    times: dict[str, int] = defaultdict(int)
    for window in windows:
        times[window.text] += 1
    return [window for window in windows if times[window.text] == 1]


def _assign_roles_by_window(
    pool: Sequence[_DrawnWindow], role_counts: Mapping[str, int], entry: ControlEntry
) -> dict[str, list[_DrawnWindow]]:
    if len(pool) < sum(role_counts.values()):
        raise DataError(_format_shortage(entry, role_counts, len(pool)))
    order = sorted(pool, key=lambda window: digest(entry.seed, entry.name, "role", window.unit))
    chosen, start = {}, 0
    for role in ROLES:
        chosen[role] = order[start : start + role_counts[role]]
        start += role_counts[role]
    return chosen


def _assign_roles_by_document(
    pool: Sequence[_DrawnWindow], role_counts: Mapping[str, int], entry: ControlEntry
) -> dict[str, list[_DrawnWindow]]:
    """Whole documents to roles in random order, each to the role that lacks the largest share of its windows."""
    units: dict[str, list[_DrawnWindow]] = defaultdict(list)
    for window in pool:
        units[window.unit].append(window)
    chosen: dict[str, list[_DrawnWindow]] = {role: [] for role in ROLES}
    for unit in sorted(units, key=lambda name: digest(entry.seed, entry.name, "role", name)):
        lacking = {
            role: (role_counts[role] - len(chosen[role])) / role_counts[role] for role in ROLES if role_counts[role]
        }
        role = max(lacking, key=lambda name: lacking[name])
        if lacking[role] <= 0:
            break
        chosen[role] += units[unit]
    for role in ROLES:
        if len(chosen[role]) < role_counts[role]:
            raise DataError(_format_shortage(entry, role_counts, len(pool)))
        order = sorted(chosen[role], key=lambda window: digest(entry.seed, entry.name, "window", window.text))
        chosen[role] = order[: role_counts[role]]
    return chosen


def _draw_occurrences(entry: ControlEntry, role: str) -> list[int]:
    """How often each text of ``role`` is trained on, in the order of drawing."""
    if isinstance(entry.occurrences, tuple):
        # That order is random already: dealing the numbers out in turn divides the texts by chance.
        return list(islice(cycle(entry.occurrences), entry.members))
    if entry.draw == "fixed":
        return [int(entry.occurrences)] * entry.members
    draw = random.Random(int(digest(entry.seed, entry.name, "occurrences", role), 16))  # noqa: S311 - reproducible
    return [_draw_poisson(entry.occurrences, draw) for _ in range(entry.members)]


def _draw_poisson(mean: float, generator: random.Random) -> int:
    """A Poisson draw by counting exponential gaps (Knuth): a few steps at the means that are of use here."""
    limit, product, count = math.exp(-mean), generator.random(), 0
    while product > limit:
        product *= generator.random()
        count += 1
    return count


def _format_shortage(entry: ControlEntry, role_counts: Mapping[str, int], window_count: int) -> str:
    parts = ", ".join(f"{count} {role}" for role, count in role_counts.items() if count)
    return (
        f"control {entry.name}: {sum(role_counts.values())} windows of {entry.words} words are needed ({parts}), "
        f"but {', '.join(entry.sources)} hold{'s' * (len(entry.sources) == 1)} {window_count} "
        f"by {entry.randomise}; ask for fewer, or for shorter ones"
    )
