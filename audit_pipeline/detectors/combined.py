"""Combined ranks: the mean of a text's ranks by several detectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, ParameterValue, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics, UnmetNeed
from audit_pipeline.tables import RANKED_AMONG_ALL

NAME = RANKED_AMONG_ALL

# The default list was fixed before any result was seen. A benchmark's entry can fix another list (key `combined`).
DEFAULT = ("zlib", "min_k", "min_k_plus_plus", "gap_k")

RANKS: Need[Mapping[str, Sequence[float] | UnmetNeed]] = Need("ranks", "the benchmark's other texts")
"""The ranks of the text among the benchmark's texts, by list of detectors.

The keys are lists of detectors, as :func:`join_detector_names` returns them. A value contains one mid-rank in (0, 1]
per detector of the list, or the reason why the text has no ranks."""


def join_detector_names(names: Iterable[str]) -> str:
    """Join the names of detectors to a value of the parameter ``of``."""
    return ",".join(names)


def split_detector_names(joined_names: str) -> list[str]:
    """Split a value of the parameter ``of`` into the names of detectors."""
    return joined_names.split(",")


def _score_mean_rank(statistics: TextStatistics, setting: Settings) -> Outcome:
    ranks = statistics.get_extra(RANKS)[str(setting["of"])]
    if isinstance(ranks, UnmetNeed):
        return Outcome.not_applicable(ranks.reason)
    return Outcome.from_score(float(np.mean(ranks)))


def _list_read_columns(setting: Settings) -> tuple[str, ...]:
    """Return the columns that the listed detectors read at their default settings."""
    # The registry imports this module, so a module-level import would be circular.
    from audit_pipeline.detectors.registry import get_detector  # noqa: PLC0415

    columns: list[str] = []
    for name in split_detector_names(str(setting["of"])):
        detector = get_detector(name)
        columns += detector.reads(detector.default)
    return tuple(dict.fromkeys(columns))


def _is_detector_list(value: ParameterValue) -> bool:
    names = split_detector_names(str(value))
    has_clean_names = all(name == name.strip() != "" for name in names)
    return len(names) >= 2 and len(set(names)) == len(names) and has_clean_names


COMBINED = Detector(
    name=NAME,
    title="Combined ranks",
    summary="mean of the text's ranks, among all texts of the benchmark, by each detector of a fixed list",
    source="this project: ranks averaged with equal weights (a Borda count)",
    needs=(RANKS,),
    passes="1",
    compute=for_each_setting(_score_mean_rank),
    reads=_list_read_columns,
    parameters={
        "of": Parameter(
            default=join_detector_names(DEFAULT),
            grid=(join_detector_names(DEFAULT),),
            description="the detectors, each at its default setting; a benchmark's key `combined` names others",
            requirement="two or more detectors, each once, separated by commas without blanks",
            accepts=_is_detector_list,
        )
    },
    equation=(
        "(1/D) Σ_d rank_d(x) / N over the D listed detectors; rank_d(x) is the mid-rank of the text's score by d among"
        " the N distinct texts of the benchmark that all D detectors score: 1 is the lowest, N the highest, ties share"
        " their mean"
    ),
    reported=(
        "No paper: this combination is the project's own. docs/statistics.md reports its behaviour on texts that the"
        " model was not trained on."
    ),
    also_reads=(
        "What the listed detectors read apart from membership. A score ranks a text among the texts of its"
        " benchmark: it is not comparable between benchmarks, and it changes if texts are added. A certified"
        " threshold is an approximation, because the ranks of calibration texts and of other texts are dependent."
    ),
)
