"""Whether a licence lets texts be handed on, and what the hub calls it.

What belongs here: reading one licence as sources spell it. What does not: which sources a benchmark is of (origins.py),
and what is done where a licence is unclear (export.py). This is no legal advice: what is not plainly free counts as
unclear, and whoever hands the texts on has to say that they may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Of a licence that says several things, each: "MIT (package); public domain text".
_SEVERAL = re.compile(r"\s*(?:;|\bAND\b)\s*")
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_FREE = re.compile(
    r"""
    CC0(?:[ -]1\.0)? | CC[ -]BY(?:[ -]SA)?(?:[ -][1-4]\.[05])? | PDDL(?:-1\.0)? | ODC-BY(?:-1\.0)? | ODbL(?:-1\.0)?
    | MIT(?:-0)? | BSD(?:-[0234]-Clause)? | Apache-2\.0 | ISC | PSF-2\.0 | Python-2\.0 | Unlicense
    | public\ domain(?:\ text)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# What the hub lists: https://huggingface.co/docs/hub/repositories-licenses
_ON_THE_HUB = frozenset(
    """
    apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 odc-by odbl pddl unlicense
    bsd bsd-2-clause bsd-3-clause isc
    """.split()  # noqa: SIM905 - a list of words is read best as words
)
OTHER = "other"


def allows_handing_on(licence: str) -> bool:
    """Whether texts under ``licence`` may be handed on by anybody, under conditions that the licence names itself.

    False also where nobody knows: an unknown licence, one that allows it to some (non-commercial) or somewhere (public
    domain in one country), or forbids changed texts, of which windows are some.
    """
    return all(_FREE.fullmatch(_REMARK.sub("", part).strip()) for part in _SEVERAL.split(licence.strip()))


def unclear(licences: Iterable[str]) -> list[str]:
    """Those of ``licences`` that do not plainly allow handing on, each once, in order."""
    return [licence for licence in dict.fromkeys(licences) if not allows_handing_on(licence)]


def hub_names(licences: Iterable[str]) -> list[str]:
    """What the hub calls these licences, each once, in order; ``other`` where it has no name for one of them."""
    return list(dict.fromkeys(_hub_name(licence) for licence in licences))


def _hub_name(licence: str) -> str:
    name = re.sub(r"\s+", "-", licence.strip().lower())
    return name if name in _ON_THE_HUB else OTHER
