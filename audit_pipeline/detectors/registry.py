"""Every detector by name, and the settings that a user asks for."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline import detectors
from audit_pipeline.config.plugins import collect_by_name, merge_entry_points, require_string_fields
from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, ParameterValue, Settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.errors import ConfigError, to_one_line
from audit_pipeline.tables import MEASURED, SCORES, canonical_json

_WORDS = 200


def _find_detectors() -> dict[str, Detector]:
    """Every detector that a module of this package holds, by module and place in it: a new one needs no entry here."""
    names = [f"{detectors.__name__}.{module.name}" for module in pkgutil.iter_modules(detectors.__path__)]
    modules = (importlib.import_module(name) for name in names if name != __name__)
    return collect_by_name(
        modules,
        label="detectors",
        is_wanted=lambda detector: isinstance(detector, Detector),
        name_of=lambda detector: detector.name,
    )


def _adopt(detector: Detector, origin: str) -> Detector:
    """A detector that another package brings: what it raises for a text is the text's reason, and names it.

    Raises whatever is wrong with what it declares.
    """

    def compute(statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
        try:
            found = list(detector.compute(statistics, settings))
            if len(found) != len(settings) or not all(isinstance(outcome, Outcome) for outcome in found):
                raise TypeError(f"compute returned no list of {len(settings)} Outcome")
        except Exception as error:  # noqa: BLE001 - what other people's code may raise is not known
            why = f"{type(error).__name__}: {to_one_line(error)[:_WORDS]}"
            return [Outcome.failed(f"the detector {detector.name} of {origin} failed ({why})")] * len(settings)
        return found

    require_string_fields(detector, "summary", "source", "passes", "equation", "reported", "also_reads")
    for parameter in detector.parameters.values():
        for value in (parameter.default, *parameter.grid):
            parameter.checked(value)
    detector.to_json({})
    unknown = {*detector.reads(detector.default)} - {column.name for column in MEASURED}
    wrong = [need for need in (*detector.needs, *detector.optional_needs) if not isinstance(need, Need)]
    if unknown or wrong:
        raise TypeError(f"there is no statistic or need {', '.join(map(str, [*sorted(unknown), *wrong]))}")
    return replace(detector, compute=compute)


_ALL = merge_entry_points(_find_detectors(), "corpus_audit.detectors", Detector, lambda detector: detector.name, _adopt)
REGISTRY: Mapping[str, Detector] = _ALL.found
ORIGINS: Mapping[str, str] = _ALL.origins
"""The package, as ``package==1.0``, of each detector that an installed package brings."""

BROUGHT_BY: tuple[str, ...] = _ALL.packages_with_versions
"""These packages: with another version of one of them, scores are others."""

ONE_PASS: Mapping[str, Detector] = {name: detector for name, detector in REGISTRY.items() if not detector.needs}
"""Those that read nothing but a text's own pass."""

Overrides = Mapping[str, Settings]


def get_detector(name: str) -> Detector:
    """The detector called ``name``; raises ConfigError, naming the nearest there are."""
    if name not in REGISTRY:
        raise ConfigError(f"there is no detector '{name}'; {did_you_mean(name, REGISTRY)}")
    return REGISTRY[name]


def expand_settings(
    detector: Detector, grid: bool = False, overrides: Settings | None = None
) -> list[dict[str, ParameterValue]]:
    """The settings to score: the default one, or with ``grid`` every combination of the parameters' grids.

    ``overrides`` fix parameters; a grid then sweeps the others. Values are canonical (0.3, not 0.30000000000000004).
    Raises ConfigError for a parameter that the detector does not have or a value that it does not take.
    """
    fixed: dict[str, ParameterValue] = {}
    for name, value in (overrides or {}).items():
        parameter = _require_parameter(detector, name)
        try:
            fixed[name] = parameter.checked(value)
        except ConfigError as error:
            raise ConfigError(f"{detector.name}.{name}: {error}") from None
    choices = [
        (fixed[name],) if name in fixed else parameter.values if grid else (detector.default[name],)
        for name, parameter in detector.parameters.items()
    ]
    return [dict(zip(detector.parameters, values, strict=True)) for values in itertools.product(*choices)]


def deduplicate_settings(detector: Detector, settings: Iterable[Settings]) -> list[Settings]:
    """``settings`` in order, those of one label once."""
    return list({detector.to_json(setting): dict(setting) for setting in settings}.values())


def select(
    names: Iterable[str] | None = None, *, grid: bool = False, overrides: Overrides | None = None
) -> list[tuple[Detector, list[dict[str, ParameterValue]]]]:
    """Each named detector with the settings to score, in the given order, each detector once.

    Where ``names`` is None, all that are not on request, and those that ``overrides`` name.

    Raises ConfigError for an unknown detector, and where ``overrides`` name one that is not among the chosen.
    """
    if names is None:
        names = [name for name, detector in REGISTRY.items() if not detector.on_request or name in (overrides or {})]
    chosen = {name: get_detector(name) for name in names}
    if not chosen:
        raise ConfigError(f"no detector is chosen; the detectors are: {', '.join(REGISTRY)}")
    for name in overrides or {}:
        if get_detector(name).name not in chosen:
            raise ConfigError(f"a parameter of '{name}' is set, but the detector is not among those chosen")
    return [
        (detector, expand_settings(detector, grid, (overrides or {}).get(name))) for name, detector in chosen.items()
    ]


def parse_overrides(assignments: Sequence[str]) -> dict[str, dict[str, ParameterValue]]:
    """``["min_k.k=0.3"]`` as ``{"min_k": {"k": 0.3}}``: the values of the option --set, typed and checked.

    Raises ConfigError, quoting the assignment, for another form, an unknown detector or parameter, a value of the
    wrong type or range, and a parameter that is set twice.
    """
    parsed: dict[str, dict[str, ParameterValue]] = {}
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        detector_name, dot, parameter_name = target.strip().partition(".")
        if not (equals and dot and detector_name and parameter_name):
            raise ConfigError(f"'{assignment}' is not of the form DETECTOR.PARAMETER=VALUE, such as min_k.k=0.3")
        detector = get_detector(detector_name)
        parameter = _require_parameter(detector, parameter_name)
        values = parsed.setdefault(detector_name, {})
        if parameter_name in values:
            raise ConfigError(f"{detector_name}.{parameter_name} is set twice; set it once, or use --grid for a sweep")
        try:
            values[parameter_name] = parameter.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{detector_name}.{parameter_name}: {error}") from None
    return parsed


def is_default(detector_name: str, parameters: str, overrides: Overrides | None = None) -> bool:
    """Whether ``parameters`` is the label of the default setting, with ``overrides`` (a benchmark's own) in it.

    A detector that is not one of ours, whose scores a user hands over, has no parameters: its default is ``{}``.
    """
    if detector_name not in REGISTRY:
        return parameters == canonical_json({})
    detector = get_detector(detector_name)
    return parameters == detector.to_json({**detector.default, **(overrides or {}).get(detector_name, {})})


def mark_defaults(scores: pa.Table, overrides: Overrides | None = None) -> pa.Table:
    """Return ``scores`` with the column ``is_default`` of SCORES.

    ``scores`` has the columns detector and parameters; ``overrides`` are the defaults that the benchmark fixes.
    """
    # Parameters are JSON on one line, so the last line break is the one put in here.
    named = pc.binary_join_element_wise(scores["detector"], scores["parameters"], "\n").combine_chunks()
    settings = named.dictionary_encode()
    pairs = (pair.rsplit("\n", 1) for pair in settings.dictionary.to_pylist())
    flags = [is_default(detector, parameters, overrides) for detector, parameters in pairs]
    return scores.append_column(SCORES.field("is_default"), pa.array(flags, pa.bool_()).take(settings.indices))


def _require_parameter(detector: Detector, name: str) -> Parameter:
    if not detector.parameters:
        raise ConfigError(f"detector '{detector.name}' has no parameters, so '{name}' cannot be set")
    if name not in detector.parameters:
        raise ConfigError(
            f"detector '{detector.name}' has no parameter '{name}'; {did_you_mean(name, detector.parameters)}"
        )
    return detector.parameters[name]
