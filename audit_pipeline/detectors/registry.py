"""The registry of all detectors.

It finds them, turns a user's request into detectors and settings, and formats their descriptions for lists and docs.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline import detectors
from audit_pipeline.config.plugins import collect_by_name, merge_entry_points, require_string_fields
from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, ParameterValue, Settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics, list_need_summaries
from audit_pipeline.errors import ConfigError, to_one_line
from audit_pipeline.tables import MEASURED, SCORES, canonical_json

_MAX_ERROR_CHARACTERS = 200


def _find_detectors() -> dict[str, Detector]:
    """Find the detectors in all modules of this package. A new detector is found without an entry in a list."""
    names = [f"{detectors.__name__}.{module.name}" for module in pkgutil.iter_modules(detectors.__path__)]
    modules = (importlib.import_module(name) for name in names if name != __name__)
    return collect_by_name(
        modules,
        label="detectors",
        is_wanted=lambda detector: isinstance(detector, Detector),
        name_of=lambda detector: detector.name,
    )


def _adopt_plugin_detector(detector: Detector, origin: str) -> Detector:
    """Check a detector of another package and wrap its ``compute`` function.

    If the wrapped function raises an error, all outcomes of the text are failures whose reason names the detector and
    its package.

    Raises:
        TypeError: If a field of the detector has a wrong type, or an unknown column or requirement is named.
        ConfigError: If a parameter does not accept its own values.
    """

    def compute(statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
        try:
            computed = list(detector.compute(statistics, settings))
            if len(computed) != len(settings) or not all(isinstance(outcome, Outcome) for outcome in computed):
                raise TypeError(f"compute did not return a list of {len(settings)} Outcome objects")
        except Exception as error:  # noqa: BLE001 - the code of other packages may raise anything
            fault = f"{type(error).__name__}: {to_one_line(error)[:_MAX_ERROR_CHARACTERS]}"
            return [Outcome.failed(f"the detector {detector.name} of {origin} failed ({fault})")] * len(settings)
        return computed

    require_string_fields(detector, "summary", "source", "passes", "equation", "reported", "also_reads")
    for parameter in detector.parameters.values():
        for value in (parameter.default, *parameter.grid):
            parameter.validate(value)
    detector.to_json({})
    unknown_columns = {*detector.reads(detector.default)} - {column.name for column in MEASURED}
    wrong_needs = [need for need in (*detector.needs, *detector.optional_needs) if not isinstance(need, Need)]
    if unknown_columns or wrong_needs:
        unknown = ", ".join(map(str, [*sorted(unknown_columns), *wrong_needs]))
        raise TypeError(f"the detector reads unknown statistics or needs: {unknown}")
    return replace(detector, compute=compute)


_ALL = merge_entry_points(
    _find_detectors(), "corpus_audit.detectors", Detector, lambda detector: detector.name, _adopt_plugin_detector
)
REGISTRY: Mapping[str, Detector] = _ALL.by_name
ORIGINS: Mapping[str, str] = _ALL.origins
"""The package and version, such as ``package==1.0``, of each detector that an installed package provides."""

PLUGIN_PACKAGES: tuple[str, ...] = _ALL.packages_with_versions
"""The packages that provide detectors, with versions. If a version changes, stored scores are stale."""

ONE_PASS: Mapping[str, Detector] = {name: detector for name, detector in REGISTRY.items() if not detector.needs}
"""The detectors that need only the text's own pass."""

Overrides = Mapping[str, Settings]


def get_detector(name: str) -> Detector:
    """Return the detector with this name.

    Raises:
        ConfigError: If the name is unknown. The message suggests the most similar names.
    """
    if name not in REGISTRY:
        raise ConfigError(f"there is no detector '{name}'; {did_you_mean(name, REGISTRY)}")
    return REGISTRY[name]


def expand_settings(
    detector: Detector, grid: bool = False, overrides: Settings | None = None
) -> list[dict[str, ParameterValue]]:
    """Return the settings to score, with canonical values (0.3, not 0.30000000000000004).

    Args:
        detector: The detector to score.
        grid: True for every combination of the parameters' grids, False for the default setting.
        overrides: Fixed values of parameters. A grid varies only the other parameters.

    Raises:
        ConfigError: If the detector lacks a parameter in ``overrides`` or does not accept its value.
    """
    fixed: dict[str, ParameterValue] = {}
    for name, value in (overrides or {}).items():
        parameter = _require_parameter(detector, name)
        try:
            fixed[name] = parameter.validate(value)
        except ConfigError as error:
            raise ConfigError(f"{detector.name}.{name}: {error}") from None
    choices: list[tuple[ParameterValue, ...]] = []
    for name, parameter in detector.parameters.items():
        if name in fixed:
            choices.append((fixed[name],))
        elif grid:
            choices.append(parameter.values)
        else:
            choices.append((detector.default[name],))
    return [dict(zip(detector.parameters, values, strict=True)) for values in itertools.product(*choices)]


def deduplicate_settings(detector: Detector, settings: Iterable[Settings]) -> list[Settings]:
    """Return the settings without duplicates. Settings are duplicates if their labels (:meth:`to_json`) are equal."""
    return list({detector.to_json(setting): dict(setting) for setting in settings}.values())


def select_detectors(
    names: Iterable[str] | None = None, *, grid: bool = False, overrides: Overrides | None = None
) -> list[tuple[Detector, list[dict[str, ParameterValue]]]]:
    """Return detectors with their settings to score, in the order of ``names``, without duplicates.

    Args:
        names: The names of the detectors. None selects the detectors in ``overrides`` and all detectors that are scored
            without request.
        grid: True for every combination of the parameters' grids.
        overrides: Fixed values of parameters by detector.

    Raises:
        ConfigError: If a detector is unknown, no detector is selected, or ``overrides`` has another detector.
    """
    overrides = overrides or {}
    if names is None:
        names = [name for name, detector in REGISTRY.items() if not detector.on_request or name in overrides]
    chosen = {name: get_detector(name) for name in names}
    if not chosen:
        raise ConfigError(f"no detector is selected. The detectors are: {', '.join(REGISTRY)}.")
    for name in overrides:
        if get_detector(name).name not in chosen:
            raise ConfigError(
                f"a parameter of the detector '{name}' is set, but this detector is not selected. Select the detector "
                "or remove the parameter."
            )
    return [(detector, expand_settings(detector, grid, overrides.get(name))) for name, detector in chosen.items()]


def parse_overrides(assignments: Sequence[str]) -> dict[str, dict[str, ParameterValue]]:
    """Parse and check the values of the option --set: ``["min_k.k=0.3"]`` becomes ``{"min_k": {"k": 0.3}}``.

    Raises:
        ConfigError: If an assignment is malformed, a detector or parameter is unknown, a value is not accepted, or a
            parameter is set twice. The message quotes the assignment.
    """
    parsed: dict[str, dict[str, ParameterValue]] = {}
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        detector_name, dot, parameter_name = target.strip().partition(".")
        if not (equals and dot and detector_name and parameter_name):
            raise ConfigError(
                f"'{assignment}' does not have the form DETECTOR.PARAMETER=VALUE. An example is min_k.k=0.3."
            )
        detector = get_detector(detector_name)
        parameter = _require_parameter(detector, parameter_name)
        values = parsed.setdefault(detector_name, {})
        if parameter_name in values:
            raise ConfigError(
                f"{detector_name}.{parameter_name} is set twice. Set it once, or compute all values with --grid."
            )
        try:
            values[parameter_name] = parameter.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{detector_name}.{parameter_name}: {error}") from None
    return parsed


def is_default(detector_name: str, parameters: str, overrides: Overrides | None = None) -> bool:
    """Return True if ``parameters`` is the label of the default setting.

    Users may provide scores of a detector that is not in the registry. Such a detector has no parameters, so its
    default label is ``{}``.

    Args:
        detector_name: The name of the detector.
        parameters: The label of a setting.
        overrides: The defaults that a benchmark fixes, by detector.
    """
    if detector_name not in REGISTRY:
        return parameters == canonical_json({})
    detector = get_detector(detector_name)
    return parameters == detector.to_json({**detector.default, **(overrides or {}).get(detector_name, {})})


def mark_defaults(scores: pa.Table, overrides: Overrides | None = None) -> pa.Table:
    """Add the column ``is_default`` to a table of scores.

    Args:
        scores: A table with the columns detector and parameters.
        overrides: The defaults that the benchmark fixes.
    """
    # The labels are JSON without line breaks, so the last line break is the separator.
    joined = pc.binary_join_element_wise(scores["detector"], scores["parameters"], "\n").combine_chunks()
    settings = joined.dictionary_encode()
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


_WIDTH = 100


def collect_detector_facts(detector: Detector) -> dict[str, str]:
    """Return the one-line facts about a detector by their headings."""
    own_logprobs = "yes" if detector.own_logprobs_suffice else "no"
    scored = "only if you name it (--detectors, --set)" if detector.on_request else "in every audit"
    return {
        "source": detector.source,
        "needs": ", ".join(list_all_needs(detector)),
        "passes over a text": detector.passes,
        "own log-probabilities suffice": own_logprobs,
        "scored": scored,
    }


def collect_detector_prose(detector: Detector) -> dict[str, str]:
    """Return the longer descriptions of a detector by their headings."""
    return {"What is reported": detector.reported, "It also reads": detector.also_reads}


def format_as_text(detector: Detector) -> str:
    """Format the page of a detector for a terminal."""
    lines = [*_wrap_indented(f"{detector.name}: {detector.summary}", first_indent=""), ""]
    lines += _wrap_with_head("score", detector.equation)
    for head, fact in collect_detector_facts(detector).items():
        lines += _wrap_with_head(head, fact)
    for head, prose in collect_detector_prose(detector).items():
        lines += ["", *_wrap_with_head(head, prose)]
    lines += _iterate_parameter_lines(detector)
    return "\n".join(lines)


def list_all_needs(detector: Detector) -> list[str]:
    """Return the summaries of all data that a detector reads: first for every setting, then for some settings only."""
    optional = [f"for some settings: {need.summary}" for need in detector.optional_needs]
    return [*list_need_summaries(detector.needs), *optional]


def iterate_parameter_cells(detector: Detector) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Yield the name of each parameter and the cells of its table row: default, grid, accepted values and meaning."""
    for name, parameter in detector.parameters.items():
        swept = "the default only"
        if len(parameter.values) > 1:
            swept = ", ".join(map(_format_parameter_value, parameter.values))
        yield name, (_format_parameter_value(parameter.default), swept, parameter.requirement, parameter.description)


def _format_parameter_value(value: ParameterValue) -> str:
    """Format a value as ``--set`` accepts it."""
    return value if isinstance(value, str) else canonical_json(value)


def _iterate_parameter_lines(detector: Detector) -> Iterator[str]:
    for name, (default, swept, requirement, meaning) in iterate_parameter_cells(detector):
        yield ""
        yield from _wrap_indented(f"parameter {name}: default {default}; --grid: {swept}", first_indent="")
        yield from _wrap_indented(meaning)
        yield from _wrap_indented(f"accepts {requirement}")


def _wrap_with_head(head: str, text: str) -> list[str]:
    line = f"{head}: {text}"
    return [line] if len(line) <= _WIDTH else [f"{head}:", *_wrap_indented(text)]


def _wrap_indented(text: str, first_indent: str = "    ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first_indent, subsequent_indent="    ", break_on_hyphens=False)
