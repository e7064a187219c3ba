"""What is laid down before an evaluation: the options that a user asks for, and the headline detector.

What belongs here: the options of `corpus-audit evaluate` as one value with their defaults, as the settings of a lineage
row, and as a command; and one name or none for the headline, and why it. Plain Python, which the command line does not
wait for. What does not: the command itself (cli/), the evaluation (operate/evaluate_file.py), results (evaluation.py),
and what they allow to say (metrics/claims.py).

Of many detectors the best looks better than it is. So the first answer of a report, the highlighted texts and the rates
that are quoted are those of one detector at its default setting; the others are shown with it. Min-K%++ needs one pass
and no second model, and applies wherever the whole distribution is known. Of a user's own scores the user names the
detector; where none of several is named, there is no headline, and the conclusions allow for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit_pipeline.metrics.claims import Design

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
    """The options, with their defaults.

    ``file`` is the table as the user typed its path. ``out``: None, FILE_findings beside it. ``benchmark``: None, the
    file's name. ``design``: how the two sides came about (metrics/claims.py); None: selected, or unlabelled where
    no text is a member. ``headline``: the headline detector; None: see :func:`choose_headline_detector`.
    """

    file: Path
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
        return self.out or self.file.with_name(f"{self.file.stem}_findings")

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.benchmark or self.file.stem

    def settings(self) -> dict[str, object]:
        """Every option as JSON has it, under the command's name."""
        return {
            "command": COMMAND,
            "file": str(self.file),
            "out": None if self.out is None else str(self.out),
            "model": self.model,
            "benchmark": self.name,
            "design": self.design,
            "headline": self.headline,
            "language": self.language,
            "calibration": self.calibration,
            "seed": self.seed,
            "no_text": self.no_text,
        }


def build_evaluate_command(settings: Mapping[str, Any]) -> list[str]:
    """What is typed to do the same again: file, model, benchmark, and every option that is not at its default."""
    words = ["corpus-audit", COMMAND, "--scores", settings["file"]]
    words += ["--model", settings["model"], "--benchmark", settings["benchmark"]]
    for name, default in EvaluateOptions(Path()).settings().items():
        value = settings.get(name, default)
        if name in ("command", "file", "model", "benchmark") or value == default:
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return words
