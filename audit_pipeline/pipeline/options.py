"""What a user may ask of a command or a function of the Python API: every option that several take, declared once.

A field with an :class:`Option` is an option of the command line and a parameter in Python; one with a text alone is a
parameter in Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import click

from audit_pipeline.config.problems import split_names
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.readers.regular_files import find_irregular_kind, is_unicode
from audit_pipeline.token_statistics.engine_choice import Engine, EngineName, choose_engine


class _Names(click.ParamType):  # type: ignore[type-arg]
    """Names in one text, separated by commas; None for an empty one. In Python a sequence of names as well."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[str] | None:
        if not isinstance(value, str):
            return tuple(value)
        return tuple(split_names(value)) if value else None


class _Kinds(_Names):
    """What is cached of a pass: base always, and the kinds that a user may name too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[str]:
        names = super().convert(value, param, ctx) or ()
        if set(names) == {"base"}:
            return ("base",)
        # Imported here: help and completion, which read the default, wait for no pyarrow.
        from audit_pipeline.tables import OPTIONAL_KINDS  # noqa: PLC0415

        if not names or not set(names) <= {"base", *OPTIONAL_KINDS}:
            raise click.BadParameter(f"a list of base, {' and '.join(OPTIONAL_KINDS)}", param_hint="--kinds")
        return tuple(dict.fromkeys(["base", *names]))


class _InputPath(click.Path):
    """A path that is read: a folder, a regular file, or - for standard input. A pipe or device could wait for ever."""

    def convert(
        self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | PathLike[str]:
        path = Path(value)
        if not is_unicode(os.path.abspath(path)):
            self.fail(
                f"{os.path.abspath(path)!r} is a name that is not UTF-8. Rename the file or its folder.", param, ctx
            )
        if path != Path("-") and not path.is_dir() and os.path.lexists(path):
            kind = find_irregular_kind(path)
            if kind is not None:
                self.fail(f"{str(path)!r} is {kind}. Name a regular file, such as a copy of its content.", param, ctx)
        return super().convert(value, param, ctx)


FILE = click.Path(path_type=Path, dir_okay=False)
"""A file to write."""
PATH = _InputPath(path_type=Path)
"""A file, a folder, or - for standard input, which are read."""
INPUT_FILE = _InputPath(path_type=Path, dir_okay=False)
EXISTING = _InputPath(exists=True, path_type=Path)
EXISTING_FILE = _InputPath(exists=True, path_type=Path, dir_okay=False)
NAMES, KINDS = _Names(), _Kinds()


@dataclass(frozen=True)
class Option:
    """How a field is an option: its help, and its type on the command line where the annotation does not say it.

    ``shows_default``: the help names the default; else its own words do. ``flag``: its name, where it is not the
    field's; ``metavar``: the placeholder of its value in the help.
    """

    help: str
    type: click.ParamType[Any] | None = None
    shows_default: bool = False
    flag: str | None = None
    metavar: str | None = None


MODEL = Option("The model: a name in config/models.yaml, a hub id, or a path.")
BENCHMARK = Option("A benchmark (release_notes_64), a family of them (release_notes), several (a,b), or all.")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """The device that a model runs on."""

    device: Annotated[
        str | None, Option("Where the model runs. Default: cuda where available.", click.Choice(["cpu", "cuda"]))
    ] = None


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The most that is sent to models on servers."""

    max_tokens: Annotated[
        int | None,
        Option(
            "The most tokens sent to models on servers, a reference model included. Finished work is kept.",
            click.IntRange(min=1),
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        Option("The most that they may cost, by the prices in their entries.", click.FloatRange(min=0, min_open=True)),
    ] = None

    @property
    def limits(self) -> Limits:
        """Both, as budgets keep to them."""
        return Limits(self.max_tokens, self.max_cost)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Raises ConfigError where the two make no sense together, or an engine is not installed."""

    engine: Annotated[
        EngineName | None,
        Option(
            "What runs the model: this process, or workers of a Ray cluster (docs/ray.md). Default: in_process.",
            click.Choice(get_args(EngineName)),
        ),
    ] = None
    workers: Annotated[
        int | None,
        Option("How many workers of Ray. Default: one for each GPU, else one for each node.", click.IntRange(min=1)),
    ] = None

    def __post_init__(self) -> None:
        # What is wrong is said before anything is read.
        _ = self.chosen_engine

    @cached_property
    def chosen_engine(self) -> Engine:
        """Both, and what the environment says of the rest."""
        return choose_engine(self.engine, self.workers)


@dataclass(frozen=True, kw_only=True)
class RunOptions(EngineOptions, LimitOptions, DeviceOptions):
    """How a model is run, whatever for."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions(RunOptions):
    """What is asked of an audit apart from its model and benchmarks; ``publish``: warehouse and report follow."""

    refresh: Annotated[bool, Option("Fetch the sources again, even if their documents are there.")] = False
    again: Annotated[bool, Option("Audit again what is done; texts come from the cache all the same.")] = False
    kinds: Annotated[
        Sequence[str],
        Option(
            "What to cache of each pass: base, topk, logits. Of logits, statistics are made later without a pass.",
            KINDS,
            shows_default=True,
        ),
    ] = ("base",)
    logits_budget_gb: Annotated[
        float | None,
        Option("The most gigabytes that full logits may take per benchmark.", click.FloatRange(min=0)),
    ] = None
    publish: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked that is done whatever is there."""
        return not (self.refresh or self.again) and tuple(self.kinds) == ("base",)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(RunOptions):
    """What is asked of scoring texts, apart from the texts."""

    model: Annotated[str | PathLike[str], MODEL]
    detectors: Annotated[
        Sequence[str] | None,
        Option(
            "Names, separated by commas; `corpus-audit detectors` lists them. Default: all but those on request.",
            NAMES,
        ),
    ] = None
    grid: Annotated[bool, Option("Compute every setting of each detector's grid, not only the default.")] = False
    parameters: Annotated[
        Mapping[str, Mapping[str, bool | int | float | str]] | None,
        'Parameters by detector, as in ``{"min_k": {"k": 0.3}}``; with ``grid``, the others are swept.',
    ] = None
    text_column: Annotated[
        str | None, Option("Column of the text. Default: text, else input, else the only column.")
    ] = None
    label_column: Annotated[
        str,
        Option("Column of the label: 1 member, 0 non-member, empty unknown. It may be absent.", shows_default=True),
    ] = "label"
    id_column: Annotated[
        str | None, Option("Column of your own id of each text, which the result keeps. Default: id, if there is one.")
    ] = None
    start_token: Annotated[
        Literal["always", "tokenizer"] | None,
        Option("Which tokens are scored. Default: the model's entry.", click.Choice(["always", "tokenizer"])),
    ] = None
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Option("Precision of the pass. Default: the model's entry.", click.Choice(["float32", "bfloat16", "float16"])),
    ] = None
    reference_model: Annotated[
        str | None, Option("The second model of the detector reference. Default: the model's entry.")
    ] = None
    frequencies: Annotated[
        PathLike[str] | None,
        Option("Token frequencies for dc_pdd: a table that `corpus-audit count` wrote.", INPUT_FILE),
    ] = None
    prefix_texts: Annotated[
        PathLike[str] | None,
        Option(
            "A file of texts known to be no members, each of another document: the first are the prefix of recall "
            "and con_recall. Texts of their documents get no score; a document is identified by its first 32 words.",
            PATH,
        ),
    ] = None
    prefix_members: Annotated[
        PathLike[str] | None,
        Option("As --prefix-texts, a file of texts known to be members: the other prefix of con_recall.", PATH),
    ] = None
    proposer: Annotated[
        str,
        Option(
            "What generates neighbours: the model itself (own-topk), or a masked language model.", shows_default=True
        ),
    ] = "own-topk"
    seed: Annotated[int, Option("Seed for generating neighbours.", shows_default=True)] = 0

    @property
    def overrides(self) -> Mapping[str, Mapping[str, bool | int | float | str]]:
        """``parameters``, empty where none is set."""
        return self.parameters or {}
