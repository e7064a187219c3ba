"""The random assignment of roles (such as member or held out) to the windows of a corpus.

The number of occurrences of each member in the training is also assigned here. Roles are drawn at random among the
windows (or documents) of one pool. Therefore members and held-out texts differ only in that the exposed model was
trained on the members. The labels of the benchmark are randomised by design.
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

from audit_pipeline.benchmarks.settings import get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version, read_documents, read_documents_version
from audit_pipeline.tables import digest

VERSION = 1


def compute_control_version(entry: ControlEntry, source_versions: Mapping[str, str]) -> str:
    """Compute the version of a control: a digest (16 hex digits) of everything that decides its texts and weights.

    The digest covers the settings, the documents and the version of this code. On one machine with one version of
    torch, it determines the weights. Other machines and versions may round differently. The manifest states the
    versions of the packages that were used.
    """
    return digest(VERSION, entry.settings_digest, dict(source_versions))[:16]


def read_control_documents(entry: ControlEntry, paths: DataPaths) -> tuple[pa.Table, Mapping[str, str]]:
    """Return the documents that a control is drawn from, and the version of each source.

    Raises:
        DataError: If a source has not been fetched.
    """
    tables = {source: read_documents(paths, source) for source in entry.sources}
    versions = {source: compute_documents_version(table) for source, table in tables.items()}
    return pa.concat_tables(tables.values()), versions


def compute_wanted_version(entry: ControlEntry, paths: DataPaths) -> str | None:
    """Return the version that a control would have if it were trained now, or None if its documents are missing."""
    try:
        source_versions = {source: read_documents_version(paths, source) for source in entry.sources}
    except DataError:
        return None
    return compute_control_version(entry, source_versions)


MEMBER = "member"
HELD_OUT = "held_out"
TWIN = "twin"
SURROUNDING = "surrounding"
ROLES = (MEMBER, HELD_OUT, TWIN, SURROUNDING)


@dataclass(frozen=True)
class DrawnText:
    """A window of a document with its role: member, held out, twin or surrounding.

    Attributes:
        document_id: The document.
        group: The unit of randomisation: the window or its whole document.
        collection: The collection of the document.
        language: The language of the document.
        published: The date of the document.
        text: The text of the window.
        role: The role, or an empty string before the draw.
        exposed: How often the exposed model is trained on the text per epoch.
        twin: How often the twin (the control model) is trained on the text per epoch.
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
    """Draw the texts of a control.

    Each document is cut into windows of exactly ``entry.words`` words. A text that occurs twice in the corpus is
    skipped, because its copies could get different roles. Each window gets its own role. With ``randomise: document``,
    all windows of a document get the same role.

    The exposed model is trained on the members and the surrounding windows. The twin is trained on the same surrounding
    windows, and on as many other windows as there are members, with the same numbers of occurrences. A member whose
    Poisson draw is 0 becomes held out. If the entry lists several numbers of occurrences, the members are divided at
    random into parts that differ by at most one text.

    Args:
        documents: The documents in any order (schema DOCUMENTS).
        entry: The settings of the control.

    Returns:
        The texts by role, in the order of the draw.

    Raises:
        DataError: If the corpus has too few windows.
    """
    pool = _cut_into_windows(documents, entry)
    role_counts = {
        MEMBER: entry.members,
        HELD_OUT: entry.held_out,
        TWIN: entry.members,
        SURROUNDING: entry.surrounding,
    }
    if entry.randomise == "document":
        chosen = _assign_roles_by_document(pool, role_counts, entry)
    else:
        chosen = _assign_roles_by_window(pool, role_counts, entry)
    drawn = []
    # Members and texts of the twin have separate random generators, so that neither draw depends on the other.
    for window, count in zip(chosen[MEMBER], _draw_occurrences(entry, MEMBER), strict=True):
        role = MEMBER
        if count == 0:
            role = HELD_OUT
        drawn.append(replace(window, role=role, exposed=count))
    for window in chosen[HELD_OUT]:
        drawn.append(replace(window, role=HELD_OUT))
    for window, count in zip(chosen[TWIN], _draw_occurrences(entry, TWIN), strict=True):
        drawn.append(replace(window, role=TWIN, twin=count))
    for window in chosen[SURROUNDING]:
        drawn.append(replace(window, role=SURROUNDING, exposed=1, twin=1))
    return drawn


def _cut_into_windows(documents: pa.Table, entry: ControlEntry) -> list[DrawnText]:
    """Cut documents into windows in order, without texts that occur twice."""
    unit = get_word_unit(entry.unit)
    windows: list[DrawnText] = []
    for document in sorted(documents.to_pylist(), key=lambda row: row["document_id"]):
        words = unit.split(document["text"])
        for start in range(0, len(words) - entry.words + 1, entry.words):
            text = unit.join(words[start : start + entry.words])
            # With some units, the joined text is split into other words. These windows are skipped.
            if len(unit.split(text)) != entry.words:
                continue
            group = document["document_id"]
            if entry.randomise == "window":
                group = f"{group}:{start}"
            windows.append(
                DrawnText(
                    document_id=document["document_id"],
                    group=group,
                    collection=document["collection"],
                    language=document["language"],
                    published=document["published"],
                    text=text,
                )
            )
    text_counts = Counter(window.text for window in windows)
    return [window for window in windows if text_counts[window.text] == 1]


def _assign_roles_by_window(
    pool: Sequence[DrawnText], role_counts: Mapping[str, int], entry: ControlEntry
) -> dict[str, list[DrawnText]]:
    if len(pool) < sum(role_counts.values()):
        raise DataError(_format_shortage(entry, role_counts, len(pool)))
    order = iter(sorted(pool, key=lambda window: digest(entry.seed, entry.name, "role", window.group)))
    return {role: list(islice(order, role_counts[role])) for role in ROLES}


def _assign_roles_by_document(
    pool: Sequence[DrawnText], role_counts: Mapping[str, int], entry: ControlEntry
) -> dict[str, list[DrawnText]]:
    """Assign whole documents in random order, each to the role that lacks the largest share of its windows."""
    windows_by_document: dict[str, list[DrawnText]] = defaultdict(list)
    for window in pool:
        windows_by_document[window.group].append(window)
    chosen: dict[str, list[DrawnText]] = {role: [] for role in ROLES}
    for document in sorted(windows_by_document, key=lambda name: digest(entry.seed, entry.name, "role", name)):
        missing_shares = {}
        for role in ROLES:
            if role_counts[role]:
                missing_shares[role] = (role_counts[role] - len(chosen[role])) / role_counts[role]
        role = max(missing_shares, key=lambda name: missing_shares[name])
        if missing_shares[role] <= 0:
            break
        chosen[role] += windows_by_document[document]
    for role in ROLES:
        if len(chosen[role]) < role_counts[role]:
            raise DataError(_format_shortage(entry, role_counts, len(pool)))
        order = sorted(chosen[role], key=lambda window: digest(entry.seed, entry.name, "window", window.text))
        chosen[role] = order[: role_counts[role]]
    return chosen


def _draw_occurrences(entry: ControlEntry, role: str) -> list[int]:
    """Return how often each text of a role is trained on, in the order of the draw."""
    if isinstance(entry.occurrences, tuple):
        # The order of the draw is random, so that repeating the numbers in turn divides the texts at random.
        return list(islice(cycle(entry.occurrences), entry.members))
    if entry.draw == "fixed":
        return [int(entry.occurrences)] * entry.members
    draw = random.Random(int(digest(entry.seed, entry.name, "occurrences", role), 16))  # noqa: S311 - reproducible
    limit = math.exp(-entry.occurrences)
    counts = []
    # Knuth's Poisson draw counts exponential gaps. It is implemented here, because numpy does not guarantee the same
    # numbers in every version. The means here are small, so it takes few steps.
    for _ in range(entry.members):
        product = draw.random()
        count = 0
        while product > limit:
            product *= draw.random()
            count += 1
        counts.append(count)
    return counts


def _format_shortage(entry: ControlEntry, role_counts: Mapping[str, int], window_count: int) -> str:
    parts = ", ".join(f"{count} {role}" for role, count in role_counts.items() if count)
    sources = ", ".join(entry.sources)
    verb = "contain"
    if len(entry.sources) == 1:
        verb = "contains"
    return (
        f"Control {entry.name} requires {sum(role_counts.values())} windows of {entry.words} words ({parts}), but "
        f"{sources} {verb} {window_count}, and the roles are drawn by {entry.randomise}. Reduce the numbers of texts "
        "or 'words' in config/controls.yaml."
    )
