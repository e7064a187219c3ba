"""The options of audits and scoring, for the commands and the Python functions.

The classes check and convert the values, so both report the same mistakes. The help of each option belongs to its
command (audit_pipeline/cli) and to its Python function (corpus_audit).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Literal

from audit_pipeline.config.problems import split_names
from audit_pipeline.errors import ConfigError
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.readers.conversations import SCORED_PARTS, ScoredPart
from audit_pipeline.readers.file_bytes import find_irregular_kind, is_unicode
from audit_pipeline.token_statistics.engine_choice import Engine, EngineName, choose_engine

ParameterValue = bool | int | float | str


def parse_names(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names in a comma-separated text or in a sequence. Return None for None and for an empty text."""
    if isinstance(value, str):
        return tuple(split_names(value)) or None
    return None if value is None else tuple(value)


def parse_kinds(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of token statistics to cache. The kind base is always included and comes first.

    Raises:
        ConfigError: If a kind is unknown, or none is named.
    """
    names = parse_names(value) or ()
    if set(names) == {"base"}:
        return ("base",)
    # Completion and most commands only need the default, and pyarrow takes long to import.
    from audit_pipeline.tables import OPTIONAL_KINDS  # noqa: PLC0415

    if not names or not set(names) <= {"base", *OPTIONAL_KINDS}:
        raise ConfigError(
            f"kinds is {','.join(names)!r}, but the only kinds are base, {' and '.join(OPTIONAL_KINDS)}. Give one or "
            "more of these kinds, separated by commas."
        )
    return tuple(dict.fromkeys(["base", *names]))


def explain_unusable_path(path: Path) -> str | None:
    """Return why a path cannot be read, or None if it is a folder, a regular file, missing, or - (standard input).

    Reading a pipe or a device could block forever. Names must be UTF-8, because the result tables store them so.
    """
    absolute = os.path.abspath(path)
    if not is_unicode(absolute):
        return f"the path {absolute!r} is not valid UTF-8. Rename the file or its folder."
    if path == Path("-") or path.is_dir() or not os.path.lexists(path):
        return None
    kind = find_irregular_kind(path)
    return None if kind is None else f"{str(path)!r} is {kind}. Name a regular file, such as a copy of its content."


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every run of a model.

    Attributes:
        device: Device of the model, "cpu" or "cuda". None: cuda if it is available.
        max_tokens: Maximum number of tokens sent to models on servers, including a reference model.
        max_cost: Maximum cost of the tokens sent to servers, in the currency of the prices in the models' entries.
        engine: "in_process", or "ray" for the workers of a Ray cluster. None: CORPUS_AUDIT_ENGINE, else in_process.
        workers: Number of Ray workers. None: one per GPU, or one per node if the cluster has no GPU.

    Raises:
        ConfigError: If a limit is not positive, if engine and workers contradict each other, or if the engine is not
            installed.
    """

    device: str | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    engine: EngineName | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}. It must be at least 1.")
        if self.max_cost is not None and self.max_cost <= 0:
            raise ConfigError(f"max_cost is {self.max_cost}. It must be more than 0.")
        # A wrong engine is reported before any file is read.
        _ = self.chosen_engine

    @property
    def limits(self) -> Limits:
        """Return the limits on tokens and cost of requests to servers."""
        return Limits(self.max_tokens, self.max_cost)

    @cached_property
    def chosen_engine(self) -> Engine:
        """Return the engine. Unset options have the defaults of the environment."""
        return choose_engine(self.engine, self.workers)


@dataclass(frozen=True, kw_only=True)
class AuditOptions(RunOptions):
    """Options of an audit, except its model and benchmarks.

    Attributes:
        refresh: Fetch the sources again, even if their documents are stored.
        again: Repeat finished audits. The model is not run again on texts that are in the cache.
        kinds: Kinds of token statistics to cache (see :func:`parse_kinds`).
        logits_budget_gb: Maximum size of the logits of a benchmark in gigabytes, if the kind logits is cached. None:
            the default of the stage token_statistics.
        publish: Rebuild warehouse and report after the audit.

    Raises:
        ConfigError: If a kind is unknown or the budget is negative, or as :class:`RunOptions` does.
    """

    refresh: bool = False
    again: bool = False
    kinds: Sequence[str] = ("base",)
    logits_budget_gb: float | None = None
    publish: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits_budget_gb is not None and self.logits_budget_gb < 0:
            raise ConfigError(f"logits_budget_gb is {self.logits_budget_gb}. It must be 0 or more.")
        object.__setattr__(self, "kinds", parse_kinds(self.kinds))

    @property
    def keeps_current_results(self) -> bool:
        """Return whether an audit with these options keeps results that are up to date."""
        return not self.refresh and not self.again and self.kinds == ("base",)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(RunOptions):
    """Options of scoring texts, except the texts.

    Attributes:
        model: Model: a name in config/models.yaml, a hub id, or a path.
        detectors: Names of the detectors. None: all except those that run on request only.
        grid: Score with all values of each detector's grid, not only with the default values.
        parameters: Values of parameters by detector and parameter. With ``grid`` they stay fixed.
        text_column: Column of the text. None: text, else input, else the only column.
        scored_part: Scored part of conversations: "response", "last_response" or "all". None: the answers of a file
            that has conversations and no text column.
        label_column: Column of the label: 1 member, 0 non-member, empty unknown.
        id_column: Column of the user's own id of each text. None: id, if the column exists.
        start_token: "always" adds the start token to each text, "tokenizer" only if the tokenizer adds it. None: the
            setting of the model's entry.
        dtype: Precision of the forward pass. None: the setting of the model's entry.
        reference_model: Model that the detectors reference and error_zone compare with. None: that of the model's
            entry.
        frequencies: Token-frequency table for dc_pdd.
        prefix_texts: File of known non-members, the prefix of recall and con_recall.
        prefix_members: File of known members, the second prefix of con_recall.
        seed: Seed of the neighbours: randomly changed copies of a text that some detectors compare it with.

    Raises:
        ConfigError: If a path cannot be read, or as :class:`RunOptions` does.
    """

    model: str | PathLike[str]
    detectors: Sequence[str] | None = None
    grid: bool = False
    parameters: Mapping[str, Mapping[str, ParameterValue]] | None = None
    text_column: str | None = None
    scored_part: ScoredPart | None = None
    label_column: str = "label"
    id_column: str | None = None
    start_token: Literal["always", "tokenizer"] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    reference_model: str | None = None
    frequencies: PathLike[str] | None = None
    prefix_texts: PathLike[str] | None = None
    prefix_members: PathLike[str] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "detectors", parse_names(self.detectors))
        if self.scored_part is not None and self.scored_part not in SCORED_PARTS:
            raise ConfigError(f"scored_part is {self.scored_part!r}. Choose one of {', '.join(SCORED_PARTS)}.")
        if self.scored_part is not None and self.text_column is not None:
            raise ConfigError(
                "the scored part belongs to conversations, and the text column to texts. Give one of the two options."
            )
        for name in ("frequencies", "prefix_texts", "prefix_members"):
            value = getattr(self, name)
            if value is None:
                continue
            problem = explain_unusable_path(Path(value))
            if problem is not None:
                raise ConfigError(f"{name}: {problem}")
            object.__setattr__(self, name, Path(value))

    @property
    def overrides(self) -> Mapping[str, Mapping[str, ParameterValue]]:
        """Return the parameters, or an empty mapping if none is set."""
        return self.parameters or {}
