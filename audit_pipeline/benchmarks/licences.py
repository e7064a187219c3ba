"""Which licences let texts be handed on, and what the hub calls them. This is no legal advice."""

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


def allows_redistribution(licence: str) -> bool:
    """Return whether everybody may hand on texts under ``licence``, under conditions that the licence names itself.

    False also if that is not certain: an unknown licence, one that allows it to some people (non-commercial) or in some
    places (public domain in one country), or one that forbids changed texts, such as windows.
    """
    return all(_FREE.fullmatch(_REMARK.sub("", part).strip()) for part in _SEVERAL.split(licence.strip()))


def to_hub_licences(licences: Iterable[str]) -> list[str]:
    """Return what the hub calls these licences, each once, in order; ``other`` where it has no name for one of them."""
    names = (re.sub(r"\s+", "-", licence.strip().lower()) for licence in licences)
    return list(dict.fromkeys(name if name in _ON_THE_HUB else OTHER for name in names))
