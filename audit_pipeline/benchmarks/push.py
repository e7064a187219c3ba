"""Sending an exported benchmark to the hub, as a data set of its own."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import HfApi, get_token

from audit_pipeline.errors import DataError
from audit_pipeline.readers.hub_faults import HubDataUnreachableError, hub_faults_as_errors


def require_hub_name_and_token(name: str) -> None:
    """Raise DataError unless ``name`` can name a data set on the hub, and the environment or its login has a token."""
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII):
        raise DataError(f"{name!r} cannot name a data set on the hub: give it as owner/name")
    if not get_token():
        raise DataError("no token for the hub: set HF_TOKEN to a token that may write, or run `hf auth login`")


def push(folder: Path, name: str) -> str:
    """Send the export in ``folder`` to the hub as the data set ``name``, in one commit; return its address.

    A data set that is not there yet is made, private: its owner makes it public on the hub. In one that is there, the
    card and data/ are replaced. Raises DataError (HubDataUnreachableError where that may pass) where the hub refuses or
    cannot be reached.
    """
    api = HfApi()
    instead = f"or keep what was written to {folder}"
    with hub_faults_as_errors(f"the data set {name}", None, instead, DataError, HubDataUnreachableError):
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            commit_message="A benchmark built with Corpus Audit",
            delete_patterns=["data/**"],
        )
    return str(commit.repo_url)
