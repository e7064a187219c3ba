"""The planner on made-up worlds: what it says is missing is exactly what is, in whatever order it is told."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.catalogue.contracts import Pair, digest
from audit_pipeline.catalogue.ledger import PairOutcome
from audit_pipeline.operate.facts import (
    EXTRACTION,
    OF_PAIRS,
    BenchmarkFacts,
    ControlFacts,
    Conventions,
    FrequencyFacts,
    ModelFacts,
    PairFacts,
    PlannedStep,
    PlanRequest,
    PublishedFacts,
    Situation,
    SourceFacts,
    SplitFacts,
    WrittenRows,
)
from audit_pipeline.operate.plan import (
    assume_benchmarks_current,
    find_benchmark_problems,
    is_as_configured,
    plan,
    state_of,
)

DAY = datetime(2026, 3, 1, tzinfo=UTC)
PUBLISHED = "warehouse and report"
KINDS = ("fetch", "train", "build", "assess", "count", *OF_PAIRS, "publish")

# --- a world: what may be changed, what is made of what, and a twin of everything that carries steps out ---

SOURCES = ("s1", "s2")
CONTROL, CORPUS = "c", "k"
BENCHMARKS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "b1": (("s1",), None),
    "b2": (("s1", "s2"), None),
    "bc": ((), CONTROL),
}
PAIRS = (Pair("b1", "m1"), Pair("b2", "m1"), Pair("bc", "mc"))
"""m1 is a model like any other, with a corpus whose documents are those of s2; mc is a model of the control."""
SEARCHED = "b1"
"""The benchmark whose documents an audit searches."""
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "source s1": (("fetch", "s1"),),
    "source s2": (("fetch", "s2"),),
    "control c": (("train", "c"),),
    "entry b1": (("build", "b1"),),
    "entry b2": (("build", "b2"),),
    "entry bc": (("build", "bc"),),
    "corpus k": (("count", "k|m1"),),
    # The tokens of another tokenizer have not been counted.
    "files m1": (("count", "k|m1"), ("run", "b1|m1"), ("extract", "b1|m1"), ("run", "b2|m1")),
    "start token m1": (("run", "b1|m1"), ("extract", "b1|m1"), ("run", "b2|m1")),
    "reference m1": (("run", "b1|m1"), ("extract", "b1|m1"), ("run", "b2|m1")),
    "code split_quality": (("assess", "b1"), ("assess", "b2"), ("assess", "bc")),
    "code scores": (("score", "b1|m1"), ("score", "b2|m1"), ("score", "bc|mc")),
    "code evaluations": (("evaluate", "b1|m1"), ("evaluate", "b2|m1"), ("evaluate", "bc|mc")),
    "code extraction": (("extract", "b1|m1"),),
    "configuration": (("publish", PUBLISHED),),
}
"""What can be changed, and the steps that are right below it."""
BELOW: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("fetch", "s1"): (("train", "c"), ("build", "b1"), ("build", "b2")),
    ("fetch", "s2"): (("build", "b2"), ("count", "k|m1")),
    ("train", "c"): (("build", "bc"), ("run", "bc|mc")),
    ("build", "b1"): (("assess", "b1"), ("run", "b1|m1"), ("extract", "b1|m1")),
    ("build", "b2"): (("assess", "b2"), ("run", "b2|m1")),
    ("build", "bc"): (("assess", "bc"), ("run", "bc|mc")),
    **{("assess", pair.benchmark): (("evaluate", pair.partition), ("publish", PUBLISHED)) for pair in PAIRS},
    ("count", "k|m1"): (("score", "b1|m1"), ("score", "b2|m1")),
    **{("run", pair.partition): (("score", pair.partition),) for pair in PAIRS},
    **{("score", pair.partition): (("evaluate", pair.partition),) for pair in PAIRS},
    **{("evaluate", pair.partition): (("publish", PUBLISHED),) for pair in PAIRS},
    ("extract", "b1|m1"): (("publish", PUBLISHED),),
}


def below(steps: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The steps, and all that are made of what they make."""
    found: set[tuple[str, str]] = set()
    left = list(steps)
    while left:
        step = left.pop()
        if step not in found:
            found.add(step)
            left += BELOW.get(step, ())
    return found


@dataclass
class World:
    """Versions of all that may be changed; of what is made, the version; the token statistics that were ever computed;
    the latest rows of each pair; the clock."""

    given: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANGES, 0))
    made: dict[tuple[str, str], str] = field(default_factory=dict)
    splits: dict[str, SplitFacts] = field(default_factory=dict)
    cache: set[tuple[str, str]] = field(default_factory=set)
    rows: dict[tuple[str, str], WrittenRows] = field(default_factory=dict)
    outcomes: dict[str, PairOutcome] = field(default_factory=dict)
    published: PublishedFacts = field(default_factory=PublishedFacts)
    hour: int = 0

    def version(self, what: str, *made_of: tuple[str, str]) -> str | None:
        """What would be made now; None where something that it is made of is not there."""
        if any(one not in self.made for one in made_of):
            return None
        return digest(what, self.given[what], *(self.made[one] for one in made_of))[:8]

    def of_benchmark(self, name: str) -> str | None:
        sources, control = BENCHMARKS[name]
        made_of = [*(("fetch", source) for source in sources), *([("train", control)] if control else [])]
        return self.version(f"entry {name}", *made_of)

    def files(self, model: str) -> str | None:
        return str(self.given["files m1"]) if model == "m1" else self.made.get(("train", CONTROL))

    def table(self, model: str) -> tuple[str, str]:
        return ("count", f"{CORPUS} of {self.files(model)}")

    def conventions(self, pair: Pair) -> Conventions:
        files, built = self.files(pair.model), self.made.get(("build", pair.benchmark))
        own = pair.model == "m1"
        counted = self.made.get(self.table(pair.model)) if own else None
        return Conventions(
            files,
            files,
            None if files is None or built is None else digest(files, built, own and self.given["start token m1"]),
            (("reference_model/r", str(self.given["reference m1"])),) if own else (),
            (("token_frequencies/k", counted),) if counted else (),
        )

    def situation(self) -> Situation:
        frequencies = FrequencyFacts(
            CORPUS, str(self.version("corpus k", ("fetch", "s2"))), self.made.get(self.table("m1")), "s2"
        )
        return Situation(
            sources={
                name: SourceFacts(str(self.version(f"source {name}")), self.made.get(("fetch", name)))
                for name in SOURCES
            },
            controls={
                CONTROL: ControlFacts(
                    self.version("control c", ("fetch", "s1")), self.made.get(("train", CONTROL)), ("s1",)
                )
            },
            benchmarks={
                name: BenchmarkFacts(
                    self.of_benchmark(name),
                    self.made.get(("build", name)),
                    sources,
                    control,
                    split=self.splits.get(name, SplitFacts()),
                    extraction=str(self.given["code extraction"]) if name == SEARCHED else None,
                )
                for name, (sources, control) in BENCHMARKS.items()
            },
            models={"m1": ModelFacts(frequencies=frequencies), "mc": ModelFacts(CONTROL)},
            audits={
                pair: PairFacts(
                    self.conventions(pair),
                    self.rows.get(("score", pair.partition)),
                    self.rows.get(("evaluate", pair.partition)),
                    self.rows.get(("extract", pair.partition)),
                    self.outcomes.get(pair.partition),
                )
                for pair in PAIRS
            },
            published=replace(self.published, wanted={"configuration": self.given["configuration"]}),
            code={name: str(self.given[f"code {name}"]) for name in ("split_quality", "scores", "evaluations")},
        )

    def carry_out(self, step: PlannedStep) -> None:
        """Make what the step makes, of what there is now; what it is made of has to be there."""
        self.hour += 1
        if step.kind == "publish":
            runs = frozenset(one.run_id for (kind, _), one in self.rows.items() if kind != "score")
            runs |= {split.run_id for split in self.splits.values()}
            self.published = PublishedFacts(
                there={"configuration": self.given["configuration"]}, runs=runs, at=self.now
            )
        elif step.kind in OF_PAIRS:
            self._audit(step)
        elif step.kind == "assess":
            built, code = self.made["build", step.what], str(self.given["code split_quality"])
            versions = (("split_quality", digest(built, code)),)
            self.splits[step.what] = SplitFacts(built, code, versions, f"run {self.hour}")
        else:
            now = {
                "fetch": lambda: self.version(f"source {step.what}"),
                "train": lambda: self.version("control c", ("fetch", "s1")),
                "build": lambda: self.of_benchmark(step.what),
                "count": lambda: self.version("corpus k", ("fetch", "s2")),
            }[step.kind]()
            assert now is not None, f"{step} comes before what it is made of"
            self.made[self.table("m1") if step.kind == "count" else (step.kind, step.what)] = now

    def _audit(self, step: PlannedStep) -> None:
        pair, run = step.pair, f"run {self.hour}"
        now, built = self.conventions(pair), self.made[("build", pair.benchmark)]
        assert now.statistics is not None
        if step.kind == "run":
            # Kept by content: what was computed once stays.
            self.cache.add((step.what, now.statistics))
            return
        if step.kind == "extract":
            assert pair.benchmark == SEARCHED, "nobody asked for it"
            code = str(self.given["code extraction"])
            self.rows["extract", step.what] = WrittenRows(run, self.now, code, built, now, run)
            return
        assert (step.what, now.statistics) in self.cache, "the model was run on this, in this way"
        scores = self.rows.get(("score", step.what))
        if step.kind == "score":
            code = str(self.given["code scores"])
            self.rows["score", step.what] = WrittenRows(run, self.now, code, built, now, digest(built, str(now), code))
            return
        assert scores is not None
        assert (scores.benchmark, scores.conventions) == (built, now), "the scores are of this"
        code = str(self.given["code evaluations"])
        split = self.splits[pair.benchmark]
        assert split.benchmark == built, "the split is that of this"
        self.rows["evaluate", step.what] = WrittenRows(
            run, self.now, code, built, now, run, scores.version, split.versions
        )

    @property
    def now(self) -> datetime:
        return DAY + timedelta(hours=self.hour)

    def fail(self, pair: Pair) -> None:
        self.hour += 1
        self.outcomes[pair.partition] = PairOutcome(pair, "scores", "failed", "no memory", f"run {self.hour}", self.now)


ALL = PlanRequest(pairs=PAIRS, publish=True)


def finished() -> World:
    """A world in which all is up to date."""
    world = World()
    for step in plan(world.situation(), ALL):
        world.carry_out(step)
    assert plan(world.situation(), ALL) == ()
    return world


def named(steps: Iterable[PlannedStep]) -> set[tuple[str, str]]:
    return {(step.kind, step.what) for step in steps}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any world on the way: some of it made, some of it changed, lost or failed since."""
    world = World()
    for _ in range(draw(st.integers(0, 3))):
        steps = plan(world.situation(), ALL)
        for step in steps[: draw(st.integers(0, len(steps)))]:
            world.carry_out(step)
        for change in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=2)):
            # Back and forth: what is changed back is what it was.
            world.given[change] = (world.given[change] + 1) % 2
        for lost in draw(st.lists(st.sampled_from(sorted(world.made)), max_size=1)) if world.made else ():
            del world.made[lost]
        for lost in draw(st.lists(st.sampled_from(sorted(world.rows)), max_size=1)) if world.rows else ():
            del world.rows[lost]
        for name in draw(st.lists(st.sampled_from(sorted(world.splits)), max_size=1)) if world.splits else ():
            del world.splits[name]
        for pair in draw(st.lists(st.sampled_from(PAIRS), max_size=1)):
            world.fail(pair)
    return world


# --- what holds of every world ---


@max_examples(200)
@given(worlds())
def test_after_a_plan_is_carried_out_nothing_is_left_to_do(world: World) -> None:
    for step in plan(world.situation(), ALL):
        world.carry_out(step)
    assert plan(world.situation(), ALL) == ()
    assert {state_of(pair, world.situation()).status for pair in PAIRS} == {"done"}


@max_examples(200)
@given(worlds())
def test_looking_again_after_each_step_finds_nothing_that_was_not_planned(world: World) -> None:
    planned = named(plan(world.situation(), ALL))
    while steps := plan(world.situation(), ALL):
        assert named(steps) <= planned
        # A pair's steps are one run.
        together = [step for step in steps if step.what == steps[0].what]
        for step in together:
            world.carry_out(step)
        planned -= named(together)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_input_yields_exactly_the_steps_below_it(change: str) -> None:
    world = finished()
    world.given[change] += 1
    assert named(plan(world.situation(), ALL)) == below(CHANGES[change])


@max_examples(100)
@given(st.sets(st.sampled_from(sorted(CHANGES))))
def test_several_changes_yield_the_steps_below_each(changes: set[str]) -> None:
    world = finished()
    for change in changes:
        world.given[change] += 1
    assert named(plan(world.situation(), ALL)) == below(step for change in changes for step in CHANGES[change])


def test_what_is_fetched_and_comes_out_the_same_ends_there() -> None:
    world = finished()
    asked = replace(ALL, refresh=True)
    steps = plan(world.situation(), asked)
    assert named(steps) == below([("fetch", "s1"), ("fetch", "s2")])
    assert {step.because for step in steps if step.kind == "fetch"} == {"it is to be fetched again"}
    for step in steps:
        if step.kind == "fetch":
            world.carry_out(step)
    assert plan(world.situation(), ALL) == ()


@max_examples(100)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(world: World, shuffled: random.Random) -> None:
    def mixed(items: Iterable[object]) -> list[object]:
        known = list(items)
        shuffled.shuffle(known)
        return known

    there = world.situation()
    other = replace(
        there,
        **{
            name: dict(mixed(getattr(there, name).items()))  # type: ignore[arg-type]
            for name in ("sources", "controls", "benchmarks", "models", "audits", "code")
        },
    )
    asked = replace(ALL, pairs=tuple(mixed(PAIRS)))  # type: ignore[arg-type]
    steps, others = plan(there, ALL), plan(other, asked)
    assert named(others) == named(steps)
    assert len(others) == len(steps)
    for kinds in ([step.kind for step in steps], [step.kind for step in others]):
        assert kinds == sorted(kinds, key=KINDS.index)
    assert [step.what for step in others if step.kind == "run"] == [
        pair.partition for pair in asked.pairs if ("run", pair.partition) in named(steps)
    ], "within a kind as it is asked for"


@max_examples(100)
@given(worlds(), st.sampled_from(PAIRS))
def test_a_pair_is_done_where_nothing_is_to_be_done_for_it_on_what_is_built(world: World, pair: Pair) -> None:
    there = replace(assume_benchmarks_current(world.situation()), models={})
    steps = plan(there, PlanRequest(pairs=(pair,)))
    is_built = there.benchmarks[pair.benchmark].built is not None
    assert (not steps) == (state_of(pair, there).status == "done" or not is_built)
    audit = {step.because for step in steps if step.kind in OF_PAIRS and step.kind != "extract"}
    assert audit <= {state_of(pair, there).reason}


# --- words ---


def test_reasons_are_told_one_after_the_other() -> None:
    world = finished()
    for change in ("entry b1", "start token m1", "reference m1", "corpus k", "code scores", "code evaluations"):
        world.given[change] += 1
    assert state_of(PAIRS[0], world.situation()).reason == (
        "its entry in the configuration or its sources changed since it was built; "
        "the start token, the window or the form of the token statistics changed since; "
        "the reference model changed since; the code that scores changed since; the code that evaluates changed since"
    )
    world.carry_out(PlannedStep("build", "b1", ""))
    world.carry_out(PlannedStep("count", "k|m1", ""))
    assert (state_of(PAIRS[0], world.situation()).reason or "").startswith(
        "the benchmark was rebuilt since; the reference model changed since; the token frequencies changed since; "
    )
    world.given["files m1"] += 1
    assert "the model's files changed since" in (state_of(PAIRS[0], world.situation()).reason or "")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (None, "the model's files changed since"),
        (frozenset({"then", "earlier"}), "the model behind the endpoint changed since"),
        (frozenset({"earlier"}), "the model's entry, or the files of its tokenizer, changed since"),
        (frozenset(), "the model's entry, or the files of its tokenizer, changed since"),
    ],
)
def test_what_is_another_about_a_model_depends_on_where_it_is(before: frozenset[str] | None, words: str) -> None:
    rows = WrittenRows("run", DAY, "1", "digest", Conventions("then", "tokenizer"), "scores", "scores")
    now = Conventions("now", "tokenizer", before=before)
    there = Situation(
        benchmarks={"b": BenchmarkFacts("digest", "digest")}, audits={Pair("b", "m"): PairFacts(now, rows, rows)}
    )
    assert state_of(Pair("b", "m"), there).reason == words
    same = replace(there, audits={Pair("b", "m"): PairFacts(replace(now, model="then"), rows, rows)})
    assert state_of(Pair("b", "m"), same).status == "done"


@pytest.mark.parametrize(
    ("damaged", "first", "reason"),
    [
        (("scores",), "score", "a file of its scores is damaged or gone"),
        (("evaluations", "highlights"), "score", "a file of its scores is damaged or gone"),
        (("decisions",), "evaluate", "a file of its findings is damaged or gone"),
    ],
)
def test_what_is_damaged_is_made_again_from_its_stage_on(damaged: tuple[str, ...], first: str, reason: str) -> None:
    there = finished().situation()
    audits = {pair: replace(audit, damaged=damaged) for pair, audit in there.audits.items() if pair == PAIRS[0]}
    steps = plan(replace(there, audits={**there.audits, **audits}), replace(ALL, publish=False))
    kinds = [kind for kind in OF_PAIRS if kind != "extract"]
    assert [step.kind for step in steps] == kinds[kinds.index(first) :]  # type: ignore[arg-type]
    assert {(step.pair, step.because) for step in steps} == {(PAIRS[0], reason)}


def test_a_run_that_died_between_scores_and_findings_is_finished() -> None:
    world = finished()
    world.given["code scores"] += 1
    for step in plan(world.situation(), ALL):
        if step.kind == "score":
            world.carry_out(step)
    steps = plan(world.situation(), replace(ALL, publish=False))
    assert {(step.kind, step.because) for step in steps} == {("evaluate", "it was scored again since")}


def test_what_is_asked_again_or_besides_is_run_whatever_is_there() -> None:
    there, pair = finished().situation(), PAIRS[0]
    again = plan(there, PlanRequest(pairs=(pair,), again=True))
    assert [(step.kind, step.because) for step in again] == [(kind, "it is asked for again") for kind in OF_PAIRS]
    besides, reason = PlanRequest(pairs=(pair,), more_statistics=("topk",)), "more token statistics are asked for: topk"
    assert [(step.kind, step.because) for step in plan(there, besides)] == [
        (kind, reason) for kind in OF_PAIRS if kind != "extract"
    ]


def test_documents_that_were_not_searched_leave_a_pair_stale_and_its_audit_alone() -> None:
    world = finished()
    del world.rows["extract", PAIRS[0].partition]
    why = "its documents have not been searched for passages that the model gives"
    state = state_of(PAIRS[0], world.situation())
    assert (state.status, state.reason) == ("stale", why)
    steps = plan(world.situation(), replace(ALL, publish=False))
    assert [(step.kind, step.what, step.because) for step in steps] == [("extract", PAIRS[0].partition, why)]
    there = finished().situation()
    audits = {PAIRS[0]: replace(there.audits[PAIRS[0]], damaged=("extraction_windows",))}
    steps = plan(replace(there, audits={**there.audits, **audits}), replace(ALL, publish=False))
    assert [(step.kind, step.because) for step in steps] == [
        ("extract", "a file of what was found in its documents is damaged or gone")
    ]


def test_an_outcome_counts_until_a_later_audit() -> None:
    world = finished()
    world.fail(PAIRS[0])
    state = state_of(PAIRS[0], world.situation())
    assert (state.status, state.reason) == ("failed", "no memory")
    assert named(plan(world.situation(), ALL)) == below([("run", PAIRS[0].partition)])
    # The report shows what could not be done, too.
    audits = {pair: replace(audit, evaluations=None) for pair, audit in world.situation().audits.items()}
    [step] = plan(replace(world.situation(), audits=audits, benchmarks={}), ALL)
    assert (step.kind, step.because) == ("publish", "they do not say what the latest runs could not do")


def test_an_outcome_of_the_search_decides_nothing_of_the_audit_and_ends_with_the_next_search() -> None:
    world = finished()
    world.hour += 1
    pair = PAIRS[0]
    world.outcomes[pair.partition] = PairOutcome(pair, EXTRACTION, "failed", "no memory", "run x", world.now)
    state = state_of(pair, world.situation())
    assert (state.status, state.reason) == ("failed", "no memory")
    [step] = plan(world.situation(), replace(ALL, publish=False))
    assert (step.kind, step.because) == ("extract", "its documents could not be searched last: no memory")
    world.carry_out(step)
    assert state_of(pair, world.situation()).status == "done"
    # Where nobody asks for a search, one on request that failed was told to whoever asked.
    other = PAIRS[1]
    world.outcomes[other.partition] = PairOutcome(other, EXTRACTION, "failed", "no memory", "run y", world.now)
    assert state_of(other, world.situation()).status == "done"


def test_what_is_not_known_is_not_compared() -> None:
    there = finished().situation()
    audits = {pair: replace(audit, now=Conventions()) for pair, audit in there.audits.items()}
    assert {state_of(pair, replace(there, audits=audits)).status for pair in PAIRS} == {"done"}
    open_benchmark = replace(there.benchmarks["b1"], wanted=None)
    assert is_as_configured(open_benchmark) is None
    assert state_of(PAIRS[0], replace(there, benchmarks={"b1": open_benchmark})).status == "done"


def test_what_cannot_be_had_is_a_problem_and_no_step() -> None:
    there = World().situation()
    unset = replace(
        there, sources={**there.sources, "s2": replace(there.sources["s2"], problem="s2 is not configured")}
    )
    assert find_benchmark_problems(unset, BENCHMARKS) == {"b2": "s2 is not configured"}
    steps = named(plan(unset, PlanRequest(pairs=PAIRS)))
    assert not {("fetch", "s2"), ("build", "b2"), ("run", "b2|m1")} & steps
    assert ("run", "b1|m1") in steps
    broken = replace(there, controls={CONTROL: ControlFacts(None, None, problem="control c: unknown key")})
    assert find_benchmark_problems(broken, BENCHMARKS) == {"bc": "control c: unknown key"}


def test_of_publishing_one_step_and_what_it_is_for() -> None:
    world = finished()
    world.given["configuration"] += 1
    [step] = plan(world.situation(), ALL)
    assert (step.what, step.because) == (PUBLISHED, "configuration changed since they were made")
    assert plan(world.situation(), replace(ALL, publish=False)) == ()
    gone = replace(world.situation(), published=PublishedFacts(wanted={"configuration": 0}))
    assert [step.because for step in plan(gone, ALL)] == ["they are not there"]
    old = replace(
        gone, published=PublishedFacts({"configuration": 0}, {"configuration": 0}, frozenset({"another run"}))
    )
    assert [step.because for step in plan(old, ALL)] == ["they do not hold the latest findings"]


@pytest.mark.parametrize(
    ("split", "why"),
    [
        (SplitFacts(), "the split has not been assessed, or a file of it is damaged or gone"),
        (SplitFacts("earlier", "0", (), "run 1"), "the split was assessed on another build of the benchmark"),
    ],
)
def test_a_split_that_is_not_that_of_what_is_built_is_assessed_and_its_pairs_evaluated(
    split: SplitFacts, why: str
) -> None:
    there = finished().situation()
    benchmarks = {**there.benchmarks, "b1": replace(there.benchmarks["b1"], split=split)}
    steps = plan(replace(there, benchmarks=benchmarks), replace(ALL, publish=False))
    assert [(step.kind, step.what, step.because) for step in steps] == [
        ("assess", "b1", why),
        ("evaluate", "b1|m1", why),
    ]


def test_a_split_that_comes_out_as_it_was_ends_there_and_one_that_does_not_is_evaluated_on() -> None:
    there, pair = finished().situation(), PAIRS[0]
    known = there.benchmarks["b1"].split
    assert known is not None
    for versions, run, expected in (
        (known.versions, known.run_id, []),
        (known.versions, "another", [("publish", "they do not hold what was assessed of a split last")]),
        ((("split_quality", "another"),), known.run_id, [("evaluate", "the split was assessed again since")]),
    ):
        benchmark = replace(there.benchmarks["b1"], split=replace(known, versions=versions, run_id=run))
        steps = plan(replace(there, benchmarks={"b1": benchmark}), PlanRequest(pairs=(pair,), publish=True))
        assert [(step.kind, step.because) for step in steps][: len(expected) or None] == expected
