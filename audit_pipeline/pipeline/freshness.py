"""What is out of date, and why: one rule for every product.

A product is current where the inputs that it would be made of now are those that it was made of. An input whose version
is not known is not compared. What is made of a product that is made first is made after it, as if that came out
different; the loop that carries steps out (dagster/run.py) plans again after each kind of product, so what came out the
same is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from audit_pipeline.pipeline.stage import Inputs, Product, Stage
from audit_pipeline.store.ledger import Entry, PairOutcome
from audit_pipeline.tables import Pair, PairStatus, digest


@dataclass(frozen=True)
class Facts:
    """What is known of a product.

    ``inputs``: what it would be made of now; ``recorded``: what it was made of, None where it is not there.
    ``problem``: why it cannot be made, or is unknown. ``damage``: what is wrong with what is there; ``failure``:
    why the last run gave it up.
    """

    inputs: Inputs = field(default_factory=dict)
    recorded: Inputs | None = None
    problem: str | None = None
    damage: str | None = None
    failure: PairOutcome | None = None


@dataclass(frozen=True)
class Step:
    """A product to make, and why."""

    stage: Stage
    partition: str
    because: str

    @property
    def product(self) -> Product:
        return Product(self.stage.name, self.partition)

    @property
    def pair(self) -> Pair:
        """The pair that it is of."""
        return parse_pair(self.partition)


@dataclass(frozen=True)
class Plan:
    """The steps, in an order in which they can be carried out, and why some products cannot be made."""

    steps: tuple[Step, ...]
    problems: Mapping[Product, str]

    def steps_of_stages(self, names: Iterable[str]) -> list[Step]:
        """The steps of stages, by their names."""
        wanted = {*names}
        return [step for step in self.steps if step.stage.name in wanted]

    def problems_of(self, stage: str) -> dict[str, str]:
        """Why partitions of a stage cannot be made."""
        return {product.partition: problem for product, problem in self.problems.items() if product.stage == stage}


def parse_pair(partition: str) -> Pair:
    """The pair of ``benchmark|model``."""
    benchmark, _, model = partition.partition("|")
    return Pair(benchmark, model)


def inputs_of_entry(entry: Entry) -> dict[str, str | None]:
    """What the ledger says that rows were made of."""
    return {
        **entry.upstream,
        "code": entry.code_version,
        "model": entry.model_fingerprint,
        "endpoint": entry.model_fingerprint,
        "tokenizer": entry.tokenizer_fingerprint,
        "settings": digest(dict(entry.settings)) if entry.settings else None,
    }


def plan_steps(
    stages: Sequence[Stage],
    wanted: Mapping[str, Sequence[str]],
    facts_of: Callable[[Product], Facts],
    again: Mapping[str, str] | None = None,
    left: Mapping[str, str] | None = None,
) -> Plan:
    """The steps that bring the wanted partitions of each stage up to date; inputs name products by :attr:`Stage.key`.

    ``stages``: each after those that it is made of, as the registry has them.
    ``again``: by a stage's name, why its wanted partitions are made whatever is there. ``left``: by a product's key,
    why it is left as it is, and all that is made of it. A product has no step where something that it is made of, and
    that it cannot go without, is neither there nor made first.
    """
    by_key = {stage.input_name: stage for stage in stages}
    steps: list[Step] = []
    problems: dict[Product, str] = {}
    first: dict[str, str] = {}
    blocked: dict[str, str] = {}
    for stage in stages:
        for partition in dict.fromkeys(wanted.get(stage.name, ())):
            product, key = Product(stage.name, partition), f"{stage.input_name}/{partition}"
            facts = facts_of(product)
            if key in (left or {}) and facts.problem is None and _explain(stage, facts, first) is None:
                # What is there holds: it only could not be made again.
                continue
            problem = (left or {}).get(key) or facts.problem or _find_obstacle(facts.inputs, by_key, first, blocked)
            if problem is not None:
                problems[product] = problem
                if not stage.is_optional:
                    blocked[key] = problem
                continue
            because = _explain(stage, facts, first) or (again or {}).get(stage.name)
            if because is not None:
                first[key] = stage.first.format(*partition.split("|"))
                steps.append(Step(stage, partition, because))
    return Plan(tuple(steps), problems)


def _find_obstacle(
    inputs: Inputs, stages: Mapping[str, Stage], first: Mapping[str, str], blocked: Mapping[str, str]
) -> str | None:
    """Why something that a product is made of cannot be had; None where all can."""
    for name, version in inputs.items():
        if name in blocked:
            return blocked[name]
        kind, _, partition = name.partition("/")
        stage = stages.get(kind)
        if version is None and stage is not None and not stage.is_optional and name not in first and partition:
            return f"{stage.name.replace('_', ' ')} {partition}: {stage.absent}"
    return None


def _explain(stage: Stage, facts: Facts, first: Mapping[str, str]) -> str | None:
    """Why a product is to be made; None where it is current."""
    if facts.failure is not None:
        return facts.failure.reason
    if facts.damage is not None:
        return facts.damage
    if facts.recorded is None:
        return stage.absent
    for name, version in facts.inputs.items():
        if name in first:
            return first[name]
        then = facts.recorded.get(name)
        if version and then and then != version:
            return _put_change_into_words(stage, name)
    return None


def _put_change_into_words(stage: Stage, name: str) -> str:
    kind, _, partition = name.partition("/")
    words = stage.words.get(kind) or _CHANGED.get(kind, "{} changed since")
    return words.format(partition.replace("|", " and ") or name)


_CHANGED = {
    "code": "the code that makes it changed since",
    "settings": "its settings changed since",
    "model": "the model's files changed since",
    "tokenizer": "the files of the model's tokenizer changed since",
    "endpoint": "the model's entry, or the model at its endpoint, changed since",
    "examples": "the benchmark was rebuilt since",
}
"""What is said of an input that changed, where its stage has no other words."""


@dataclass(frozen=True)
class PairState:
    """What became of a pair; ``outcome``: where a run gave it up after its latest audit."""

    status: PairStatus
    reason: str | None = None
    outcome: PairOutcome | None = None


def judge_pair(stages: Iterable[Stage], plan: Plan, facts_of: Callable[[Product], Facts], pair: Pair) -> PairState:
    """What became of a pair, by the plan of its stages: the first of them that is not up to date says it.

    A pair is missing until the first stage that concludes has made something of it.
    """
    of_pairs = [stage for stage in stages if stage.dimensions == ("benchmark", "model")]
    main = next(stage for stage in of_pairs if stage.concludes)
    steps = {step.stage.name: step for step in plan.steps if step.partition == pair.partition}
    found = {stage.name: facts_of(Product(stage.name, pair.partition)) for stage in of_pairs}
    has_conclusions = found[main.name].recorded is not None
    for stage in of_pairs:
        step, failure = steps.get(stage.name), found[stage.name].failure
        if step is not None and failure is not None:
            return PairState(failure.status, failure.reason, failure)
        reason = plan.problems.get(Product(stage.name, pair.partition)) or (None if step is None else step.because)
        if reason is not None:
            return PairState("stale" if has_conclusions else "missing", reason)
    return PairState("done")
