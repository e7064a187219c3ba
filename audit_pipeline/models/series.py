"""Series of checkpoints: an entry of models.yaml for many models, in the order of their training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import StrictSettings, resolve_against, validate_as
from audit_pipeline.errors import ModelFilesWarning
from audit_pipeline.store.files import read_json

_STEP = re.compile(r"(?:steps?|checkpoint|ckpt|iter(?:ation)?s?)[-_=]?(\d+)([km]?)(?![a-z\d])", re.IGNORECASE)
_TOKENS = re.compile(r"tokens?[-_=]?(\d+(?:\.\d+)?)([kmbt])?(?![a-z\d])", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmbt](?![a-z\d]))?", re.IGNORECASE)
# What a trainer names a folder while it writes it.
_UNFINISHED = re.compile(r"(?:^|[-_.])tmp(?:[-_.]|$)", re.IGNORECASE)
_CONFIG_FILES = {"path": "config.json", "adapter": "adapter_config.json"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}

Count = Annotated[int, Field(ge=0)]


class Series(StrictSettings):
    """Where the checkpoints of an entry are."""

    revisions: tuple[str, ...] | None = Field(default=None, min_length=1, description="revisions of the hub, in order")
    folder: Path | None = Field(default=None, description="a folder with a folder for each checkpoint, or adapter")
    steps: tuple[Count, ...] | None = Field(default=None, description="the training step of each of the revisions")
    tokens: tuple[Count, ...] | None = Field(default=None, description="the tokens that each of them was trained on")
    tokens_per_step: Count | None = Field(default=None, description="tokens of a training step")

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if (self.revisions is None) == (self.folder is None):
            raise ValueError("exactly one of revisions and folder says where the checkpoints are")
        if len(set(self.revisions or ())) < len(self.revisions or ()):
            raise ValueError("a revision occurs twice")
        for key, given in (("steps", self.steps), ("tokens", self.tokens)):
            if given is not None and len(given) != len(self.revisions or ()):
                raise ValueError(f"{key} goes with revisions, a number for each")
        return self


class Checkpoint(StrictSettings):
    """The place of a model in a series; ``position`` counts from 1."""

    series: str
    position: int
    step: int | None = None
    tokens: int | None = None


class _Found(NamedTuple):
    label: str
    fields: Mapping[str, Any]
    step: int | None
    tokens: int | None


def expand_series(name: str, given: Mapping[str, Any], config_folder: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of the entries of a series, by name: ``name@checkpoint``.

    Relative paths count from ``config_folder``. A warning names the folders that are not taken, each with its reason.

    Raises:
        InvalidEntryError: If the series cannot be read.
    """
    fields = {key: value for key, value in given.items() if key != "series"}
    try:
        series = validate_as(Series, given["series"] if isinstance(given["series"], dict) else {})
    except InvalidEntryError as error:
        raise InvalidEntryError([Fault(("series", *fault.keys), fault.words) for fault in error.faults]) from error
    if series.folder is None:
        found: Iterable[_Found] = _list_revisions(series, fields)
    else:
        root = resolve_against(config_folder, series.folder).expanduser()
        folders = sorted(root.iterdir(), key=attrgetter("name")) if root.is_dir() else []
        not_taken = list(_explain_folders_not_taken(root, folders))
        found = _list_folders(root, folders, fields, not_taken)
        if not_taken:
            words = f"series {name}: not taken from {root}: {'; '.join(not_taken)}"
            warnings.warn(ModelFilesWarning(words), stacklevel=2)
    members = {}
    for position, checkpoint in enumerate(found, 1):
        label, own, step, tokens = checkpoint
        by_step = None if step is None or series.tokens_per_step is None else step * series.tokens_per_step
        place = {"series": name, "position": position, "step": step, "tokens": by_step if tokens is None else tokens}
        title = {"title": f"{fields['title']}, {label}"} if "title" in fields else {}
        members[f"{name}@{label}"] = {**fields, **own, **title, "checkpoint": place}
    return members


def _list_revisions(series: Series, fields: Mapping[str, Any]) -> Iterator[_Found]:
    adapter = fields.get("adapter")
    varied = adapter if isinstance(adapter, dict) else fields
    if "hub" not in varied or "revision" in varied:
        words = "series.revisions goes with hub, of the model or of its adapter, and without its revision"
        raise InvalidEntryError([Fault(("series", "revisions"), words)])
    for place, revision in enumerate(series.revisions or ()):
        step, tokens = _parse_checkpoint_name(revision)
        yield _Found(
            revision,
            {"revision": revision} if varied is fields else {"adapter": {**varied, "revision": revision}},
            step if series.steps is None else series.steps[place],
            tokens if series.tokens is None else series.tokens[place],
        )


def _list_folders(
    root: Path, folders: Sequence[Path], fields: Mapping[str, Any], not_taken: Sequence[str]
) -> list[_Found]:
    found = []
    for folder in folders:
        key = _find_kind(folder)
        if key is None or _explain_not_taken(folder) is not None:
            continue
        step, tokens = _read_trainer_state(folder) or _parse_checkpoint_name(folder.name)
        found.append(_Found(folder.name, {key: {"path": folder} if key == "adapter" else folder}, step, tokens))
    if not found:
        words = f"series.folder: {root} holds no checkpoints: folders with a config.json or an adapter_config.json"
        if not_taken:
            words += f"; not taken: {'; '.join(not_taken)}"
        raise InvalidEntryError([Fault(("series", "folder"), words)])
    if "adapter" in fields or any("path" in checkpoint.fields and "path" in fields for checkpoint in found):
        words = "series.folder names models or adapters itself: leave path and adapter out; adapters need their base"
        raise InvalidEntryError([Fault(("series", "folder"), words)])
    return sorted(found, key=_compute_sort_key)


def _explain_folders_not_taken(root: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Yield the name of each folder that is no checkpoint, with the reason."""
    if _find_kind(root) is not None:
        yield f"{root.name} itself (list the model in it by an entry of its own)"
    for folder in folders:
        reason = _explain_not_taken(folder)
        if reason is not None:
            yield f"{folder.name!r} ({reason})"


def _explain_not_taken(folder: Path) -> str | None:
    """Return why a folder is no checkpoint, or None if it is one, or no folder."""
    if folder.is_symlink():
        return "a link" if folder.is_dir() or not folder.exists() else None
    if not folder.is_dir():
        return None
    if folder.name.startswith("."):
        return "hidden"
    if _UNFINISHED.search(folder.name):
        return "tmp: not finished"
    return _explain_content(folder)


def _explain_content(folder: Path) -> str | None:
    """Return why what is in a folder is no checkpoint, or None if it is one."""
    try:
        is_empty = not any(folder.iterdir())
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if is_empty:
        return "empty"
    return "no config.json" if _find_kind(folder) is None else None


def _find_kind(folder: Path) -> str | None:
    """Return the key of the entry that a folder belongs under, 'adapter' or 'path'; None if it holds neither."""
    for key in ("adapter", "path"):
        if (folder / _CONFIG_FILES[key]).is_file():
            return key
    return None


def _compute_sort_key(found: _Found) -> tuple[Any, ...]:
    """Return a key that orders checkpoints by step, then by tokens, then by the numbers in their names."""
    step = inf if found.step is None else found.step
    tokens = inf if found.tokens is None else found.tokens
    parts = []
    end = 0
    for number in _NUMBER.finditer(found.label):
        text = found.label[end : number.start()]
        parts.append((_drop_separators(text), float(number[1]) * _UNITS[(number[2] or "").lower()]))
        end = number.end()
    parts.append((_drop_separators(found.label[end:]), -1.0))
    return step, tokens, parts, found.label


def _drop_separators(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _read_trainer_state(folder: Path) -> tuple[int, int | None] | None:
    """Return step and tokens of transformers' trainer_state.json, or None if it is missing, cut short or lacks them."""
    try:
        state = read_json(folder / "trainer_state.json")
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict):
        return None
    step, tokens = (state.get(key) for key in ("global_step", "num_input_tokens_seen"))
    if not isinstance(step, int):
        return None
    return step, tokens if isinstance(tokens, int) and tokens else None


def _parse_checkpoint_name(name: str) -> tuple[int | None, int | None]:
    """Return step and tokens of a name such as checkpoint-500, step1000 or stage1-step140000-tokens294B."""
    step, tokens = (
        None if (found := pattern.search(name)) is None else round(float(found[1]) * _UNITS[(found[2] or "").lower()])
        for pattern in (_STEP, _TOKENS)
    )
    return step, tokens
