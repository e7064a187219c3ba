"""Several detectors as one: the mean of the text's ranks by each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, ParameterValue, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics, UnmetNeed
from audit_pipeline.tables import RANKED_AMONG_ALL

NAME = RANKED_AMONG_ALL

# Fixed before any result was seen; a benchmark names its own beforehand (`combined` in config/benchmarks.yaml).
DEFAULT = ("zlib", "min_k", "min_k_plus_plus", "gap_k")

RANKS: Need[Mapping[str, Sequence[float] | UnmetNeed]] = Need("ranks", "the benchmark's other texts")
"""For each list of detectors, as ``written``: the text's mid-rank by each of them, in (0, 1], or why it has none."""


def join_detector_names(names: Iterable[str]) -> str:
    """A list of detectors as the parameter ``of`` holds it."""
    return ",".join(names)


def split_detector_names(joined_names: str) -> list[str]:
    """The detectors of a list, as they were ``written``."""
    return joined_names.split(",")


def _combined(statistics: TextStatistics, setting: Settings) -> Outcome:
    ranks = statistics.of(RANKS)[str(setting["of"])]
    return (
        Outcome.not_applicable(ranks.reason)
        if isinstance(ranks, UnmetNeed)
        else Outcome.from_score(float(np.mean(ranks)))
    )


def _reads(setting: Settings) -> tuple[str, ...]:
    """What the listed detectors read, each at its default setting."""
    # The registry holds this module's detector, too.
    from audit_pipeline.detectors.registry import get_detector  # noqa: PLC0415

    found = (get_detector(name) for name in split_detector_names(str(setting["of"])))
    return tuple(dict.fromkeys(column for detector in found for column in detector.reads(detector.default)))


def _is_list(value: ParameterValue) -> bool:
    names = split_detector_names(str(value))
    return len(names) >= 2 and len(set(names)) == len(names) and all(name == name.strip() != "" for name in names)


COMBINED = Detector(
    name=NAME,
    title="Combined ranks",
    summary="mean of the text's ranks, among all texts of the benchmark, by each detector of a fixed list",
    source="this project: ranks averaged with equal weights (a Borda count)",
    needs=(RANKS,),
    passes="1",
    compute=for_each_setting(_combined),
    reads=_reads,
    parameters={
        "of": Parameter(
            default=join_detector_names(DEFAULT),
            grid=(join_detector_names(DEFAULT),),
            description="the detectors, each at its default setting; a benchmark's key `combined` names others",
            requirement="two or more detectors, each once, separated by commas without blanks",
            accepts=_is_list,
        )
    },
    equation=(
        "(1/D) Σ_d rank_d(x) / N over the D listed detectors, rank_d(x) the mid-rank of the text's score by d among the"
        " N distinct texts of the benchmark that all D score: 1 the lowest, N the highest, ties share their mean"
    ),
    reported=(
        "No paper: this combination is the project's own. How it behaves on texts that the model was not trained on"
        " stands in docs/statistics.md."
    ),
    also_reads=(
        "What the listed detectors read apart from membership. A score ranks a text among the texts of its"
        " benchmark: it is not comparable between benchmarks, and it changes where texts are added. A certified"
        " threshold of it is an approximation, since the ranks of calibration texts and of others hang together."
    ),
)
