"""The plan on made-up stages: exactly the changed products and the products downstream, in any order of the stages."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.pipeline.plan import AuditPlan, ProductState, find_pair_state, plan_steps
from audit_pipeline.pipeline.stage import Product, Stage, StageJob, StageResult
from audit_pipeline.pipeline.workspace_state import UNKNOWN, Inputs
from audit_pipeline.store.ledger_records import PairOutcome
from audit_pipeline.tables import Pair

JOB = StageJob("job", "", "")
PAIR = ("benchmark", "model")


def stage(name: str, dimensions: tuple[str, ...], *deps: str, **fields: Any) -> Stage:
    return Stage(
        name=name,
        description="",
        dimensions=dimensions,
        group="4_findings",
        job=JOB,
        make=lambda run: StageResult(),
        deps=deps,
        **fields,
    )


SOURCES = stage("source", ("source",), blocked_message="the source {} is fetched first", missing_message="not fetched")
EXAMPLES = stage(
    "examples", ("benchmark",), "source", change_messages={"entry": "its entry changed since it was built"}
)
COUNTS = stage("counts", ("model",), "source", is_optional=True)
PASSES = stage("passes", PAIR, "examples", has_findings=False, missing_message="never audited")
SCORES = stage("scores", PAIR, "passes", "counts", has_findings=False, missing_message="run, not scored")
FINDINGS = stage(
    "findings",
    PAIR,
    "scores",
    missing_message="scored, not evaluated",
    change_messages={"scores": "scored again"},
)
SEARCH = stage("search", PAIR, "examples", "findings", missing_message="not searched")
STAGES = (SOURCES, EXAMPLES, COUNTS, PASSES, SCORES, FINDINGS, SEARCH)
WANTED = {
    "source": ("s1", "s2"),
    "examples": ("b1", "b2"),
    "counts": ("m",),
    "passes": ("b1|m", "b2|m"),
    "scores": ("b1|m", "b2|m"),
    "findings": ("b1|m", "b2|m"),
    "search": ("b1|m",),
}
PAIRS = (Pair("b1", "m"), Pair("b2", "m"))
MADE_OF = {
    "examples/b1": ("source/s1",),
    "examples/b2": ("source/s1", "source/s2"),
    "counts/m": ("source/s2",),
    **{f"passes/{pair.partition}": (f"examples/{pair.benchmark}",) for pair in PAIRS},
    **{f"scores/{pair.partition}": (f"passes/{pair.partition}", "counts/m") for pair in PAIRS},
    **{f"findings/{pair.partition}": (f"scores/{pair.partition}",) for pair in PAIRS},
    "search/b1|m": ("examples/b1",),
}
GIVEN = ("source/s1", "source/s2", "examples/b1", "examples/b2", "passes/b1|m", "scores/b1|m", "search/b1|m")
"""The products with an entry, files or code that can change."""
EVERY = tuple(f"{name}/{partition}" for name, partitions in WANTED.items() for partition in partitions)


@dataclass
class World:
    """The versions of inputs and products, and the recorded inputs of each product."""

    given: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GIVEN, 1))
    made: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, dict[str, str | None]] = field(default_factory=dict)
    failures: dict[str, PairOutcome] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)

    def inputs(self, product: str) -> Inputs:
        own = {"entry": str(self.given[product])} if product in self.given else {}
        return {**{name: self.made.get(name) for name in MADE_OF.get(product, ())}, **own}

    def get_product_state(self, product: Product) -> ProductState:
        name = str(product)
        return ProductState(
            self.inputs(name),
            self.recorded.get(name),
            self.problems.get(name),
            "a file is damaged" if name in self.damaged else None,
            self.failures.get(name),
        )

    def make(self, product: str) -> None:
        inputs = dict(self.inputs(product))
        self.recorded[product] = inputs
        self.made[product] = f"{product} of {sorted(inputs.items(), key=str)}"
        self.failures.pop(product, None)
        self.damaged.discard(product)

    def plan(self, **options: dict[str, str]) -> AuditPlan:
        return plan_steps(STAGES, WANTED, self.get_product_state, **options)


def named(found: AuditPlan) -> set[str]:
    return {str(step.product) for step in found.steps}


def below(products: Iterable[str]) -> set[str]:
    """Return the products and all products downstream."""
    found, left = set[str](), list(products)
    while left:
        if (product := left.pop()) not in found:
            found.add(product)
            left += [name for name, inputs in MADE_OF.items() if product in inputs]
    return found


def finished() -> World:
    world = World()
    for step in world.plan().steps:
        world.make(str(step.product))
    assert world.plan() == AuditPlan((), {})
    return world


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a world in which some products are made, and some are changed, lost, damaged or failed."""
    world = World()
    for _ in range(draw(st.integers(0, 3))):
        steps = world.plan().steps
        for step in steps[: draw(st.integers(0, len(steps)))]:
            world.make(str(step.product))
        for change in draw(st.lists(st.sampled_from(GIVEN), max_size=2)):
            # Back and forth: what is changed back is what it was.
            world.given[change] = 3 - world.given[change]
        for lost in draw(st.lists(st.sampled_from(EVERY), max_size=2)):
            world.made.pop(lost, None)
            world.recorded.pop(lost, None)
        world.damaged |= set(draw(st.lists(st.sampled_from(EVERY), max_size=1)))
        for product in draw(st.lists(st.sampled_from([name for name in EVERY if "|" in name]), max_size=1)):
            world.failures[product] = failure(product)
    return world


def failure(product: str, reason: str = "no memory") -> PairOutcome:
    name, _, partition = product.partition("/")
    return PairOutcome(Pair(*partition.split("|")), name, "failed", reason, "run", datetime(2026, 3, 1, tzinfo=UTC))


@max_examples(200)
@given(worlds())
def test_after_a_plan_is_carried_out_nothing_is_left_to_do(world: World) -> None:
    for step in world.plan().steps:
        world.make(str(step.product))
    assert world.plan() == AuditPlan((), {})
    assert {find_pair_state(STAGES, world.plan(), world.get_product_state, pair).status for pair in PAIRS} == {"done"}


@max_examples(200)
@given(worlds())
def test_looking_again_after_each_step_finds_nothing_that_was_not_planned(world: World) -> None:
    planned = named(world.plan())
    while steps := world.plan().steps:
        assert named(world.plan()) <= planned
        world.make(str(steps[0].product))


@pytest.mark.parametrize("change", GIVEN)
def test_a_changed_input_yields_exactly_the_steps_below_it(change: str) -> None:
    world = finished()
    world.given[change] += 1
    assert named(world.plan()) == below([change])


@max_examples(100)
@given(st.sets(st.sampled_from(GIVEN)), st.sets(st.sampled_from(EVERY)))
def test_changes_and_losses_yield_the_steps_below_each(changes: set[str], lost: set[str]) -> None:
    world = finished()
    for change in changes:
        world.given[change] += 1
    for product in lost:
        del world.recorded[product], world.made[product]
    assert named(world.plan()) == below(changes | lost)


@max_examples(100)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_partitions_does_not_matter(world: World, shuffled: random.Random) -> None:
    wanted = {name: shuffled.sample(partitions, len(partitions)) for name, partitions in WANTED.items()}
    assert named(plan_steps(STAGES, wanted, world.get_product_state)) == named(world.plan())


def test_an_unchanged_version_stops_the_rebuild() -> None:
    world = finished()
    again = {"source": "a new fetch was requested"}
    assert named(world.plan(again=again)) == below(["source/s1", "source/s2"])
    world.make("source/s1")
    world.make("source/s2")
    assert world.plan() == AuditPlan((), {})


def test_the_reason_is_the_first_input_that_differs_and_what_is_made_first_says_so() -> None:
    world = finished()
    world.given["examples/b1"] += 1
    reasons = {str(step.product): step.reason for step in world.plan().steps}
    assert reasons["examples/b1"] == "its entry changed since it was built"
    assert reasons["passes/b1|m"] == "b1 is made first"
    world.given["source/s1"] += 1
    reasons = {str(step.product): step.reason for step in world.plan().steps}
    assert (reasons["source/s1"], reasons["examples/b1"]) == ("entry changed", "the source s1 is fetched first")
    world = finished()
    world.recorded["findings/b1|m"]["scores/b1|m"] = "of earlier scores"
    [step] = world.plan().steps
    assert (step.stage.name, step.pair, step.reason) == ("findings", PAIRS[0], "scored again")


@pytest.mark.parametrize("version", [None, UNKNOWN])
def test_unknown_versions_are_not_compared(version: str | None) -> None:
    inputs = {"model": version, "examples/b1": UNKNOWN, "code": "2"}
    facts = ProductState(inputs, {"model": "m1", "examples/b1": "of before"})
    assert plan_steps([PASSES], {"passes": ["b1|m"]}, lambda product: facts).steps == ()
    other = replace(facts, recorded={"code": "1"})
    assert plan_steps([PASSES], {"passes": ["b1|m"]}, lambda product: other).steps != ()


def test_a_problem_stops_only_the_products_downstream() -> None:
    world = World(problems={"source/s2": "s2 is not configured"})
    found = world.plan()
    assert not {name for name in named(found) if "b2" in name or "s2" in name}
    assert "findings/b1|m" in named(found), "what is optional stops nothing"
    assert found.problems_of("examples") == {"b2": "s2 is not configured"}
    assert found.problems_of("findings") == {"b2|m": "s2 is not configured"}
    assert found.problems_of("counts") == {"m": "s2 is not configured"}
    left = plan_steps(STAGES, WANTED, World().get_product_state, left_alone={"source/s1": "no route to host"})
    assert named(left) == {"source/s2", "counts/m"}
    alone = plan_steps([PASSES], {"passes": ["b1|m"]}, World().get_product_state)
    assert named(alone) == {"passes/b1|m"}, "of a stage that is not asked about nothing is known"
    pair_stages = plan_steps([EXAMPLES, PASSES], {"passes": ["b1|m"]}, World().get_product_state)
    assert pair_stages.problems_of("passes") == {"b1|m": "examples b1: it is missing"}


def test_the_state_of_a_pair_is_that_of_its_first_stage_that_is_not_up_to_date() -> None:
    def state(world: World) -> tuple[str, str | None]:
        judged = find_pair_state(STAGES, world.plan(), world.get_product_state, PAIRS[0])
        return judged.status, judged.reason

    world = finished()
    assert state(world) == ("done", None)
    world.given["search/b1|m"] += 1
    assert state(world) == ("stale", "entry changed")
    world.damaged.add("scores/b1|m")
    assert state(world) == ("stale", "a file is damaged")
    world.failures["findings/b1|m"] = failure("findings/b1|m")
    assert state(world) == ("stale", "a file is damaged"), "what comes before decides"
    world.damaged.clear()
    assert state(world) == ("failed", "no memory")
    world.make("findings/b1|m")
    world.make("search/b1|m")
    assert state(world) == ("done", None)
    del world.recorded["findings/b1|m"]
    assert state(world) == ("missing", "scored, not evaluated")
    assert state(World(problems={"source/s1": "gone"})) == ("missing", "gone")
