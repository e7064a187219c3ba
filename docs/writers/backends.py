"""The tables of docs/backends.md: the statistics of each back end, and the detectors that they support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from pydantic import ValidationError

from audit_pipeline.detectors.detector import Detector, Settings
from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.models.server_settings import DIALECT_TRAITS, DialectName, Endpoint
from audit_pipeline.tables import KINDS
from docs.writers.markdown import format_markdown_table

_YES = "yes"
_NO = "no"
# The numbers of most likely tokens that an endpoint may return.
_BEST = (0, 1, 2, 5, 10, 20, 40)
_DIALECTS: Mapping[str, tuple[DialectName, bool]] = {
    f"openai: {dialect}{' with moments' if moments else ''}": (dialect, moments)
    for dialect, traits in DIALECT_TRAITS.items()
    for moments in ((False, True) if traits.has_plugin else (False,))
}
_STATISTICS = tuple(dict.fromkeys([*(name for kind in KINDS.values() for name in kind.statistics), "branches"]))


def format_backend_tables(detectors: Sequence[Detector]) -> str:
    """Return the tables of statistics and of detectors, each with its heading."""
    head = ["transformers", *_DIALECTS]
    statistics = [[f"`{name}`", *_format_support_row([name])] for name in _STATISTICS]
    rows = [[f"[{each.name}](detectors.md#{each.name})", *_format_detector_cells(each)] for each in detectors]
    return "\n\n".join(
        [
            "### Statistics of every token",
            format_markdown_table(["statistic", *head], statistics),
            "### Detectors",
            format_markdown_table(["detector", *head], rows),
        ]
    )


def _format_detector_cells(detector: Detector) -> Iterator[str]:
    """Yield a cell per back end for the default setting, or a note if only other settings can be scored."""
    settings = [
        setting for each, own in select_detectors([detector.name], grid=True) if each is detector for setting in own
    ]
    by_default = _format_support_row(_list_required_statistics(detector, detector.default))
    by_any = _format_support_row(*(_list_required_statistics(detector, setting) for setting in settings))
    for default, other in zip(by_default, by_any, strict=True):
        if default == _NO and other != _NO:
            yield "other settings" if other == _YES else f"other settings, {other}"
        else:
            yield default


def _list_required_statistics(detector: Detector, setting: Settings) -> Collection[str]:
    """Return the statistics of every token that a detector and its needs read."""
    reads = detector.reads({**detector.default, **setting})
    # No declaration assigns optional needs to settings. They belong to the settings that read nothing else.
    needs = (*detector.needs, *(() if reads else detector.optional_needs))
    return {"logprob", *reads, *(name for need in needs for name in need.statistics)}


def _format_support_row(*wanted: Collection[str]) -> list[str]:
    """Return a cell per back end: whether it supports all statistics of any of ``wanted``."""

    def is_sufficient(gives: Collection[str]) -> bool:
        return any(all(name in gives for name in names) for names in wanted)

    return [_YES, *(_format_minimum_top_tokens(is_sufficient, *dialect) for dialect in _DIALECTS.values())]


def _format_minimum_top_tokens(
    is_sufficient: Callable[[Collection[str]], bool], dialect: DialectName, moments: bool
) -> str:
    """Return the minimum number of best tokens with which an endpoint suffices, as a cell."""
    for best in _BEST:
        try:
            endpoint = Endpoint(
                url="http://localhost/v1", model="any", dialect=dialect, top_logprobs=best, moments=moments
            )
        except ValidationError:
            # Such an entry is invalid.
            continue
        if is_sufficient(endpoint.available_statistics):
            return f"N ≥ {best}" if best else _YES
    return _NO
