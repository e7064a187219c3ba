"""What a user asks of `corpus-audit evaluate`: its options and their defaults, as they are kept, and typed again.

What belongs here: the options as one value, as the settings of a lineage row, and as a command. What does not: the
command itself (cli/), the evaluation (operate/evaluate_file.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The command line reads the defaults, and waits for no statistics.
    from audit_pipeline.metrics.claims import Design

COMMAND = "evaluate"


@dataclass(frozen=True)
class EvaluateOptions:
    """The options, with their defaults.

    ``file`` is the table as the user typed its path. ``out``: None, FILE_findings beside it. ``benchmark``: None, the
    file's name. ``design``: how the two sides came about (metrics/claims.py); None: selected, or unlabelled where
    no text is a member. ``headline``: the headline detector; None: see evidence/headline.py.
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


def command_of(settings: Mapping[str, Any]) -> list[str]:
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
