"""Which windows of a corpus are members, which are held out, and how often each member is trained on.

Roles are drawn at random among windows (or documents) of one pool, so that members and held-out texts differ in
nothing but that the model was trained on the former: the labels of the benchmark are randomised by design.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import cycle, islice

import pyarrow as pa

from audit_pipeline.benchmarks.words import get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version, read_documents, read_documents_version
from audit_pipeline.tables import digest

VERSION = 1


def compute_control_version(entry: ControlEntry, source_versions: Mapping[str, str]) -> str:
    """sha256 (16 hex digits) of all that decides texts and weights: settings, documents, this code's version.

    The weights follow from it on one machine and version of torch; another may round otherwise, and the manifest says
    which it was.
    """
    return digest(VERSION, entry.settings_digest, dict(source_versions))[:16]


def read_control_documents(entry: ControlEntry, paths: DataPaths) -> tuple[pa.Table, Mapping[str, str]]:
    """The documents that a control is drawn from, and their versions; DataError where they have not been fetched."""
    tables = {source: read_documents(paths, source) for source in entry.sources}
    return pa.concat_tables(tables.values()), {name: compute_documents_version(table) for name, table in tables.items()}


def compute_wanted_version(entry: ControlEntry, paths: DataPaths) -> str | None:
    """Return the version that the control would be trained in now; None where its documents are not there."""
    try:
        return compute_control_version(
            entry, {source: read_documents_version(paths, source) for source in entry.sources}
        )
    except DataError:
        return None


MEMBER, HELD_OUT, TWIN, SURROUNDING = "member", "held_out", "twin", "surrounding"
ROLES = (MEMBER, HELD_OUT, TWIN, SURROUNDING)


@dataclass(frozen=True)
class DrawnText:
    """One window: its role, and how often each of the two models is trained on it in an epoch.

    ``group``: what is randomised, the window or its whole document. A window that is not drawn yet has no role.
    """

    document_id: str
    group: str
    collection: str
    language: str
    published: date | None
    text: str
    role: str = ""
    exposed: int = 0
    twin: int = 0


def draw_texts(documents: pa.Table, entry: ControlEntry) -> list[DrawnText]:
    """The texts of ``entry`` out of ``documents`` (schema DOCUMENTS, any order), by role and in the order of drawing.

    Every document is cut into windows of exactly ``entry.words`` words, in order; a text that occurs twice
    in the corpus is left out altogether, since no role of its own could be given to it. What is randomised is the
    window or, for ``randomise: document``, the document with all its windows. The model is trained on the members and
    the surrounding windows; the control model (role twin) on as many windows that are neither members nor held out,
    with the same number of occurrences, and the same surrounding ones. A member whose Poisson draw is 0 is never
    trained on: it is held out. Where the entry names several numbers of occurrences, chance divides the members among
    them, into parts that differ by one text at most.

    Raises DataError where the corpus holds too few windows.
    """
    pool = _cut_into_windows(documents, entry)
    needed = {MEMBER: entry.members, HELD_OUT: entry.held_out, TWIN: entry.members, SURROUNDING: entry.surrounding}
    if entry.randomise == "document":
        chosen = _assign_roles_by_document(pool, needed, entry)
    elif len(pool) < sum(needed.values()):
        raise DataError(_format_shortage(entry, needed, len(pool)))
    else:
        order = iter(sorted(pool, key=lambda window: digest(entry.seed, entry.name, "role", window.group)))
        chosen = {role: list(islice(order, needed[role])) for role in ROLES}
    # A generator of its own for each, so that another corpus size or mean leaves the members as they are.
    counts = {role: _draw_occurrences(entry, role) for role in (MEMBER, TWIN)}
    drawn = []
    for role in ROLES:
        for place, window in enumerate(chosen[role]):
            times = 1 if role == SURROUNDING else counts[role][place] if role in counts else 0
            own_role = HELD_OUT if role == MEMBER and times == 0 else role
            exposed, twin = (times if role in (own, SURROUNDING) else 0 for own in (MEMBER, TWIN))
            drawn.append(replace(window, role=own_role, exposed=exposed, twin=twin))
    return drawn


def _cut_into_windows(documents: pa.Table, entry: ControlEntry) -> list[DrawnText]:
    unit = get_word_unit(entry.unit)
    windows: list[DrawnText] = []
    for document in sorted(documents.to_pylist(), key=lambda row: row["document_id"]):
        words = unit.split(document["text"])
        for start in range(0, len(words) - entry.words + 1, entry.words):
            text = unit.join(words[start : start + entry.words])
            if len(unit.split(text)) == entry.words:
                identity = document["document_id"]
                group = identity if entry.randomise == "document" else f"{identity}:{start}"
                collection, language, published = (document[name] for name in ("collection", "language", "published"))
                windows.append(DrawnText(identity, group, collection, language, published, text))
    times = Counter(window.text for window in windows)
    return [window for window in windows if times[window.text] == 1]


def _assign_roles_by_document(
    pool: Sequence[DrawnText], role_counts: Mapping[str, int], entry: ControlEntry
) -> dict[str, list[DrawnText]]:
    """Whole documents to roles in random order, each to the role that lacks the largest share of its windows."""
    units: dict[str, list[DrawnText]] = defaultdict(list)
    for window in pool:
        units[window.group].append(window)
    chosen: dict[str, list[DrawnText]] = {role: [] for role in ROLES}
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
    """Return how often each text of ``role`` is trained on, in the order of drawing."""
    if isinstance(entry.occurrences, tuple):
        # That order is random already: dealing the numbers out in turn divides the texts by chance.
        return list(islice(cycle(entry.occurrences), entry.members))
    if entry.draw == "fixed":
        return [int(entry.occurrences)] * entry.members
    draw = random.Random(int(digest(entry.seed, entry.name, "occurrences", role), 16))  # noqa: S311 - reproducible
    limit, counts = math.exp(-entry.occurrences), []
    # A Poisson draw by counting exponential gaps (Knuth): a few steps at the means that are of use here.
    for _ in range(entry.members):
        product, count = draw.random(), 0
        while product > limit:
            product *= draw.random()
            count += 1
        counts.append(count)
    return counts


def _format_shortage(entry: ControlEntry, role_counts: Mapping[str, int], window_count: int) -> str:
    parts = ", ".join(f"{count} {role}" for role, count in role_counts.items() if count)
    return (
        f"control {entry.name}: {sum(role_counts.values())} windows of {entry.words} words are needed ({parts}), "
        f"but {', '.join(entry.sources)} hold{'s' * (len(entry.sources) == 1)} {window_count} "
        f"by {entry.randomise}; ask for fewer or shorter texts"
    )
