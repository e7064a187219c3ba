"""An audit as a user asks for it, from the command line or from Python.

What belongs here: what can be asked, which model and benchmarks were named, and bringing them up to date. What does
not: reading options and showing findings (cli/, corpus_audit/), and which steps that takes (plan.py).

Heavy packages are imported where they are needed, so that an audit with nothing to do answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.data_folder import require_writable
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.config.problems import Problem
from audit_pipeline.endpoints.limits import Limits

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.cluster.engine import Engine
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.dagster.audit import AuditOutcome

ALL = "all"


@dataclass(frozen=True)
class AuditOptions:
    """What is asked of an audit beside its model and benchmarks."""

    refresh: bool = False
    again: bool = False
    device: str | None = None
    engine: Engine | None = None
    kinds: tuple[Any, ...] = ("base",)
    logits_budget_gb: float | None = None
    limits: Limits = field(default_factory=Limits)
    publish: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked that is done whatever is there."""
        return not (self.refresh or self.again) and self.kinds == ("base",)


@dataclass(frozen=True)
class NamedPairs:
    """The model and the benchmarks that a user named; ``problems`` are those of other entries of the configuration.

    ``leave_out``: a benchmark that cannot be built is left out, and the others go on.
    """

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    problems: Sequence[Problem]
    leave_out: bool

    @property
    def done_in_words(self) -> str:
        """That there is nothing to do, in words."""
        named = ", ".join(spec.name for spec in self.benchmarks)
        return f"{self.model.name} on {named}: everything is up to date, nothing is run"


@dataclass(frozen=True)
class Audited:
    """What an audit came to: the benchmarks that were not left out, and the error where some pairs met a fault and the
    others are done. ``outcome`` is None where nothing was run."""

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    failed: PairsFailedError | None = None
    outcome: AuditOutcome | None = None

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(spec.name, self.model.name) for spec in self.benchmarks]


def named_pairs(model: str, benchmark: str) -> NamedPairs:
    """The model, and the benchmarks that a user named: one, a family, or all there are.

    Raises ConfigError or ModelError where there is none of that name, or its entry cannot be used.
    """
    from audit_pipeline.benchmarks.config import standing  # noqa: PLC0415
    from audit_pipeline.models.config import resolve_model  # noqa: PLC0415
    from audit_pipeline.operate.configuration import load_configuration  # noqa: PLC0415

    config = load_configuration()
    specs = list(standing(config.benchmarks).values()) if benchmark == ALL else config.benchmarks_named(benchmark)
    return NamedPairs(resolve_model(model, config.models), specs, config.problems, benchmark == ALL)


def audit_as_asked(
    named: NamedPairs,
    options: AuditOptions,
    definitions: Callable[[], dg.Definitions],
    on_step: Callable[[str], None],
) -> Audited:
    """Bring the pairs up to date, in this process; nothing is run, and no heavy package imported, where they are.

    Bars are drawn where progress can be (console.draws). Raises what a user can act on; a pair that met a fault does
    not stop the others, and is told of in the result.
    """
    from audit_pipeline.operate.situation import steps_at_a_glance  # noqa: PLC0415

    entry, specs, paths = named.model, named.benchmarks, DataPaths.from_environment()
    if options.is_plain and steps_at_a_glance(entry, specs, paths, publish=options.publish) == ():
        on_step(named.done_in_words)
        return Audited(entry, specs)
    require_writable(paths.root)

    loaded = definitions()
    from audit_pipeline.operate.dagster.audit import AuditRequest  # noqa: PLC0415
    from audit_pipeline.operate.dagster.audit import audit as run_audit  # noqa: PLC0415

    request = AuditRequest(entry.name, specs, **vars(options), terminal=True, leave_out=named.leave_out)
    outcome = run_audit(request, loaded, paths, on_step)
    if not outcome.runs and not outcome.failed and not outcome.left_out:
        on_step(named.done_in_words)
    left = [spec for spec in specs if spec.name not in outcome.left_out]
    return Audited(entry, left, outcome.failed, outcome)
