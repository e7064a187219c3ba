"""What is laid down before an evaluation: the options that a user asks for, and the headline detector.

Of many detectors the best looks better than it is. So the first answer of a report, the highlighted texts and the rates
that are quoted are those of one detector at its default setting; the others are shown with it. Min-K%++ needs one pass
and no second model, and applies wherever the whole distribution is known. Of a user's own scores the user names the
detector; where none of several is named, there is no headline, and the conclusions allow for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from audit_pipeline.statistics.claims import Design

PREFERRED = ("min_k_plus_plus", "min_k", "loss")
"""In this order: the first that has scores. Min-K% and loss need the tokens' own log-probabilities alone."""


def choose_headline_detector(scored_detectors: Collection[str], named_detector: str | None = None) -> str | None:
    """The headline detector, out of those with a score of some text: ``named_detector`` where given, else the default.

    None where it has no score, and where none of several is named that are none of the three. A detector that is
    alone is the headline: there was nothing to choose from.
    """
    if named_detector is not None:
        return named_detector if named_detector in scored_detectors else None
    alone = next(iter(scored_detectors)) if len(set(scored_detectors)) == 1 else None
    return next((name for name in PREFERRED if name in scored_detectors), alone)


COMMAND = "evaluate"


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of an evaluation of scores.

    Attributes:
        scores: File with the columns score and label. The columns group, detector and text are used if present.
        texts: File that was scored, if the table has no texts. The blind control needs them.
        text_column: Column of the text in ``texts``. None: text, else input, else the only column.
        out: Folder for warehouse and report. None: FILE_findings, next to the file.
        model: Model name written to the findings.
        benchmark: Benchmark name written to the findings. None: the name of the file.
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
        """The folder that is written into."""
        return self.out or self.scores.with_name(f"{self.scores.stem}_findings")

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.benchmark or self.scores.stem

    def settings(self) -> dict[str, object]:
        """Return every option as JSON has it, under the command's name."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        paths = {name: str(value) for name, value in given.items() if isinstance(value, Path)}
        return {"command": COMMAND, **given, **paths, "benchmark": self.name}


def build_evaluate_command(settings: Mapping[str, Any]) -> list[str]:
    """What is typed to do the same again: file, model, benchmark, and every option that is not at its default."""
    words = ["corpus-audit", COMMAND, "--scores", settings["scores"]]
    words += ["--model", settings["model"], "--benchmark", settings["benchmark"]]
    for name, default in EvaluateOptions(Path()).settings().items():
        value = settings.get(name, default)
        if name in ("command", "scores", "model", "benchmark") or value == default:
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return words
