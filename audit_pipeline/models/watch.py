"""Models that are new on the hub, proposed as entries for models.yaml; nothing is audited until a person moves one.

Only text-generation models whose weights are safetensors are proposed, each pinned to the commit that was seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any

import httpx2
import yaml
from huggingface_hub import HfApi, ModelInfo, get_session
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import ExpandModelProperty_T

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import validate_as
from audit_pipeline.errors import ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.readers.hub_faults import hub_faults_as_errors, is_missing
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import config_dir

FILE_NAME = "watch.yaml"
PROPOSALS_NAME = "models.proposed.yaml"
NEWEST = 200
"""The most models of an owner that are read, the newest first."""

_TIMEOUT = 10.0
_EXPAND: tuple[ExpandModelProperty_T, ...] = (
    "cardData",
    "createdAt",
    "gated",
    "lastModified",
    "safetensors",
    "sha",
    "siblings",
)
_KEYS = {
    "hub": (re.compile(r"[\w.-]+(?:/[\w.-]+)?"), "neither an owner nor a collection (owner/title-0123abcd)"),
    # What Dagster takes for the owner of an asset.
    "owners": (
        re.compile(r"team:[\w-]+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}"),
        "neither an e-mail address nor a team (team:name)",
    ),
}
# The hub gives this day to everything that is older, because it kept no such dates before.
_FIRST_DAY_KEPT = date(2022, 3, 2)
_HEADER = f"""\
# Models on the hub that config/models.yaml does not name yet, as config/{FILE_NAME} asks for them.
#
# Nothing here is audited. To audit a model, move its entry to models.yaml, and look at it first: the release date is
# the day on which the repository was made on the hub. This file is written again whenever the list changes.
"""


@dataclass(frozen=True)
class Proposals:
    """Entries for models.yaml by name, and the models that cannot be entries, by hub id with the reason."""

    entries: Mapping[str, ModelEntry]
    refused: Mapping[str, str]


def _require_names_that_match(key: str, value: Any, folder: Path) -> tuple[str, ...]:
    if key not in _KEYS:
        raise InvalidEntryError([Fault((), f"the file holds the keys {' and '.join(_KEYS)}, each with a list")])
    form, otherwise = _KEYS[key]
    names = validate_as(tuple[str, ...], [] if value == {} else value)
    faults = [
        Fault((place,), f"{name!r} is {otherwise}") for place, name in enumerate(names) if not form.fullmatch(name)
    ]
    if faults:
        raise InvalidEntryError(faults)
    return tuple(dict.fromkeys(names))


FILE = EntryFile(
    FILE_NAME,
    None,
    "key",
    "it says what of the hub is watched, and who watches over the audits",
    _require_names_that_match,
    is_optional=True,
)


def load_watched(folder: Path | None = None) -> Entries[tuple[str, ...]]:
    """Return what watch.yaml lists: under ``hub`` owners and collections of the hub, under ``owners`` who watches over
    the audits, as Dagster names owners of assets; nothing where there is no such file.

    Raises ConfigError, naming the file, where none of it can be read.
    """
    return FILE.load(folder)


def proposals_path(folder: Path | None = None) -> Path:
    """Return where proposals are written: next to models.yaml."""
    return (folder or config_dir()) / PROPOSALS_NAME


def list_candidates(owner_or_collection: str, api: HfApi | None = None) -> list[ModelInfo]:
    """Return the text-generation models of an owner, newest first, or all models of a collection (a name with a slash).

    A token is taken from HF_TOKEN, by the hub's own client. Raises TransientError where the hub does not answer or is
    too busy, and ModelError where there is no such collection or the hub refuses to say.
    """
    api = api or HfApi()
    remedy = f"correct config/{FILE_NAME}"
    with hub_faults_as_errors(owner_or_collection, None, remedy, ModelError, TransientError), _limit_hub_timeout():
        if "/" in owner_or_collection:
            items = api.get_collection(owner_or_collection).items
            models = dict.fromkeys(item.item_id for item in items if item.item_type == "model")
            return [info for model in models if (info := _read_info(model, api)) is not None]
        # One short request first: a listing is tried again for longer than a sensor's tick may take.
        get_session().get(f"{api.endpoint}/api/models", params={"limit": 1}).raise_for_status()
        return list(
            api.list_models(
                author=owner_or_collection,
                pipeline_tag="text-generation",
                sort="created_at",
                limit=NEWEST,
                expand=[*_EXPAND],
            )
        )


def _read_info(model: str, api: HfApi) -> ModelInfo | None:
    """Return what the hub says of a collection's model; None where it is gone, or private."""
    try:
        return api.model_info(model, expand=[*_EXPAND], timeout=_TIMEOUT)
    except HfHubHTTPError as error:
        if not is_missing(error):
            raise
        return None


@contextmanager
def _limit_hub_timeout() -> Iterator[None]:
    """Limit the waiting of the hub's client, which has no limit for listings."""
    session = get_session()
    before = session.timeout
    session.timeout = httpx2.Timeout(_TIMEOUT)
    try:
        yield
    finally:
        session.timeout = before


def propose(models: Iterable[ModelInfo], known_entries: Mapping[str, ModelEntry]) -> Proposals:
    """Return entries for the models whose hub id no known entry has, whatever its revision or the case of its letters.

    They are named after the repository, in small letters, and after its owner too where that name is taken.
    """
    known_ids = {entry.hub.casefold() for entry in known_entries.values() if entry.hub is not None}
    unknown = {info.id: info for info in models if info.id.casefold() not in known_ids}
    obstacles = {hub: find_obstacle(info) for hub, info in sorted(unknown.items())}
    refused = {hub: obstacle for hub, obstacle in obstacles.items() if obstacle is not None}
    names = {hub: hub.rpartition("/")[2].lower() for hub in obstacles if hub not in refused}
    uses = Counter([*names.values(), *known_entries])
    entries: dict[str, ModelEntry] = {}
    for hub, short_name in names.items():
        name = short_name if uses[short_name] == 1 else hub.lower()
        if name in known_entries:
            refused[hub] = f"another entry has the name {name}"
        else:
            entries[name] = _entry_from_info(name, unknown[hub])
    return Proposals(entries, refused)


def find_obstacle(info: ModelInfo) -> str | None:
    """Return why a model cannot be audited as it is on the hub; None where it can."""
    # As in locate.py: weights are looked for next to config.json, not in folders.
    files = [sibling.rfilename for sibling in info.siblings or [] if "/" not in sibling.rfilename]
    suffixes = {PurePosixPath(name).suffix for name in files if not name.startswith("adapter_")}
    if ".safetensors" not in suffixes:
        if ".gguf" in suffixes:
            return "weights as GGUF only; fetch the file and give its path"
        if suffixes & {".bin", ".pt", ".pth"}:
            return "weights as pickle only"
        return "no weights as safetensors"
    return None if "config.json" in files else "no config.json next to its weights"


def _entry_from_info(name: str, info: ModelInfo) -> ModelEntry:
    created = info.created_at.date() if info.created_at is not None else None
    notes = [
        f"{info.safetensors.total:,} parameters" if info.safetensors is not None else None,
        f"last changed on the hub on {info.last_modified.date()}" if info.last_modified is not None else None,
        "gated: accept its terms on the hub and set HF_TOKEN" if info.gated else None,
    ]
    card = info.card_data
    licence = None if card is None else card.license_name if card.license == "other" else card.license
    return ModelEntry(
        name=name,
        hub=info.id,
        revision=info.sha,
        release_date=created if created is not None and created > _FIRST_DAY_KEPT else None,
        licence=", ".join(licence) if isinstance(licence, list) else licence,
        notes="; ".join(note for note in notes if note is not None) or None,
    )


def write_proposals(path: Path, proposals: Proposals) -> bool:
    """Write the proposals in the form of models.yaml and return whether the file is another one now.

    What cannot be proposed is listed below, in comments.
    """
    fields = {
        name: entry.model_dump(exclude_defaults=True, exclude={"name"}) for name, entry in proposals.entries.items()
    }
    listing = yaml.safe_dump({"models": fields}, sort_keys=False, allow_unicode=True, width=110)
    refused = "".join(f"#   {hub}: not proposed: {why}\n" for hub, why in proposals.refused.items())
    text = _HEADER + listing + (f"\n# On the hub too:\n{refused}" if refused else "")
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return True
