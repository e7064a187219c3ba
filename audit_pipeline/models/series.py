"""Series of checkpoints: an entry of models.yaml for many models, in the order of their training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import StrictSettings, resolve_against, validate_as
from audit_pipeline.store.files import read_json

_STEP = re.compile(r"(?:step|checkpoint|iter)[-_]?(\d+)([km]?)(?![a-z\d])", re.IGNORECASE)
_TOKENS = re.compile(r"tokens?[-_]?(\d+(?:\.\d+)?)([kmbt])?(?![a-z\d])", re.IGNORECASE)
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

    Relative paths count from ``config_folder``. Raises InvalidEntryError where the series cannot be read.
    """
    fields = {key: value for key, value in given.items() if key != "series"}
    try:
        series = validate_as(Series, given["series"] if isinstance(given["series"], dict) else {})
    except InvalidEntryError as error:
        raise InvalidEntryError([Fault(("series", *fault.keys), fault.words) for fault in error.faults]) from error
    found = _list_revisions(series, fields) if series.folder is None else _list_folders(series, fields, config_folder)
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


def _list_folders(series: Series, fields: Mapping[str, Any], config_folder: Path) -> list[_Found]:
    assert series.folder is not None
    root = resolve_against(config_folder, series.folder).expanduser()
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        key = "adapter" if (folder / "adapter_config.json").is_file() else "path"
        if key == "path" and not (folder / "config.json").is_file():
            continue
        step, tokens = _read_trainer_state(folder) or _parse_checkpoint_name(folder.name)
        found.append(_Found(folder.name, {key: {"path": folder} if key == "adapter" else folder}, step, tokens))
    if not found:
        words = f"series.folder: {root} holds no checkpoints: folders with a config.json or an adapter_config.json"
        raise InvalidEntryError([Fault(("series", "folder"), words)])
    if "adapter" in fields or any("path" in checkpoint.fields and "path" in fields for checkpoint in found):
        words = "series.folder names models or adapters itself: leave path and adapter out; adapters need their base"
        raise InvalidEntryError([Fault(("series", "folder"), words)])
    return sorted(found, key=lambda checkpoint: (inf if checkpoint.step is None else checkpoint.step, checkpoint.label))


def _read_trainer_state(folder: Path) -> tuple[int, int | None] | None:
    """Read step and tokens from transformers' trainer_state.json; None where the file is missing or lacks the step."""
    try:
        state = read_json(folder / "trainer_state.json")
    except (OSError, ValueError):
        return None
    step, tokens = (state.get(key) for key in ("global_step", "num_input_tokens_seen"))
    return (step, tokens if isinstance(tokens, int) and tokens else None) if isinstance(step, int) else None


def _parse_checkpoint_name(name: str) -> tuple[int | None, int | None]:
    """Read step and tokens from a name: checkpoint-500, step1000, stage1-step140000-tokens294B."""
    step, tokens = (
        None if (found := pattern.search(name)) is None else round(float(found[1]) * _UNITS[(found[2] or "").lower()])
        for pattern in (_STEP, _TOKENS)
    )
    return step, tokens
