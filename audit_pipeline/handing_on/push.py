"""Sending an exported benchmark to the hub, as a data set of its own.

What belongs here: the calls of the hub's client, and what is refused. What does not: what is sent (export.py), and
what the client's errors mean (fetch/hub_faults.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import HfApi, get_token

from audit_pipeline.errors import DataError
from audit_pipeline.fetch.hub_faults import HubDataUnreachableError, hub_faults_as_errors
from audit_pipeline.handing_on.export import CARD, METADATA

_MADE_BY_THE_HUB = ".gitattributes"
_ROWS = "data/"
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def require_token() -> str:
    """The token of the environment or of the hub's own login; raises DataError where there is none."""
    token = get_token()
    if not token:
        raise DataError("no token for the hub: set HF_TOKEN to one that may write, or run `hf auth login`")
    return token


def require_dataset_name(name: str) -> None:
    """Raise DataError unless ``name`` can name a data set on the hub: owner/name."""
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r} cannot name a data set on the hub: give it as owner/name")


def push(folder: Path, name: str, token: str) -> str:
    """Send the export in ``folder`` to the hub as the data set ``name``, in one commit; its address.

    A data set that is not there yet is made, private: its owner makes it public on the hub. In one that is there, an
    earlier export is replaced. Raises DataError (HubDataUnreachableError where that may pass) where the hub refuses or
    cannot be reached, and where the data set holds anything else.
    """
    api = HfApi(token=token)
    instead = f"or keep what was written to {folder}"
    with hub_faults_as_errors(f"the data set {name}", None, instead, DataError, HubDataUnreachableError):
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        files = set(api.list_repo_files(name, repo_type="dataset")) - {_MADE_BY_THE_HUB}
        others = sorted(file for file in files if file not in {CARD, METADATA} and not file.startswith(_ROWS))
        if others or (files and METADATA not in files):
            raise DataError(
                f"the data set {name} on the hub holds {(others or sorted(files))[0]}, which no export wrote; give "
                "another name"
            )
        commit = api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            commit_message="A benchmark built with Corpus Audit",
            delete_patterns=[f"{_ROWS}**"],
        )
    return str(commit.repo_url)
