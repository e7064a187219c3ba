"""Options of an evaluation, and the choice of its headline detector.

The best of many detectors looks better than it is. The headline detector is therefore one detector at its default
setting, chosen before any result is seen. Reports show its answer first and quote its rates. The other detectors are
shown below it. Min-K%++ is the default, because it needs a single pass and no second model. It needs the whole
distribution of the next token. Users who evaluate scores of their own name the headline detector. If they name none of
several detectors, the conclusions are corrected for the number of detectors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from audit_pipeline.statistics.claims import Design

PREFERRED = ("min_k_plus_plus", "min_k", "loss")
"""Default headline detectors, in this order. Min-K% and loss only need the log-probabilities of the text's tokens."""


def choose_headline_detector(scored_detectors: Collection[str], named_detector: str | None = None) -> str | None:
    """Choose the headline detector.

    Args:
        scored_detectors: Detectors with a score of at least one text.
        named_detector: Detector that the user named.

    Returns:
        The named detector if it has scores. If no detector is named: the first default detector with scores, or else
        the only detector with scores. None if there is no such detector.
    """
    if named_detector is not None:
        return named_detector if named_detector in scored_detectors else None
    for name in PREFERRED:
        if name in scored_detectors:
            return name
    return next(iter(scored_detectors)) if len(set(scored_detectors)) == 1 else None


COMMAND = "evaluate"


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of an evaluation of scores.

    Attributes:
        scores: File with the columns score and label. The columns group, detector and text are used if present.
        texts: File with the scored texts, if ``scores`` has no texts. The blind control needs them.
        text_column: Column of the text in ``texts``. None: text, else input, else the only column.
        out: Folder for warehouse and report. None: a folder next to ``scores``, named after it with ``_findings``.
        model: Model name written to the findings.
        benchmark: Benchmark name written to the findings. None: the name of the file ``scores`` without suffix.
        design: How members and non-members were chosen. None: unstated, or unlabelled if no text is a member.
        headline: Headline detector, named before any result is seen. None: see :func:`choose_headline_detector`.
        language: Language of the texts, as ISO 639-1.
        calibration: Share of the labelled groups that is used to choose thresholds.
        seed: Seed for choosing the calibration groups.
        no_text: Quote no text in the report and the warehouse.
    """

    scores: Path
    texts: Path | None = None
    text_column: str | None = None
    out: Path | None = None
    model: str = "a model"
    benchmark: str | None = None
    design: Design | None = None
    headline: str | None = None
    language: str = "en"
    calibration: float = 0.5
    seed: int = 0
    no_text: bool = False

    @property
    def folder(self) -> Path:
        """Return the folder of the findings."""
        return self.out or self.scores.with_name(f"{self.scores.stem}_findings")

    @property
    def name(self) -> str:
        """Return the name of the benchmark."""
        return self.benchmark or self.scores.stem

    def settings(self) -> dict[str, object]:
        """Return all options as JSON values, with the name of the command."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        paths = {name: str(value) for name, value in values.items() if isinstance(value, Path)}
        return {"command": COMMAND, **values, **paths, "benchmark": self.name}


def build_evaluate_command(settings: Mapping[str, Any]) -> list[str]:
    """Return the command line that repeats an evaluation. Options with their default values are omitted."""
    words = ["corpus-audit", COMMAND, "--scores", settings["scores"]]
    words += ["--model", settings["model"], "--benchmark", settings["benchmark"]]
    for name, default in EvaluateOptions(Path()).settings().items():
        value = settings.get(name, default)
        if name in ("command", "scores", "model", "benchmark") or value == default:
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return words
