"""An audit as it is asked for, and its outcome.

What belongs here: the model, the benchmarks and the options of one audit, found by the names that a user gave, and what
came of each pair. What does not: which options there are (options.py), which steps an audit takes (freshness.py),
carrying them out (requests.py, dagster/audit.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit_pipeline.config.problems import Problem
from audit_pipeline.operate.options import AuditOptions

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.catalogue.contracts import Pair
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.models.config import ModelEntry

ALL = "all"


@dataclass(frozen=True)
class AuditRequest:
    """One model, some benchmarks and the options; ``problems`` are those of other entries of the configuration.

    ``leave_out``: a benchmark that cannot be built is left out, and the others go on. ``terminal``: progress bars are
    drawn.
    """

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    options: AuditOptions = field(default_factory=AuditOptions)
    problems: Sequence[Problem] = ()
    leave_out: bool = False
    terminal: bool = True

    @property
    def done_in_words(self) -> str:
        """That there is nothing to do, in words."""
        named = ", ".join(spec.name for spec in self.benchmarks)
        return f"{self.model.name} on {named}: everything is up to date, nothing is run"

    @property
    def resources(self) -> Mapping[str, Mapping[str, object]]:
        """The resources of a run of Dagster that runs the model."""
        return {
            "models": {"device": self.options.device, **self.options.chosen_engine.run_config},
            "progress": {"terminal": self.terminal},
        }


@dataclass(frozen=True)
class PassCounts:
    """How many texts of a pair were in the cache, and how many the model was run on."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """The outcome of an audit; ``benchmarks`` are those that were not left out.

    ``runs``: the runs that were needed, by what they made. ``passes``, ``not_run``: by pair, the counts of its pass, or
    why there was none. ``failed``: the error where some pairs met a fault and the others are done. ``not_made``: why
    what only some detectors need was not made. ``left_out``: the reason by benchmark. ``dead_runs``: those that were
    found and marked failed.
    """

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    runs: dict[str, str] = field(default_factory=dict)
    passes: dict[str, PassCounts] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: PairsFailedError | None = None
    not_made: dict[str, Exception] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    dead_runs: list[str] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        from audit_pipeline.catalogue.contracts import Pair  # noqa: PLC0415

        return [Pair(spec.name, self.model.name) for spec in self.benchmarks]


def audit_request(model: str, benchmark: str, options: AuditOptions) -> AuditRequest:
    """The request for the model and the benchmarks that a user named: one, a family, or all there are.

    Raises ConfigError or ModelError where there is none of that name, or its entry cannot be used.
    """
    from audit_pipeline.benchmarks.config import exclude_on_request  # noqa: PLC0415
    from audit_pipeline.models.config import resolve_model  # noqa: PLC0415
    from audit_pipeline.operate.whole_configuration import load_configuration  # noqa: PLC0415

    config = load_configuration()
    specs = (
        list(exclude_on_request(config.benchmarks).values()) if benchmark == ALL else config.benchmarks_named(benchmark)
    )
    entry = resolve_model(model, config.models)
    return AuditRequest(entry, specs, options, config.problems, leave_out=benchmark == ALL)
