"""Models that are new on the hub, proposed as entries for models.yaml; nothing is audited until a person moves one.

What belongs here: config/watch.yaml, listing an owner's or a collection's models, and the proposals written from them.
What does not: the fields of an entry (config.py), fetching a model's files (locate.py), and when to look
(operate/dagster/).

Only text-generation models whose weights lie in safetensors are proposed, each pinned to the commit that was seen.
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
from huggingface_hub import HfApi, ModelCardData, ModelInfo, get_session
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.hf_api import ExpandModelProperty_T

from audit_pipeline.catalogue.files import write_atomically
from audit_pipeline.catalogue.paths import config_dir
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import validate_as
from audit_pipeline.errors import ModelError, TransientError, to_one_line
from audit_pipeline.fetch.hub_faults import fault_of, guard_hub_answers, is_missing
from audit_pipeline.fetch.server_answers import DamagedAnswerError, OversizedAnswerError
from audit_pipeline.models.config import ModelEntry

FILE_NAME = "watch.yaml"
PROPOSALS_NAME = "models.proposed.yaml"
NEWEST = 200
"""The most models of an owner that are read, the newest first."""

_TASK = "text-generation"
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
_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
_OWNER = re.compile(r"team:[\w-]+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
"""What Dagster takes for the owner of an asset."""
_KEYS = {
    "hub": (_NAME, "neither an owner nor a collection (owner/title-0123abcd)"),
    "owners": (_OWNER, "neither an e-mail address nor a team (team:name)"),
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# The hub gives this day to everything that is older, because it kept no such dates before.
_FIRST_DAY_KEPT = date(2022, 3, 2)
_HEADER = f"""\
# Models on the hub that config/models.yaml does not name yet, as config/{FILE_NAME} asks for them.
#
# Nothing here is audited. To audit a model, move its entry to models.yaml, and look at it first: the release date is
# the day on which the repository was made on the hub. This file is written again whenever the list changes.
"""


@dataclass(frozen=True)
class Candidate:
    """A model on the hub, as the hub describes it; ``obstacle`` says why it cannot be audited as it lies there."""

    hub: str
    commit: str | None = None
    created: date | None = None
    modified: date | None = None
    licence: str | None = None
    gated: bool = False
    parameters: int | None = None
    obstacle: str | None = None


@dataclass(frozen=True)
class Proposals:
    """Entries for models.yaml by name, and the models that cannot be entries, with the reason; both by hub id."""

    entries: Mapping[str, ModelEntry]
    refused: Mapping[str, str]


def _require_names_that_match(name: str, value: Any, folder: Path) -> tuple[str, ...]:
    if name not in _KEYS:
        raise InvalidEntryError([Fault((), f"the file holds the keys {' and '.join(_KEYS)}, each with a list")])
    form, otherwise = _KEYS[name]
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
    """What watch.yaml lists: under ``hub`` owners and collections of the hub, under ``owners`` who watches over the
    audits, as Dagster names owners of assets; nothing where there is no such file.

    Raises ConfigError, naming the file, where none of it can be read.
    """
    return FILE.load(folder)


def proposals_path(folder: Path | None = None) -> Path:
    """Where proposals are written: beside models.yaml."""
    return (folder or config_dir()) / PROPOSALS_NAME


def list_candidates(owner_or_collection: str, api: HfApi | None = None) -> list[Candidate]:
    """The text-generation models of an owner, newest first, or all models of a collection (a name with a slash).

    A token is taken from HF_TOKEN, by the hub's own client. Raises TransientError where the hub does not answer or is
    too busy, and ModelError where there is no such collection or the hub refuses to say.
    """
    api = api or HfApi()
    with _translate_hub_errors(owner_or_collection), _limit_hub_timeout():
        if "/" in owner_or_collection:
            items = api.get_collection(owner_or_collection).items
            ids = dict.fromkeys(item.item_id for item in items if item.item_type == "model")
            return [_fetch_candidate(hub, api) for hub in ids]
        _require_answer(api)
        listed = api.list_models(
            author=owner_or_collection, pipeline_tag=_TASK, sort="created_at", limit=NEWEST, expand=[*_EXPAND]
        )
        return [_candidate_from_info(info) for info in listed]


def propose(candidates: Iterable[Candidate], known_entries: Mapping[str, ModelEntry]) -> Proposals:
    """Entries for the candidates whose hub id no known entry has, whatever its revision or the case of its letters.

    They are named after the repository, in small letters, and after its owner too where that name is taken.
    """
    taken = {entry.hub.casefold() for entry in known_entries.values() if entry.hub is not None}
    unknown: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: (candidate.hub.casefold(), candidate.hub)):
        if candidate.hub.casefold() not in taken:
            unknown.setdefault(candidate.hub.casefold(), candidate)
    fit = [candidate for candidate in unknown.values() if candidate.obstacle is None]
    short = Counter(_repository(candidate) for candidate in fit)
    entries: dict[str, ModelEntry] = {}
    refused = {model.hub: model.obstacle for model in unknown.values() if model.obstacle is not None}
    for candidate in fit:
        name = _repository(candidate)
        if name in known_entries or short[name] > 1:
            name = candidate.hub.lower()
        if name in known_entries:
            refused[candidate.hub] = f"another entry has the name {name}"
        else:
            entries[name] = _entry_from_candidate(name, candidate)
    return Proposals(entries, dict(sorted(refused.items())))


def write_proposals(path: Path, proposals: Proposals) -> bool:
    """Write the proposals in the form of models.yaml; True where the file is another one now.

    What cannot be proposed is listed below, in comments. Where there is nothing to list and no file, none is made.
    """
    text = format_proposals(proposals)
    if path.exists():
        if path.read_bytes() == text.encode():
            return False
    elif not proposals.entries and not proposals.refused:
        return False
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return True


def format_proposals(proposals: Proposals) -> str:
    """The content of the proposals' file; the same proposals give the same text."""
    fields = {
        name: entry.model_dump(exclude_defaults=True, exclude={"name"}) for name, entry in proposals.entries.items()
    }
    listing = yaml.safe_dump({"models": fields}, sort_keys=False, allow_unicode=True, width=110)
    refused = "".join(
        f"#   {_replace_unprintable(hub)}: not proposed: {why}\n" for hub, why in proposals.refused.items()
    )
    return _HEADER + listing + (f"\n# On the hub too:\n{refused}" if refused else "")


def _fetch_candidate(hub: str, api: HfApi) -> Candidate:
    try:
        return _candidate_from_info(api.model_info(hub, expand=[*_EXPAND], timeout=_TIMEOUT))
    except HfHubHTTPError as error:
        if not is_missing(error):
            raise
        return Candidate(hub, obstacle="not on the hub any more, or private")


def _candidate_from_info(info: ModelInfo) -> Candidate:
    files = [sibling.rfilename for sibling in info.siblings or []]
    return Candidate(
        hub=info.id,
        commit=info.sha,
        created=info.created_at.date() if info.created_at is not None else None,
        modified=info.last_modified.date() if info.last_modified is not None else None,
        licence=_parse_licence(info.card_data) if info.card_data is not None else None,
        gated=bool(info.gated),
        parameters=info.safetensors.total if info.safetensors is not None else None,
        obstacle=_find_obstacle(info, files),
    )


def _parse_licence(card: ModelCardData) -> str | None:
    """The licence of a model card; where it is none of the hub's list, by its own name."""
    given: object = card.license_name if card.license == "other" and card.license_name else card.license
    text = ", ".join(str(licence) for licence in given) if isinstance(given, list) else given
    return text if isinstance(text, str) and text.strip() else None


def _find_obstacle(info: ModelInfo, files: Iterable[str]) -> str | None:
    # As in locate.py: weights are looked for beside config.json, not in folders.
    beside = [name for name in files if "/" not in name]
    suffixes = {PurePosixPath(name).suffix for name in beside if not name.startswith("adapter_")}
    if not _HUB_ID.fullmatch(info.id):
        return "its name is no hub id"
    if ".safetensors" not in suffixes:
        if ".gguf" in suffixes:
            return "weights as GGUF only; fetch the file and give its path"
        if suffixes & {".bin", ".pt", ".pth"}:
            return "weights as pickle only"
        return "no weights as safetensors"
    if "config.json" not in beside:
        return "no config.json beside its weights"
    return "the hub names no commit" if info.sha is None else None


def _entry_from_candidate(name: str, candidate: Candidate) -> ModelEntry:
    created = candidate.created
    notes = [
        f"{candidate.parameters:,} parameters" if candidate.parameters is not None else None,
        f"last changed on the hub on {candidate.modified}" if candidate.modified is not None else None,
        "gated: accept its terms on the hub and set HF_TOKEN" if candidate.gated else None,
    ]
    return ModelEntry(
        name=name,
        hub=candidate.hub,
        revision=candidate.commit,
        release_date=created if created is not None and created > _FIRST_DAY_KEPT else None,
        licence=candidate.licence,
        notes="; ".join(note for note in notes if note is not None) or None,
    )


def _repository(candidate: Candidate) -> str:
    return candidate.hub.rpartition("/")[2].lower()


def _replace_unprintable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _require_answer(api: HfApi) -> None:
    """One short request: listing waits and asks again for longer than a sensor's tick may take."""
    answer = get_session().get(f"{api.endpoint}/api/models", params={"limit": 1}, timeout=_TIMEOUT)
    answer.raise_for_status()


@contextmanager
def _limit_hub_timeout() -> Iterator[None]:
    """A limit on the waiting of the hub's client, which has none for listings."""
    session = get_session()
    before = session.timeout
    session.timeout = httpx2.Timeout(_TIMEOUT)
    try:
        yield
    finally:
        session.timeout = before


@contextmanager
def _translate_hub_errors(name: str) -> Iterator[None]:
    guard_hub_answers()
    try:
        yield
    except (OversizedAnswerError, DamagedAnswerError) as error:
        raise ModelError(f"{name} cannot be watched: {error}: check that HF_ENDPOINT is the hub's address") from error
    except OfflineModeIsEnabled as error:
        raise ModelError(
            f"{name} cannot be watched while HF_HUB_OFFLINE is set: unset it, or switch the watcher off"
        ) from error
    except (HfHubHTTPError, httpx2.HTTPError) as error:
        fault = fault_of(error)
        if fault is None:
            raise
        if fault.passing:
            raise TransientError(f"{name} {fault.why}: it is asked for again next time") from error
        raise ModelError(f"{name} {fault.why}; correct config/{FILE_NAME}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"unexpected answer ({to_one_line(error)}): check that HF_ENDPOINT is the hub's address"
        ) from error
