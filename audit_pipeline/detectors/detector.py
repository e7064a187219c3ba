"""What a detector is: its name and needs, its parameters, and the outcome of scoring one text, or many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.errors import ConfigError
from audit_pipeline.tables import SCORES, ScoreStatus, canonical_json

ParameterValue = bool | int | float | str
Settings = Mapping[str, ParameterValue]


class Outcome(NamedTuple):
    """A score (higher: more likely a member), or why there is none; a score is always a finite number."""

    score: float | None
    status: ScoreStatus
    reason: str | None

    @classmethod
    def from_score(cls, value: float) -> Outcome:
        """``value`` as a score; a value that is not finite becomes a failure that names it."""
        value = float(value)
        if math.isfinite(value):
            return cls(value, "ok", None)
        return cls.failed(f"the score is not a finite number: {value}")

    @classmethod
    def not_applicable(cls, reason: str) -> Outcome:
        return cls(None, "not_applicable", reason)

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        return cls(None, "failed", reason)


Compute = Callable[[TextStatistics, Sequence[Settings]], Sequence[Outcome]]

UNKNOWN_LOGPROB = (
    "a token's log-probability is not a finite number: it is minus infinity, or the server that runs the model gives a "
    "placeholder or a floor in its place"
)


def to_canonical_value(value: ParameterValue) -> ParameterValue:
    """``value`` as contracts.canonical_json spells it: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Parameter:
    """One parameter of a detector. Its type is its default's; ``requirement`` says in words what ``accepts`` checks.

    ``quiet``: at its default it is left out of a setting's label. For the switches of ablations, whose default is the
    detector as published. ``passes_each``: every further value takes passes of its own over the texts, so an audit
    scores its default alone. ``spellings``: other ways to write a value that is a word, each with the word.
    """

    default: ParameterValue
    grid: tuple[ParameterValue, ...]
    description: str
    requirement: str
    accepts: Callable[[ParameterValue], bool]
    quiet: bool = False
    passes_each: bool = False
    spellings: Mapping[str, str] = field(default_factory=dict)

    def parse(self, text: str) -> ParameterValue:
        """The value that ``text`` spells, in canonical form; raises ConfigError for another type or range."""
        word = text.strip()
        try:
            return self.checked(_READERS[type(self.default)](self.spellings.get(word, word)))
        except (ValueError, ConfigError):
            raise ConfigError(f"'{text}' is not {self.requirement}") from None

    def checked(self, value: ParameterValue) -> ParameterValue:
        """``value`` in canonical form; raises ConfigError where it has another type or is out of range."""
        if isinstance(self.default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(self.default) or not self.accepts(value):
            raise ConfigError(f"'{value}' is not {self.requirement}")
        return to_canonical_value(value)

    @property
    def values(self) -> tuple[ParameterValue, ...]:
        """The grid in canonical form, with the default in it, each value once."""
        values = dict.fromkeys(to_canonical_value(value) for value in self.grid)
        if to_canonical_value(self.default) not in values:
            return (to_canonical_value(self.default), *values)
        return tuple(values)


@dataclass(frozen=True)
class Detector:
    """A detector: what it is, what it needs and costs, and its score of one text under each of several settings.

    ``needs`` are those apart from the text's own pass. ``optional_needs`` are needs of some settings alone,
    computed the same way, but where one is lacking the others are scored all the same. ``compute`` gets the statistics of a text
    with at least one scored token and all that ``needs`` names, and returns one outcome per setting, in order; taking
    them all at once, it can share work between settings (a whole k grid costs one sort). ``passes`` says in words how
    many tokens go through the model for each token of the text. ``reads`` names what a setting reads of the text's own
    statistics beside the log-probabilities and ids of its tokens (contracts.MEASURED): where a model's back end does
    not give it, there is no score. ``on_request``: never scored unless it is named.

    ``title`` is its printable name, for tables of papers; without one it is called by its ``name``.

    For its page (docs/detectors.md): ``equation`` is the score as a formula in plain text, ``reported`` what its
    authors report and on what, ``also_reads`` what moves it apart from membership; a sentence or two each.
    """

    name: str
    summary: str
    source: str
    passes: str
    compute: Compute
    equation: str
    reported: str
    also_reads: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    needs: tuple[Need[Any], ...] = ()
    optional_needs: tuple[Need[Any], ...] = ()
    on_request: bool = False
    reads: Callable[[Settings], tuple[str, ...]] = lambda _: ()
    title: str = ""

    @cached_property
    def default(self) -> Settings:
        """The default setting, in canonical form."""
        return {name: to_canonical_value(parameter.default) for name, parameter in self.parameters.items()}

    @property
    def own_logprobs_suffice(self) -> bool:
        """Whether it can be scored at its default where only the log-probabilities of the text's tokens are known."""
        return not self.reads(self.default) and not any(need.statistics for need in self.needs)

    def to_json(self, setting: Settings) -> str:
        """The setting as canonical JSON, as in the column ``parameters``."""
        parameters = {
            name: value
            for name, value in {**self.default, **setting}.items()
            if not (self.parameters[name].quiet and to_canonical_value(value) == self.default[name])
        }
        return canonical_json(parameters)

    def score(self, statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
        """One outcome per setting; ``not_applicable`` where the text has no scored token or a need is not met.

        ``failed`` where the log-probability of a token is not a finite number: the model does not say how likely it is.
        What a setting leaves out is at its default.
        """
        if not len(statistics):
            return [Outcome.not_applicable("the text has no scored token")] * len(settings)
        if not np.isfinite(statistics.logprob).all():
            return [Outcome.failed(UNKNOWN_LOGPROB)] * len(settings)
        for need in self.needs:
            lacking = statistics.explain_unmet_need(need)
            if lacking is not None:
                return [Outcome.not_applicable(lacking)] * len(settings)
        whole = [{**self.default, **setting} for setting in settings]
        lacks = [statistics.explain_absent_columns(self.reads(setting)) for setting in whole]
        possible = [setting for setting, reason in zip(whole, lacks, strict=True) if reason is None]
        found = iter(self.compute(statistics, possible) if possible else ())
        return [next(found) if reason is None else Outcome.not_applicable(reason) for reason in lacks]


def reads_columns(*columns: str) -> Callable[[Settings], tuple[str, ...]]:
    """``Detector.reads`` of a detector that reads the same at every setting."""
    return lambda _: columns


def boolean_parameter(description: str) -> Parameter:
    """A part of a detector that an ablation leaves out: true as published, never swept by a grid."""
    return Parameter(True, (True,), description, "true or false", lambda value: isinstance(value, bool), quiet=True)


def by_group(
    settings: Sequence[Settings],
    shared: Sequence[str],
    compute: Callable[[Settings, Sequence[Settings]], Sequence[Outcome]],
) -> list[Outcome]:
    """One outcome per setting, in order; those that agree in the ``shared`` parameters are computed in one call.

    ``compute`` gets one setting of a group, for the shared values, and all of its settings.
    """
    groups: dict[tuple[ParameterValue, ...], list[int]] = {}
    for index, setting in enumerate(settings):
        groups.setdefault(tuple(setting[name] for name in shared), []).append(index)
    found: dict[int, Outcome] = {}
    for indices in groups.values():
        same = [settings[index] for index in indices]
        found.update(zip(indices, compute(same[0], same), strict=True))
    return [found[index] for index in range(len(settings))]


def outcomes(values: Iterable[float]) -> list[Outcome]:
    """Each value as an outcome."""
    return [Outcome.from_score(value) for value in values]


def for_all_settings(score: Callable[[TextStatistics], Outcome]) -> Compute:
    """``Detector.compute`` of a score that is the same at every setting."""
    return lambda statistics, settings: [score(statistics)] * len(settings)


def for_each_setting(score: Callable[[TextStatistics, Settings], Outcome]) -> Compute:
    """``Detector.compute`` of a score whose settings have no work in common."""
    return lambda statistics, settings: [score(statistics, setting) for setting in settings]


def _read_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_READERS: Mapping[type, Callable[[str], ParameterValue]] = {bool: _read_bool, int: int, float: float, str: str}


COLUMNS = ("example_id", "detector", "parameters", "score", "status", "reason")
SCORE_COLUMNS = pa.schema([SCORES.field(name) for name in COLUMNS])
"""The columns of SCORES that scoring fills; the caller knows model, benchmark, overrides and run_id."""

_MISSING = Outcome.failed("there are no token statistics for the text: run the model on it first")


def score_texts(
    texts: Iterable[tuple[str, TextStatistics | None]], selection: Sequence[tuple[Detector, Sequence[Settings]]]
) -> pa.Table:
    """Every text (example_id, statistics) under every setting of every detector: a table of ``SCORE_COLUMNS``.

    One row per text, detector and setting, text by text in the given order. A text without statistics (None) gets rows
    with status ``failed``: no text is dropped. ``selection`` is what registry.select returns.
    """
    labels = [(detector.name, detector.to_json(setting)) for detector, settings in selection for setting in settings]
    missing = [_MISSING] * len(labels)
    example_ids: list[str] = []
    columns: dict[str, list[Any]] = {name: [] for name in Outcome._fields}
    for example_id, statistics in texts:
        example_ids.append(example_id)
        rows = missing
        if statistics is not None:
            rows = [row for detector, settings in selection for row in detector.score(statistics, settings)]
        # No row is kept: hundreds of thousands of them would keep Python's garbage collector busy.
        for place, values in enumerate(columns.values()):
            values.extend([row[place] for row in rows])
    text_of_row = np.repeat(np.arange(len(example_ids)), len(labels))
    label_of_row = np.tile(np.arange(len(labels)), len(example_ids))
    return pa.table(
        {
            "example_id": pa.array(example_ids, pa.string()).take(pa.array(text_of_row)),
            "detector": pa.array([name for name, _ in labels], pa.string()).take(pa.array(label_of_row)),
            "parameters": pa.array([parameters for _, parameters in labels], pa.string()).take(pa.array(label_of_row)),
            **{name: pa.array(values, SCORES.field(name).type) for name, values in columns.items()},
        },
        schema=SCORE_COLUMNS,
    )
