"""Series of checkpoints: an entry of models.yaml for many models, in the order of their training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Trainers use such a name for a folder until its files are complete.
_UNFINISHED = re.compile(r"(?:^|[-_.])tmp(?:[-_.]|$)", re.IGNORECASE)
_CONFIG_FILES = {"path": "config.json", "adapter": "adapter_config.json"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}

Count = Annotated[int, Field(ge=0)]


class Series(StrictSettings):
    """The location of an entry's checkpoints."""

    revisions: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="revisions on the hub, in the order of training"
    )
    folder: Path | None = Field(default=None, description="a folder with one folder per checkpoint or adapter")
    steps: tuple[Count, ...] | None = Field(
        default=None, description="training step of each revision; None: the step in the name of the revision"
    )
    tokens: tuple[Count, ...] | None = Field(
        default=None,
        description="number of training tokens of each revision; None: the number in the name of the revision, else "
        "computed with tokens_per_step",
    )
    tokens_per_step: Count | None = Field(
        default=None, description="number of tokens per training step, for checkpoints without a number of tokens"
    )

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if (self.revisions is None) == (self.folder is None):
            raise ValueError("a series requires either 'revisions' or 'folder'. Add the missing key or remove one.")
        revisions = self.revisions or ()
        repeated = [revision for revision in revisions if revisions.count(revision) > 1]
        if repeated:
            raise ValueError(f"'revisions' lists {repeated[0]!r} twice. Remove the duplicate.")
        for key, numbers in (("steps", self.steps), ("tokens", self.tokens)):
            if numbers is not None and len(numbers) != len(self.revisions or ()):
                raise ValueError(
                    f"{key!r} lists {len(numbers)} numbers, but 'revisions' lists {len(self.revisions or ())} "
                    "revisions. List one number per revision."
                )
        return self


class Checkpoint(StrictSettings):
    """The position of a model in a series. ``position`` counts from 1."""

    series: str
    position: int
    step: int | None = None
    tokens: int | None = None


class _Member(NamedTuple):
    label: str
    fields: Mapping[str, Any]
    step: int | None
    tokens: int | None


def expand_series(name: str, entry_fields: Mapping[str, Any], config_folder: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of one entry per checkpoint of a series, by entry name (``name@checkpoint``).

    Relative paths start at ``config_folder``. A warning lists the folders that are skipped, with reasons.

    Raises:
        InvalidEntryError: If the series cannot be read.
    """
    fields = {key: value for key, value in entry_fields.items() if key != "series"}
    settings = entry_fields["series"]
    if not isinstance(settings, dict):
        settings = {}
    try:
        series = validate_as(Series, settings)
    except InvalidEntryError as error:
        raise InvalidEntryError([Fault(("series", *fault.keys), fault.message) for fault in error.faults]) from error
    if series.folder is None:
        checkpoints: Iterable[_Member] = _build_revision_members(series, fields)
    else:
        root = resolve_against(config_folder, series.folder).expanduser()
        folders = sorted(root.iterdir(), key=attrgetter("name")) if root.is_dir() else []
        skipped = list(_explain_skipped_folders(root, folders))
        checkpoints = _build_folder_members(root, folders, fields, skipped)
        if skipped:
            message = f"the series {name} skips these folders in {root}: {'; '.join(skipped)}"
            warnings.warn(ModelFilesWarning(message), stacklevel=2)
    members = {}
    for position, checkpoint in enumerate(checkpoints, 1):
        label, own_fields, step, tokens = checkpoint
        if tokens is None and step is not None and series.tokens_per_step is not None:
            tokens = step * series.tokens_per_step
        member = {**fields, **own_fields}
        if "title" in fields:
            member["title"] = f"{fields['title']}, {label}"
        member["checkpoint"] = {"series": name, "position": position, "step": step, "tokens": tokens}
        members[f"{name}@{label}"] = member
    return members


def _build_revision_members(series: Series, fields: Mapping[str, Any]) -> Iterator[_Member]:
    adapter = fields.get("adapter")
    has_adapter = isinstance(adapter, dict)
    varied: Mapping[str, Any] = adapter if isinstance(adapter, dict) else fields
    if "hub" not in varied or "revision" in varied:
        message = (
            "'revisions' requires that the adapter (or, without an adapter, the model) has 'hub' and no 'revision'. "
            "Add 'hub', or remove 'revision'."
        )
        raise InvalidEntryError([Fault(("series", "revisions"), message)])
    for number, revision in enumerate(series.revisions or ()):
        step, tokens = _parse_checkpoint_name(revision)
        if series.steps is not None:
            step = series.steps[number]
        if series.tokens is not None:
            tokens = series.tokens[number]
        own_fields: dict[str, Any] = {"revision": revision}
        if has_adapter:
            own_fields = {"adapter": {**varied, "revision": revision}}
        yield _Member(revision, own_fields, step, tokens)


def _build_folder_members(
    root: Path, folders: Sequence[Path], fields: Mapping[str, Any], skipped: Sequence[str]
) -> list[_Member]:
    checkpoints = []
    for folder in folders:
        key = _find_entry_key(folder)
        if key is None or _explain_skipped(folder) is not None:
            continue
        step, tokens = _read_trainer_state(folder) or _parse_checkpoint_name(folder.name)
        location = {"path": folder} if key == "adapter" else folder
        checkpoints.append(_Member(folder.name, {key: location}, step, tokens))
    if not checkpoints:
        message = f"{root} contains no checkpoints. A checkpoint is a folder with config.json or adapter_config.json."
        if skipped:
            message += f" These folders are skipped: {'; '.join(skipped)}"
        raise InvalidEntryError([Fault(("series", "folder"), message)])
    if "adapter" in fields or any("path" in checkpoint.fields and "path" in fields for checkpoint in checkpoints):
        message = (
            "the checkpoints in 'folder' replace the keys 'adapter' and 'path' of the entry. Remove both keys. If the "
            "checkpoints are adapters, keep 'path' for their base model."
        )
        raise InvalidEntryError([Fault(("series", "folder"), message)])
    return sorted(checkpoints, key=_compute_sort_key)


def _explain_skipped_folders(root: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Yield the name of each folder that is no checkpoint, with the reason."""
    if _find_entry_key(root) is not None:
        yield f"{root.name} itself (to audit the model in it, add a separate entry)"
    for folder in folders:
        reason = _explain_skipped(folder)
        if reason is not None:
            yield f"{folder.name!r} ({reason})"


def _explain_skipped(folder: Path) -> str | None:
    """Return the reason why a folder is no checkpoint. Return None for checkpoints and for files."""
    if folder.is_symlink():
        if folder.is_dir() or not folder.exists():
            return "a link"
        return None
    if not folder.is_dir():
        return None
    if folder.name.startswith("."):
        return "hidden"
    if _UNFINISHED.search(folder.name):
        return "its name contains tmp, so it is unfinished"
    return _explain_content(folder)


def _explain_content(folder: Path) -> str | None:
    """Return the reason why the content of a folder is no checkpoint, or None."""
    try:
        is_empty = not any(folder.iterdir())
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if is_empty:
        return "empty"
    if _find_entry_key(folder) is None:
        return "without config.json"
    return None


def _find_entry_key(folder: Path) -> str | None:
    """Return the entry key that loads a folder, 'adapter' or 'path', or None if the folder holds no model."""
    for key in ("adapter", "path"):
        if (folder / _CONFIG_FILES[key]).is_file():
            return key
    return None


def _compute_sort_key(member: _Member) -> tuple[Any, ...]:
    """Return a key that orders checkpoints by step, then by tokens, then by the numbers in their names."""
    step = member.step
    tokens = member.tokens
    parts = []
    end = 0
    for number in _NUMBER.finditer(member.label):
        text = member.label[end : number.start()]
        parts.append((_drop_separators(text), float(number[1]) * _UNITS[(number[2] or "").lower()]))
        end = number.end()
    parts.append((_drop_separators(member.label[end:]), -1.0))
    # Checkpoints without a step or a number of tokens come last.
    return step is None, step, tokens is None, tokens, parts, member.label


def _drop_separators(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _read_trainer_state(folder: Path) -> tuple[int, int | None] | None:
    """Return step and tokens of transformers' trainer_state.json, or None if the file or its step is missing."""
    try:
        state = read_json(folder / "trainer_state.json")
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict):
        return None
    step = state.get("global_step")
    if not isinstance(step, int):
        return None
    tokens = state.get("num_input_tokens_seen")
    if not isinstance(tokens, int) or not tokens:
        return step, None
    return step, tokens


def _parse_checkpoint_name(name: str) -> tuple[int | None, int | None]:
    """Return step and tokens from a name such as checkpoint-500, step1000 or stage1-step140000-tokens294B."""
    return _parse_number(_STEP.search(name)), _parse_number(_TOKENS.search(name))


def _parse_number(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    return round(float(match[1]) * _UNITS[(match[2] or "").lower()])
