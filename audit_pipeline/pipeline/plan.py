"""The plan of an audit: which products are out of date, and why. The rule is the same for every product.

A product is current if its inputs have the versions that it was made of. Unknown versions are not compared. If an input
is planned to be made, the products that depend on it are planned, too, as if the input changed. The loop that executes
the steps (dagster/runs.py) plans again before each kind of product. So a product is not rebuilt if its rebuilt
input has the same version as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from audit_pipeline.config.entries import Entries
from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline.stage import BENCHMARK, PAIR, SOURCE, Product, Stage
from audit_pipeline.pipeline.stage_settings import StageEntry, is_stage_requested, load_stage_entries
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState, get_recorded_inputs
from audit_pipeline.store.ledger import is_latest_file_whole
from audit_pipeline.store.ledger_records import PairOutcome
from audit_pipeline.tables import Pair, PairStatus, digest, parse_pair


@dataclass(frozen=True)
class ProductState:
    """The state of a product.

    Attributes:
        inputs: The versions that it would be made of now.
        recorded: The versions that it was made of, or None if it is missing.
        problem: The reason why it cannot be made, or why its inputs are unknown. None if there is no problem.
        damage: A description of the damage to its files, or None if they are intact.
        failure: The outcome of the last run, if that run failed to make the product or skipped it.
    """

    inputs: Inputs = field(default_factory=dict)
    recorded: Inputs | None = None
    problem: str | None = None
    damage: str | None = None
    failure: PairOutcome | None = None


@dataclass(frozen=True)
class Step:
    """A step of a plan: the product to make (a partition of a stage), and the reason."""

    stage: Stage
    partition: str
    reason: str

    @property
    def product(self) -> Product:
        """Return the product that the step makes."""
        return Product(self.stage.name, self.partition)

    @property
    def pair(self) -> Pair:
        """Return the pair that the partition names. The stage must have one partition per pair."""
        return parse_pair(self.partition)


@dataclass(frozen=True)
class AuditPlan:
    """The steps of an audit.

    Attributes:
        steps: The steps in an order in which they can be executed.
        problems: The reasons why products cannot be made.
    """

    steps: tuple[Step, ...]
    problems: Mapping[Product, str]

    def select_steps(self, names: Iterable[str]) -> list[Step]:
        """Return the steps of the stages with these names."""
        wanted = set(names)
        return [step for step in self.steps if step.stage.name in wanted]

    def problems_of(self, stage: str) -> dict[str, str]:
        """Return the reasons why partitions of a stage cannot be made."""
        return {product.partition: problem for product, problem in self.problems.items() if product.stage == stage}


class Planner:
    """The planner of a workspace, which finds the products that are out of date.

    Args:
        state: The workspace. It is read once, so create a new planner after a change.
        stages: All declared stages. Each stage comes after the stages that it depends on.
    """

    def __init__(self, state: WorkspaceState, stages: Sequence[Stage]) -> None:
        self.state = state
        self.stages = tuple(stages)
        self._by_name = {stage.name: stage for stage in stages}

    @property
    def stage_entries(self) -> Entries[StageEntry]:
        """Return the entries of config/stages.yaml."""
        return self.state.read_once("stage entries", partial(load_stage_entries, self.stages, self.state.config))

    def plan(
        self,
        scope: Scope,
        stages: Iterable[Stage] | None = None,
        again: Mapping[str, str] | None = None,
        left_alone: Mapping[str, str] | None = None,
    ) -> AuditPlan:
        """Return the steps that bring a scope up to date (see :func:`plan_steps`).

        Args:
            scope: The products to bring up to date.
            stages: The stages to plan. By default all.
            again: Replaces the scope's ``again``: the reasons for making current products again, by stage.
            left_alone: Products that are not made, with the reasons (see :func:`plan_steps`).
        """
        planned = self.stages
        if stages is not None:
            planned = tuple(stages)
        if again is None:
            again = scope.again
        wanted = {stage.name: tuple(self.list_partitions(stage, scope)) for stage in planned}
        return plan_steps(planned, wanted, self.get_product_state, again, left_alone)

    def get_product_state(self, product: Product) -> ProductState:
        """Return the state of a product."""
        stage = self._by_name[product.stage]
        return self.state.read_once(("product", product), lambda: self._read_product_state(stage, product.partition))

    def has_inputs(self, product: Product) -> bool:
        """Return whether all inputs of a product exist, except inputs that the same run can make first.

        A benchmark that failed a blocking check counts as missing.
        """
        stage = self._by_name[product.stage]
        if stage.dimensions == PAIR and not self.state.is_fit(parse_pair(product.partition).benchmark):
            return False
        # Stages with the same dimensions are made by the same run.
        other_stages = {other.input_name: other for other in self.stages if other.dimensions != stage.dimensions}
        try:
            inputs = stage.get_inputs(product.partition, self.state)
        except AuditError:
            return False
        return _find_obstacle(inputs, other_stages, {}, {}) is None

    def list_partitions(self, stage: Stage, scope: Scope) -> Iterable[str]:
        """Return the partitions of a stage that an audit of the scope makes."""
        if stage.list_partitions is not None:
            return stage.list_partitions(scope, self.state)
        names: list[str] = []
        if stage.dimensions == SOURCE:
            names = list(self.list_sources(scope))
        elif stage.dimensions == PAIR:
            names = [pair.partition for pair in scope.pairs]
        elif stage.dimensions == BENCHMARK:
            names = list(scope.benchmarks)
        if stage.is_on_request:
            return [name for name in names if is_stage_requested(stage, name, self.stage_entries)]
        return names

    def list_sources(self, scope: Scope) -> Iterator[str]:
        """Yield the sources that the scope names, and the sources that stages need for the scope."""
        yield from scope.sources
        for stage in self.stages:
            if stage.list_sources is not None:
                yield from stage.list_sources(scope, self.state)

    def explain_sources(self, scope: Scope) -> Mapping[str, str]:
        """Return the reasons for fetching sources that the scope does not name, by source."""
        purposes: dict[str, str] = {}
        for stage in self.stages:
            if stage.list_sources is None or not stage.sources_purpose:
                continue
            for source in stage.list_sources(scope, self.state):
                if source not in scope.sources:
                    purposes[source] = stage.sources_purpose
        return purposes

    def _read_product_state(self, stage: Stage, partition: str) -> ProductState:
        state = self.state
        is_whole = state.is_whole or partial(is_latest_file_whole, state.paths)
        damage = None
        for table in stage.tables:
            if table.append_only and not is_whole(table.name, partition):
                damage = f"a file of its {stage.name.replace('_', ' ')} is damaged or missing"
        failure = self._find_failure(stage, partition)
        recorded = self._read_recorded_inputs(stage, partition)
        try:
            inputs: dict[str, str | None] = {"code": stage.code_version}
            if stage.is_on_request:
                stage_entry = self.stage_entries.get(stage.name)
                inputs["settings"] = None
                if stage_entry is not None and stage_entry.options:
                    inputs["settings"] = digest(dict(stage_entry.options))
            return ProductState({**inputs, **stage.get_inputs(partition, state)}, recorded, None, damage, failure)
        except AuditError as error:
            return ProductState({}, recorded, str(error), damage, failure)

    def _read_recorded_inputs(self, stage: Stage, partition: str) -> Inputs | None:
        if stage.get_recorded is not None:
            return stage.get_recorded(partition, self.state)
        if not stage.tables:
            return None
        entry = self.state.find_latest_entry(stage.input_name, partition)
        if entry is None:
            return None
        return get_recorded_inputs(entry)

    def _find_failure(self, stage: Stage, partition: str) -> PairOutcome | None:
        """Return the last failure of a pair at a stage, or None if a later product supersedes it.

        If the stage has no files for the pair, failures of the stages that depend on it count, too. A newer product of
        the stage, or of a stage that depends on it, supersedes a failure.
        """
        if stage.dimensions != PAIR:
            return None
        pair = parse_pair(partition)
        has_no_files = all(table.file_of(self.state.paths, partition) is None for table in stage.tables)
        names = [stage.name]
        if has_no_files:
            names += [below.name for below in self.stages if stage.name in below.deps]
        for name in names:
            outcome = self.state.outcomes.get((pair, name))
            if outcome is not None and not self._has_newer_entry(name, partition, outcome):
                return outcome
        return None

    def _has_newer_entry(self, stage_name: str, partition: str, outcome: PairOutcome) -> bool:
        """Return whether a stage, or a stage that depends on it, wrote the partition after an outcome."""
        for stage in self.stages:
            if stage.name != stage_name and stage_name not in stage.deps:
                continue
            for table in stage.tables:
                entries = self.state.ledger.list_entries(table.name, partition)
                if any(entry.finished_at >= outcome.at for entry in entries):
                    return True
        return False


def plan_steps(
    stages: Sequence[Stage],
    wanted: Mapping[str, Sequence[str]],
    get_product_state: Callable[[Product], ProductState],
    again: Mapping[str, str] | None = None,
    left_alone: Mapping[str, str] | None = None,
) -> AuditPlan:
    """Return the steps that bring the wanted partitions of each stage up to date.

    A product has no step if one of its inputs is missing and no earlier step makes the input. Inputs name products by
    :attr:`Stage.input_name`.

    Args:
        stages: The stages. Each stage comes after the stages that it depends on.
        wanted: The partitions by the stage's name.
        get_product_state: Returns the state of a product.
        again: The reason for making a stage's wanted partitions even if they are current, by the stage's name.
        left_alone: The reason for not making a product and everything that depends on it, by the product's input name.
    """
    repeated = again or {}
    skipped = left_alone or {}
    by_input_name = {stage.input_name: stage for stage in stages}
    steps: list[Step] = []
    problems: dict[Product, str] = {}
    made_first: dict[str, str] = {}
    blocked: dict[str, str] = {}
    for stage in stages:
        for partition in dict.fromkeys(wanted.get(stage.name, ())):
            product = Product(stage.name, partition)
            name = f"{stage.input_name}/{partition}"
            state = get_product_state(product)
            reason = _explain_step(stage, state, made_first)
            if name in skipped and state.problem is None and reason is None:
                # The existing product is current, and only an attempt to make it again failed. So dependent products
                # can be made.
                continue
            problem = skipped.get(name) or state.problem
            problem = problem or _find_obstacle(state.inputs, by_input_name, made_first, blocked)
            if problem is not None:
                problems[product] = problem
                if not stage.is_optional:
                    blocked[name] = problem
                continue
            reason = reason or repeated.get(stage.name)
            if reason is not None:
                made_first[name] = stage.blocked_message.format(*partition.split("|"))
                steps.append(Step(stage, partition, reason))
    return AuditPlan(tuple(steps), problems)


def _find_obstacle(
    inputs: Inputs, stages: Mapping[str, Stage], made_first: Mapping[str, str], blocked: Mapping[str, str]
) -> str | None:
    """Return why an input of a product is not available, or None if all inputs are available."""
    for name, version in inputs.items():
        if name in blocked:
            return blocked[name]
        if version is not None or name in made_first:
            continue
        kind, _, partition = name.partition("/")
        stage = stages.get(kind)
        if stage is not None and not stage.is_optional and partition:
            return f"{stage.name.replace('_', ' ')} {partition}: {stage.missing_message}"
    return None


def _explain_step(stage: Stage, state: ProductState, made_first: Mapping[str, str]) -> str | None:
    """Return the reason for making a product, or None if it is current."""
    if state.failure is not None:
        return state.failure.reason
    if state.damage is not None:
        return state.damage
    if state.recorded is None:
        return stage.missing_message
    for name, version in state.inputs.items():
        if name in made_first:
            return made_first[name]
        recorded_version = state.recorded.get(name)
        if version and recorded_version and recorded_version != version:
            return describe_change(stage, name)
    return None


def describe_change(stage: Stage, name: str) -> str:
    """Return the reason for making a product again after its input ``name`` changed."""
    kind, _, partition = name.partition("/")
    message = stage.change_messages.get(kind) or _CHANGE_MESSAGES.get(kind, "{} changed")
    return message.format(partition.replace("|", " and ") or name)


_CHANGE_MESSAGES = {
    "code": "the code that computes it changed",
    "settings": "its settings changed",
    "model": "the model's files changed",
    "tokenizer": "the files of the model's tokenizer changed",
    "endpoint": "the model's entry, or the model at its endpoint, changed",
    "examples": "the benchmark was rebuilt",
}
"""The default reasons why a product is out of date, by changed input. A stage's change_messages override them."""


@dataclass(frozen=True)
class PairState:
    """The state of a pair.

    Attributes:
        status: The status.
        reason: The reason for the status, or None if the pair is done.
        outcome: The outcome of a run that failed or skipped the pair after its latest audit.
    """

    status: PairStatus
    reason: str | None = None
    outcome: PairOutcome | None = None


def find_pair_state(
    stages: Iterable[Stage], plan: AuditPlan, get_product_state: Callable[[Product], ProductState], pair: Pair
) -> PairState:
    """Return the state of a pair: the state of its first stage that is not current.

    A pair is missing until its main stage, the first stage with findings, has made a product.
    """
    of_pairs = [stage for stage in stages if stage.dimensions == PAIR]
    main = next(stage for stage in of_pairs if stage.has_findings)
    steps = {step.stage.name: step for step in plan.steps if step.partition == pair.partition}
    status: PairStatus = "stale"
    if get_product_state(Product(main.name, pair.partition)).recorded is None:
        status = "missing"
    for stage in of_pairs:
        product = Product(stage.name, pair.partition)
        step = steps.get(stage.name)
        failure = get_product_state(product).failure
        if step is not None and failure is not None:
            return PairState(failure.status, failure.reason, failure)
        reason = plan.problems.get(product)
        if reason is None and step is not None:
            reason = step.reason
        if reason is not None:
            return PairState(status, reason)
    return PairState("done")
