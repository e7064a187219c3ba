"""What a detector is: its name and needs, its parameters, and the outcome of scoring one text.

What belongs here: types and the rules that hold for every detector. What does not: any one detector (its family's
module), and the list of them (registry.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from audit_pipeline.contracts import ScoreStatus
from audit_pipeline.detectors.statistics import TextStatistics
from audit_pipeline.errors import ConfigError

ParameterValue = bool | int | float | str
Settings = Mapping[str, ParameterValue]


class Need(StrEnum):
    """What a detector needs besides the text; declared, so that an audit's cost is known before it starts."""

    ONE_PASS = "one_pass"
    EXTRA_PASSES = "extra_passes"
    REFERENCE_MODEL = "reference_model"
    FREQUENCY_TABLE = "frequency_table"
    CALIBRATION_SET = "calibration_set"


class Outcome(NamedTuple):
    """A score (higher: more likely a member), or why there is none; a score is always a finite number."""

    score: float | None
    status: ScoreStatus
    reason: str | None

    @classmethod
    def of(cls, value: float) -> Outcome:
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


def canonical(value: ParameterValue) -> ParameterValue:
    """``value`` as contracts.canonical_json spells it: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Parameter:
    """One parameter of a detector. Its type is its default's; ``requirement`` says in words what ``accepts`` checks."""

    default: ParameterValue
    grid: tuple[ParameterValue, ...]
    description: str
    requirement: str
    accepts: Callable[[ParameterValue], bool]

    def parse(self, text: str) -> ParameterValue:
        """The value that ``text`` spells, in canonical form; raises ConfigError for another type or range."""
        try:
            return self.checked(_READERS[type(self.default)](text.strip()))
        except (ValueError, ConfigError):
            raise ConfigError(f"'{text}' is not {self.requirement}") from None

    def checked(self, value: ParameterValue) -> ParameterValue:
        """``value`` in canonical form; raises ConfigError where it has another type or is out of range."""
        if isinstance(self.default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(self.default) or not self.accepts(value):
            raise ConfigError(f"'{value}' is not {self.requirement}")
        return canonical(value)

    @property
    def values(self) -> tuple[ParameterValue, ...]:
        """The grid in canonical form, with the default in it, each value once."""
        values = dict.fromkeys(canonical(value) for value in self.grid)
        if canonical(self.default) not in values:
            return (canonical(self.default), *values)
        return tuple(values)


@dataclass(frozen=True)
class Detector:
    """A detector: what it is, what it needs and costs, and its score of one text under each of several settings.

    ``compute`` gets the statistics of a text with at least one scored token and returns one outcome a setting, in
    order; taking them all at once, it can share work between settings (a whole k grid costs one sort).
    """

    name: str
    summary: str
    source: str
    needs: frozenset[Need]
    cost: str
    compute: Callable[[TextStatistics, Sequence[Settings]], Sequence[Outcome]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def default(self) -> dict[str, ParameterValue]:
        """The default setting, in canonical form."""
        return {name: canonical(parameter.default) for name, parameter in self.parameters.items()}

    def score(self, statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
        """One outcome a setting; ``not_applicable`` where the text has no scored token."""
        if not len(statistics):
            return [Outcome.not_applicable("the text has no scored token")] * len(settings)
        return self.compute(statistics, settings)


def outcomes(values: Iterable[float]) -> list[Outcome]:
    """Each value as an outcome."""
    return [Outcome.of(value) for value in values]


def _read_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_READERS: Mapping[type, Callable[[str], ParameterValue]] = {bool: _read_bool, int: int, float: float, str: str}
