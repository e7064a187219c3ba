"""New models on the hub, proposed as entries for models.yaml. A model is audited after a person moves its entry.

Only text-generation models with safetensors are proposed, each pinned to its current commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import httpx2
import yaml
from huggingface_hub import HfApi, ModelInfo, get_session
from huggingface_hub.hf_api import ExpandModelProperty_T

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import validate_as
from audit_pipeline.errors import ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.readers.hub_faults import convert_hub_errors
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import config_dir

FILE_NAME = "watch.yaml"
PROPOSALS_NAME = "models.proposed.yaml"
NEWEST = 200
"""Maximum number of models that are read per owner, newest first."""

_TIMEOUT = 10.0
_EXPAND: list[ExpandModelProperty_T] = ["cardData", "createdAt", "sha", "siblings"]
_KEYS = {
    "hub": (re.compile(r"[\w.-]+"), "not the name of an owner on the hub"),
    # Dagster accepts these forms as owners of an asset.
    "owners": (
        re.compile(r"team:[\w-]+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}"),
        "neither an e-mail address nor a team (team:name)",
    ),
}
# The hub reports this day for all older repositories, because it recorded no dates before.
_FIRST_RECORDED_DAY = date(2022, 3, 2)
_HEADER = f"""\
# Models of the owners in config/{FILE_NAME} that config/models.yaml does not have yet.
#
# Nothing here is audited. To audit a model, check its entry and move it to models.yaml. The release date is the day on
# which the repository was created on the hub. Every search of the hub overwrites this file.
"""


def _validate_names(key: str, value: Any, folder: Path) -> tuple[str, ...]:
    if key not in _KEYS:
        raise InvalidEntryError(
            [Fault((), f"{key} is not a key of this file. The keys are {' and '.join(_KEYS)}. Each key has a list.")]
        )
    form, problem = _KEYS[key]
    if value == {}:
        value = []
    names = validate_as(tuple[str, ...], value)
    faults = []
    for number, name in enumerate(names):
        if not form.fullmatch(name):
            faults.append(Fault((number,), f"{name!r} is {problem}"))
    if faults:
        raise InvalidEntryError(faults)
    return tuple(dict.fromkeys(names))


FILE = EntryFile(
    FILE_NAME,
    None,
    "key",
    "it names the watched owners on the hub and the people who are responsible for the audits",
    _validate_names,
    is_optional=True,
)


def load_watched(folder: Path | None = None) -> Entries[tuple[str, ...]]:
    """Load watch.yaml: ``hub`` lists owners of models on the hub, ``owners`` lists the owners of the audits' assets.

    Without the file, the lists are empty.

    Raises:
        ConfigError: If the file cannot be read at all.
    """
    return FILE.load(folder)


def proposals_path(folder: Path | None = None) -> Path:
    """Return the path of the proposals: next to models.yaml."""
    return (folder or config_dir()) / PROPOSALS_NAME


def list_candidates(owner: str, api: HfApi | None = None) -> list[ModelInfo]:
    """Return the text-generation models of an owner, newest first. The hub's client uses the token in HF_TOKEN.

    Raises:
        TransientError: If the hub does not respond or is too busy.
        ModelError: If the hub refuses the request.
    """
    api = api or HfApi()
    remedy = f"correct config/{FILE_NAME}"
    with convert_hub_errors(owner, None, remedy, ModelError, TransientError), _limit_hub_timeout():
        # A short request comes first and fails at once if the hub is unavailable. The client would repeat a failing
        # listing for longer than a sensor's tick may take.
        get_session().get(f"{api.endpoint}/api/models", params={"limit": 1}).raise_for_status()
        return list(
            api.list_models(
                author=owner, pipeline_tag="text-generation", sort="created_at", limit=NEWEST, expand=_EXPAND
            )
        )


@contextmanager
def _limit_hub_timeout() -> Iterator[None]:
    """Limit the time that the hub's client waits. Listings have no limit by default."""
    session = get_session()
    before = session.timeout
    session.timeout = httpx2.Timeout(_TIMEOUT)
    try:
        yield
    finally:
        session.timeout = before


def propose_entries(models: Iterable[ModelInfo], known_entries: Mapping[str, ModelEntry]) -> dict[str, ModelEntry]:
    """Return new entries for the usable models that no known entry has. Their names are hub ids in lower case.

    The comparison of hub ids ignores revisions and case.
    """
    known_ids = {entry.hub.casefold() for entry in known_entries.values() if entry.hub is not None}
    proposals: dict[str, ModelEntry] = {}
    for info in models:
        name = info.id.lower()
        is_known = name in known_entries or info.id.casefold() in known_ids
        if not is_known and _is_usable(info):
            proposals[name] = _entry_from_info(name, info)
    return dict(sorted(proposals.items()))


def _is_usable(info: ModelInfo) -> bool:
    """Return True if the repository's top folder, which locate.py reads, has config.json and safetensors weights."""
    has_weights = False
    has_config = False
    for sibling in info.siblings or []:
        name = sibling.rfilename
        if "/" in name:
            continue
        has_config = has_config or name == "config.json"
        has_weights = has_weights or (name.endswith(".safetensors") and not name.startswith("adapter_"))
    return has_weights and has_config


def _entry_from_info(name: str, info: ModelInfo) -> ModelEntry:
    release_date = None
    if info.created_at is not None and info.created_at.date() > _FIRST_RECORDED_DAY:
        release_date = info.created_at.date()
    card = info.card_data
    licence: Any = None
    if card is not None:
        licence = card.license
        if licence == "other":
            licence = card.license_name
    if isinstance(licence, list):
        licence = ", ".join(licence)
    return ModelEntry(
        name=name,
        hub=info.id,
        revision=info.sha,
        release_date=release_date,
        licence=licence,
    )


def write_proposals(path: Path, entries: Mapping[str, ModelEntry]) -> None:
    """Write the proposed entries in the form of models.yaml."""
    fields = {name: entry.model_dump(exclude_defaults=True, exclude={"name"}) for name, entry in entries.items()}
    listing = yaml.safe_dump({"models": fields}, sort_keys=False, allow_unicode=True, width=110)
    with write_atomically(path) as temporary:
        temporary.write_text(_HEADER + listing, encoding="utf-8")
