"""The redistribution of a benchmark's texts: the licences that allow it, and the upload to the hub.

The list of licences is no legal advice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import HfApi, get_token

from audit_pipeline.errors import DataError
from audit_pipeline.readers.hub_faults import HubDataUnreachableError, convert_hub_errors

# A licence statement can have several parts, such as "MIT (package); public domain text".
_PART_SEPARATOR = re.compile(r"\s*(?:;|\bAND\b)\s*")
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_FREE = re.compile(
    r"""
    CC0(?:[ -]1\.0)? | CC[ -]BY(?:[ -]SA)?(?:[ -][1-4]\.[05])? | PDDL(?:-1\.0)? | ODC-BY(?:-1\.0)? | ODbL(?:-1\.0)?
    | MIT(?:-0)? | BSD(?:-[0234]-Clause)? | Apache-2\.0 | ISC | PSF-2\.0 | Python-2\.0 | Unlicense
    | public\ domain(?:\ text)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# The names are those of https://huggingface.co/docs/hub/repositories-licenses
_HUB_LICENCES = frozenset(
    """
    apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 odc-by odbl pddl unlicense
    bsd bsd-2-clause bsd-3-clause isc
    """.split()  # noqa: SIM905 - a list of words is read best as words
)
OTHER = "other"


def allows_redistribution(licence: str) -> bool:
    """Return True if everybody may redistribute texts under ``licence``, under the conditions of the licence.

    The result is False if the permission is uncertain. Examples are unknown licences, licences for non-commercial use
    or for some countries only, and licences that forbid changed texts such as windows.
    """
    return all(_FREE.fullmatch(_REMARK.sub("", part).strip()) for part in _PART_SEPARATOR.split(licence.strip()))


def to_hub_licences(licences: Iterable[str]) -> list[str]:
    """Return the hub's names of the licences, each once and in order. The name of an unknown licence is ``other``."""
    names: dict[str, None] = {}
    for licence in licences:
        name = re.sub(r"\s+", "-", licence.strip().lower())
        names[name if name in _HUB_LICENCES else OTHER] = None
    return list(names)


def require_hub_name_and_token(name: str) -> None:
    """Check that ``name`` is a valid data set name on the hub, and that a token is available.

    Raises:
        DataError: If the name is invalid or there is no token.
    """
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII):
        raise DataError(f"{name!r} is not a valid name of a data set on the hub. Use the form owner/name.")
    if not get_token():
        raise DataError(
            "there is no token for the hub. Set HF_TOKEN to a token with write access, or run `hf auth login`."
        )


def upload_export(folder: Path, name: str) -> str:
    """Upload the export in ``folder`` to the hub as the data set ``name``, in one commit, and return its address.

    A new data set is private. Its owner can make it public on the hub. In an existing data set, the card and data/ are
    replaced.

    Raises:
        DataError: If the hub refuses the request.
        HubDataUnreachableError: If the hub is unreachable. A retry may succeed.
    """
    api = HfApi()
    instead = f"or use the files in {folder}"
    with convert_hub_errors(f"the data set {name}", None, instead, DataError, HubDataUnreachableError):
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            commit_message="A benchmark built with Corpus Audit",
            delete_patterns=["data/**"],
        )
    return str(commit.repo_url)
