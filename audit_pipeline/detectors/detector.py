"""The detector interface: parameters, needs and the score of a text under several settings."""

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
    """The result for one text and setting.

    Attributes:
        score: A finite number, or None. A higher score means that the text is more likely a member.
        status: `ok`, `not_applicable` or `failed`.
        reason: The reason if there is no score.
    """

    score: float | None
    status: ScoreStatus
    reason: str | None

    @classmethod
    def from_score(cls, value: float) -> Outcome:
        """Return the outcome of a score. If the value is not finite, it is a failure whose reason quotes the value."""
        value = float(value)
        if math.isfinite(value):
            return cls(value, "ok", None)
        return cls.failed(f"the score is not a finite number: {value}")

    @classmethod
    def not_applicable(cls, reason: str) -> Outcome:
        """Return the outcome for a text or setting that the detector does not apply to."""
        return cls(None, "not_applicable", reason)

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        """Return the outcome for a text whose score could not be computed."""
        return cls(None, "failed", reason)


Compute = Callable[[TextStatistics, Sequence[Settings]], Sequence[Outcome]]

UNKNOWN_LOGPROB = (
    "a token's log-probability is not a finite number: it is minus infinity, or the server that runs the model returns "
    "a placeholder or a minimum value instead"
)


def to_canonical_value(value: ParameterValue) -> ParameterValue:
    """Round a float to 12 significant digits, as ``tables.canonical_json`` does: 0.30000000000000004 becomes 0.3.

    Values of other types are returned unchanged.
    """
    return float(f"{value:.12g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Parameter:
    """A parameter of a detector. The type of the default is the type of the parameter.

    Attributes:
        default: The value of the default setting.
        grid: The values that are scored with the option ``--grid``.
        description: The meaning of the parameter, for the list of detectors.
        requirement: The accepted values as a phrase for error messages.
        accepts: A function that returns True if a value is accepted.
        quiet: True omits the parameter from the label of a setting if it has its default. Parameters of ablations are
            quiet, because their default is the published detector. (An ablation switches off a part of a detector.)
        passes_each: True if each value needs additional passes of the model. Audits then score only the default.
        spellings: Alternative spellings that users may write, mapped to the spelling that ``parse`` reads.
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
        """Parse a value that a user wrote, such as 0.3 in ``--set min_k.k=0.3``, and return its canonical form.

        Raises:
            ConfigError: If the text is not a value of this type, or if the value is not accepted.
        """
        stripped = text.strip()
        try:
            return self.validate(_READERS[type(self.default)](self.spellings.get(stripped, stripped)))
        except (ValueError, ConfigError):
            raise ConfigError(f"'{text}' is not {self.requirement}") from None

    def validate(self, value: ParameterValue) -> ParameterValue:
        """Check a value and return its canonical form.

        Raises:
            ConfigError: If the value has another type or is not accepted.
        """
        if isinstance(self.default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(self.default) or not self.accepts(value):
            raise ConfigError(f"'{value}' is not {self.requirement}")
        return to_canonical_value(value)

    @property
    def values(self) -> tuple[ParameterValue, ...]:
        """Return the distinct canonical values of the grid. If the default is missing in the grid, it comes first."""
        values = dict.fromkeys(to_canonical_value(value) for value in self.grid)
        if to_canonical_value(self.default) not in values:
            return (to_canonical_value(self.default), *values)
        return tuple(values)


@dataclass(frozen=True)
class Detector:
    """A detector: its parameters, its needs, its score and its description for docs/detectors.md.

    Attributes:
        name: The name in tables, options and files.
        summary: The score in one line.
        source: The paper and equation.
        passes: The number of model passes over each text, in words.
        compute: The function that computes the score. It receives the statistics of a text and all settings, and
            returns one outcome per setting, in order. It is only called for texts with at least one scored token for
            which all ``needs`` are met. It receives all settings at once, so that they can share work. For example,
            all values of k share one sort.
        equation: The score as a formula in plain text.
        reported: The results that the authors report, and their data.
        also_reads: Properties of a text other than membership that change the score.
        parameters: The parameters by name.
        needs: The data that every setting requires in addition to the statistics of the text's own pass (``Need``).
        optional_needs: The data that only some settings require. If it is missing, the other settings are still scored.
        on_request: True if the detector is scored only if the user names it.
        reads: A function that returns the columns of token statistics (names of ``tables.MEASURED``) that a setting
            reads. Log-probabilities and token ids are not listed. If the model's back end does not provide a column,
            the setting has no score.
        title: The name in tables of papers. If it is empty, ``name`` is used.
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
        """Return the default setting in canonical form."""
        return {name: to_canonical_value(parameter.default) for name, parameter in self.parameters.items()}

    @property
    def own_logprobs_suffice(self) -> bool:
        """Return True if the default setting can be scored from the log-probabilities of the text's tokens alone."""
        return not self.reads(self.default) and not any(need.statistics for need in self.needs)

    def to_json(self, setting: Settings) -> str:
        """Return the label of a setting: canonical JSON, as in the column ``parameters``.

        Missing parameters have their defaults. Quiet parameters are omitted if they have their defaults.
        """
        parameters = {}
        for name, value in {**self.default, **setting}.items():
            is_default = to_canonical_value(value) == self.default[name]
            if not (self.parameters[name].quiet and is_default):
                parameters[name] = value
        return canonical_json(parameters)

    def score(self, statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
        """Score a text under each setting. Missing parameters have their defaults.

        The outcome is ``not_applicable`` if the text has no scored token, or if data of ``needs`` is missing. It is
        ``failed`` if the log-probability of a token is not finite.
        """
        if not len(statistics):
            return [Outcome.not_applicable("the text has no scored token")] * len(settings)
        if not np.isfinite(statistics.logprob).all():
            return [Outcome.failed(UNKNOWN_LOGPROB)] * len(settings)
        for need in self.needs:
            reason = statistics.explain_unmet_need(need)
            if reason is not None:
                return [Outcome.not_applicable(reason)] * len(settings)
        complete = [{**self.default, **setting} for setting in settings]
        reasons = [statistics.explain_absent_columns(self.reads(setting)) for setting in complete]
        scorable = [setting for setting, reason in zip(complete, reasons, strict=True) if reason is None]
        computed = iter(self.compute(statistics, scorable) if scorable else ())
        scored = []
        for reason in reasons:
            scored.append(next(computed) if reason is None else Outcome.not_applicable(reason))
        return scored


def reads_columns(*columns: str) -> Callable[[Settings], tuple[str, ...]]:
    """Return a ``Detector.reads`` function for a detector that reads the same columns at every setting."""
    return lambda _: columns


def boolean_parameter(description: str) -> Parameter:
    """Return a true-or-false parameter for an ablation. True is the published detector. ``--grid`` ignores it."""
    return Parameter(True, (True,), description, "true or false", lambda value: isinstance(value, bool), quiet=True)


def by_group(
    settings: Sequence[Settings],
    shared: Sequence[str],
    compute: Callable[[Settings, Sequence[Settings]], Sequence[Outcome]],
) -> list[Outcome]:
    """Compute the outcomes of settings that share work, and return them in the order of ``settings``.

    Settings with the same values of the ``shared`` parameters form a group, and ``compute`` is called once per group.

    Args:
        settings: The settings to score.
        shared: The names of the parameters that define a group.
        compute: A function of two arguments: one setting of the group, which has the shared values, and a list of all
            settings of the group.
    """
    groups: dict[tuple[ParameterValue, ...], list[int]] = {}
    for index, setting in enumerate(settings):
        groups.setdefault(tuple(setting[name] for name in shared), []).append(index)
    computed: dict[int, Outcome] = {}
    for indices in groups.values():
        group = [settings[index] for index in indices]
        computed.update(zip(indices, compute(group[0], group), strict=True))
    return [computed[index] for index in range(len(settings))]


def outcomes(values: Iterable[float]) -> list[Outcome]:
    """Convert scores to outcomes. A score that is not finite becomes a failure."""
    return [Outcome.from_score(value) for value in values]


def for_all_settings(score: Callable[[TextStatistics], Outcome]) -> Compute:
    """Return a ``Detector.compute`` function that calls ``score`` once per text and repeats its outcome per setting."""
    return lambda statistics, settings: [score(statistics)] * len(settings)


def for_each_setting(score: Callable[[TextStatistics, Settings], Outcome]) -> Compute:
    """Return a ``Detector.compute`` function that calls ``score`` separately for each setting."""
    return lambda statistics, settings: [score(statistics, setting) for setting in settings]


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _read_bool(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text.lower()]


_READERS: Mapping[type, Callable[[str], ParameterValue]] = {bool: _read_bool, int: int, float: float, str: str}


COLUMNS = ("example_id", "detector", "parameters", "score", "status", "reason")
SCORE_COLUMNS = pa.schema([SCORES.field(name) for name in COLUMNS])
"""The columns of SCORES that scoring fills. The caller adds model, benchmark, overrides and run_id."""

_MISSING = Outcome.failed("there are no token statistics for the text. Run the model on the text first.")


def score_texts(
    texts: Iterable[tuple[str, TextStatistics | None]], selection: Sequence[tuple[Detector, Sequence[Settings]]]
) -> pa.Table:
    """Score texts by every setting of every detector.

    Args:
        texts: The example_id and the statistics of each text. A text without statistics (None) has the status
            ``failed``. No text is dropped.
        selection: The detectors and settings, as ``registry.select_detectors`` returns them.

    Returns:
        A table with the columns ``SCORE_COLUMNS`` and one row per text, detector and setting, in the order of
        ``texts``.
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
        # The values are appended to columns immediately. Hundreds of thousands of row objects would slow down Python's
        # garbage collector.
        for index, values in enumerate(columns.values()):
            values.extend([row[index] for row in rows])
    text_of_row = pa.array(np.repeat(np.arange(len(example_ids)), len(labels)))
    label_of_row = pa.array(np.tile(np.arange(len(labels)), len(example_ids)))
    detector_names = pa.array([name for name, _ in labels], pa.string())
    parameters = pa.array([label for _, label in labels], pa.string())
    arrays = {
        "example_id": pa.array(example_ids, pa.string()).take(text_of_row),
        "detector": detector_names.take(label_of_row),
        "parameters": parameters.take(label_of_row),
    }
    for name, values in columns.items():
        arrays[name] = pa.array(values, SCORES.field(name).type)
    return pa.table(arrays, schema=SCORE_COLUMNS)
