"""What is to be done, and why: the one place that decides whether something is up to date.

What belongs here: what there is and what is asked as plain data, and the pure functions from these two to the steps
that are missing, each with its reason, and to the state of every pair. What does not: reading what there is
(situation.py, coverage.py), carrying steps out (operate/dagster/), and versions and digests themselves (each
beside what it is the version of).

The rule is the same for everything that is made: it is done again where what it was made of, or under, is not what
there is now. What is not known, given as None, is not compared. A step that follows from another one is planned with
it, as if what that one makes came out different. The steps are planned again after each kind, so what came out the
same is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from audit_pipeline.catalogue.contracts import DOCUMENT_MEMORISATION, EXTRACTION_RATES, EXTRACTION_WINDOWS, Pair
from audit_pipeline.catalogue.ledger import PairOutcome
from audit_pipeline.operate.facts import (
    EXTRACTION,
    OF_PAIRS,
    BenchmarkFacts,
    ControlFacts,
    Conventions,
    FrequencyFacts,
    Kind,
    ModelFacts,
    PairFacts,
    PairState,
    PlannedStep,
    PlanRequest,
    Situation,
    SourceFacts,
    SplitFacts,
    WrittenRows,
)

_ENTRY_CHANGED = "its entry in the configuration or its sources changed since it was built"
_DAMAGED_SCORES = {"scores", "highlights"}
_OF_EXTRACTION = {table.name for table in (EXTRACTION_WINDOWS, DOCUMENT_MEMORISATION, EXTRACTION_RATES)}
_FIRST = {
    "fetch": "the source {} is fetched first",
    "train": "the control {} is trained first",
    "build": "the benchmark {} is built first",
    "assess": "the split of {} is assessed first",
    "search": "the texts of {} are looked for first",
    "count": "the tokens of {} are counted first",
    "run": "{} is audited first",
    "extract": "the documents of {} are searched first",
    "score": "{} is scored first",
    "evaluate": "{} is evaluated first",
}

T = TypeVar("T")


def plan(situation: Situation, request: PlanRequest) -> tuple[PlannedStep, ...]:
    """The steps that bring everything requested up to date, in an order in which they can be carried out.

    Within a kind they are in the order of the request. A benchmark that cannot be built has no step; its
    pairs have none where it was never built.
    """
    needs = _needs(situation, request)
    fetch = _build_steps(
        "fetch", needs.sources, lambda name: _why_fetch(situation.sources[name], again=name in needs.refreshed)
    )
    train = _build_steps("train", needs.controls, lambda name: _why_train(situation.controls[name], fetch))
    build = _build_steps(
        "build", needs.benchmarks, lambda name: _why_build(situation.benchmarks[name], [*fetch, *train])
    )
    assess = _build_steps("assess", needs.benchmarks, lambda name: _why_assess(name, situation, build))
    search = [step for name in needs.benchmarks for step in _plan_searches(name, situation, build)]
    count = _build_steps("count", needs.counts, lambda what: _why_count(needs.counts[what], fetch))
    before = [*train, *build, *assess, *count]
    of_pairs = [step for pair in request.pairs for step in _plan_pair(pair, situation, request, before)]
    audit = sorted(of_pairs, key=lambda step: OF_PAIRS.index(step.kind))
    why = _why_publish(situation, request, [*train, *build, *assess, *search, *audit]) if request.publish else None
    publish = [] if why is None else [PlannedStep("publish", "warehouse and report", why)]
    return (*fetch, *train, *build, *assess, *search, *count, *audit, *publish)


@dataclass(frozen=True)
class _Needs:
    """All that a request takes, each once; ``refreshed``: the sources that are fetched even where they are current."""

    sources: Sequence[str]
    refreshed: Collection[str]
    controls: Sequence[str]
    benchmarks: Sequence[str]
    counts: Mapping[str, FrequencyFacts]


def _needs(situation: Situation, request: PlanRequest) -> _Needs:
    named = _unique(request.benchmarks, (pair.benchmark for pair in request.pairs))
    cannot = find_benchmark_problems(situation, named)
    benchmarks = [name for name in named if name in situation.benchmarks and name not in cannot]
    models = _unique(request.models, (pair.model for pair in request.pairs))
    counts = {
        f"{frequencies.corpus}|{name}": frequencies
        for name in models
        for frequencies in _to_tuple(situation.models.get(name, ModelFacts()).frequencies)
    }
    of_models = (control for name in models for control in _to_tuple(situation.models.get(name, ModelFacts()).control))
    of_benchmarks = (control for name in benchmarks for control in _to_tuple(situation.benchmarks[name].control))
    controls = _unique(request.controls, of_models, of_benchmarks)
    drawn_from = [source for name in benchmarks for source in situation.benchmarks[name].sources]
    of_controls = (source for name in controls for source in situation.controls[name].sources)
    of_corpora = (source for frequencies in counts.values() for source in _to_tuple(frequencies.source))
    sources = _unique(request.sources, drawn_from, of_controls, of_corpora)
    return _Needs(sources, drawn_from if request.refresh else (), controls, benchmarks, counts)


def is_as_configured(benchmark: BenchmarkFacts) -> bool | None:
    """Whether a benchmark is built as its entry and its sources are; None where it is not built, or it is not known."""
    if benchmark.built is None or benchmark.wanted is None:
        return None
    return benchmark.built == benchmark.wanted


def assume_benchmarks_current(situation: Situation) -> Situation:
    """The same with every benchmark taken as it is built, for auditing what is there: what could not be fetched or
    built, or waits for its turn, is no reason to audit a pair again."""
    taken = {
        name: replace(benchmark, wanted=benchmark.built, sources=(), control=None, problem=None)
        for name, benchmark in situation.benchmarks.items()
    }
    return replace(situation, benchmarks=taken)


def find_benchmark_problems(situation: Situation, benchmarks: Iterable[str]) -> Mapping[str, str]:
    """Why some of ``benchmarks`` cannot be told to be up to date, nor be built, by name."""
    found = {}
    for name in benchmarks:
        benchmark = situation.benchmarks.get(name, BenchmarkFacts(None, None))
        sources = [situation.sources[source] for source in benchmark.sources]
        stale = [source for source in sources if _why_stale(source) is not None]
        controls = [situation.controls[control] for control in _to_tuple(benchmark.control)]
        reasons = [benchmark.problem, *(source.problem for source in stale), *(control.problem for control in controls)]
        problem = next((reason for reason in reasons if reason is not None), None)
        if problem is not None:
            found[name] = problem
    return found


def state_of(pair: Pair, situation: Situation) -> PairState:
    """What became of a pair.

    An outcome newer than its findings decides. Else the findings do: stale where
    what they rest on is not what there is now, or where its documents were to be searched and that lacks, else done.
    Else the pair is missing.
    """
    state, lacks = _state_of_audit(pair, situation), find_extraction_reason(pair, situation)
    if state.status != "done" or lacks is None:
        return state
    outcome = find_extraction_failure(_facts_of_pair(pair, situation)[0])
    return PairState("stale", lacks) if outcome is None else PairState(outcome.status, outcome.reason, outcome)


def _state_of_audit(pair: Pair, situation: Situation) -> PairState:
    audit, benchmark = _facts_of_pair(pair, situation)
    found = audit.evaluations
    outcome = audit.outcome
    if outcome is not None and outcome.stage != EXTRACTION and _is_newer(outcome, found):
        return PairState(outcome.status, outcome.reason, outcome)
    if found is None:
        if benchmark.built is None:
            return PairState("missing", "the benchmark has not been built")
        return PairState("missing", "never audited" if audit.scores is None else "scored, not evaluated")
    doubts = [words for _, words in _find_changed_inputs(found, audit.now, benchmark)]
    if audit.scores is None or _DAMAGED_SCORES & {*audit.damaged}:
        doubts.append("a file of its scores is damaged or gone")
    elif {*audit.damaged} - _OF_EXTRACTION:
        doubts.append("a file of its findings is damaged or gone")
    elif _differ(audit.scores.version, found.of_scores):
        doubts.append("it was scored again since")
    if audit.scores is not None and _differ(situation.code.get("scores"), audit.scores.code):
        doubts.append("the code that scores changed since")
    if split := _find_stale_split_reason(benchmark, situation.code):
        doubts.append(split)
    elif benchmark.split is not None and _differ(benchmark.split.versions, found.of_split):
        doubts.append("the split was assessed again since")
    if _differ(situation.code.get("evaluations"), found.code):
        doubts.append("the code that evaluates changed since")
    return PairState("stale", "; ".join(doubts)) if doubts else PairState("done")


def _facts_of_pair(pair: Pair, situation: Situation) -> tuple[PairFacts, BenchmarkFacts]:
    return situation.audits.get(pair, PairFacts()), situation.benchmarks.get(pair.benchmark, BenchmarkFacts(None, None))


def _find_changed_inputs(
    rows: WrittenRows, current: Conventions, benchmark: BenchmarkFacts
) -> Iterator[tuple[Kind, str]]:
    """What scores or findings rest on that is another now; the step from which on the pair is audited again for it."""
    then = rows.conventions
    rebuilt = _differ(benchmark.built, rows.benchmark)
    other_model = _differ(current.model, then.model) or _differ(current.tokenizer, then.tokenizer)
    if rows.at is None:
        yield "run", "no lineage entry says what it rests on"
    if benchmark.is_removed:
        yield "run", "the benchmark is no longer in the configuration"
    if benchmark.built is None:
        yield "run", "the benchmark is no longer built"
    if rebuilt:
        yield "run", "the benchmark was rebuilt since"
    if _differ(benchmark.wanted, benchmark.built):
        yield "run", _ENTRY_CHANGED
    if other_model:
        yield "run", _explain_model_change(then, current)
    if not rebuilt and not other_model and _differ(current.statistics, then.statistics):
        yield "run", "the start token, the window or the form of the token statistics changed since"
    if _differ(current.reference, then.reference):
        yield "run", "the reference model changed since"
    if _differ(current.frequencies, then.frequencies):
        yield "score", "the token frequencies changed since"


def _explain_model_change(previous: Conventions, current: Conventions) -> str:
    if current.before is None:
        return "the model's files changed since"
    if previous.model in current.before:
        return "the model behind the endpoint changed since"
    return "the model's entry, or the files of its tokenizer, changed since"


def _is_newer(outcome: PairOutcome, rows: WrittenRows | None) -> bool:
    return rows is None or rows.at is None or outcome.at > rows.at


def find_extraction_failure(audit: PairFacts) -> PairOutcome | None:
    """Why the last search of the documents failed; None where it did not."""
    outcome = audit.outcome
    if outcome is None or outcome.stage != EXTRACTION or not _is_newer(outcome, audit.extraction):
        return None
    return outcome


def find_extraction_reason(pair: Pair, situation: Situation) -> str | None:
    """Why the benchmark's documents are to be searched; None where they are not to be, or have been."""
    audit, benchmark = _facts_of_pair(pair, situation)
    found = audit.extraction
    if not benchmark.extraction:
        return None
    if found is None:
        return "its documents have not been searched for passages that the model gives"
    if _OF_EXTRACTION & {*audit.damaged}:
        return "a file of what was found in its documents is damaged or gone"
    if _differ(benchmark.extraction, found.code):
        return "its documents were searched with other settings, or by an earlier version of the code"
    if (outcome := find_extraction_failure(audit)) is not None:
        return f"its documents could not be searched last: {outcome.reason}"
    reasons = (words for kind, words in _find_changed_inputs(found, audit.now, benchmark) if kind == "run")
    return next((f"its documents were searched before: {words}" for words in reasons), None)


def _first_step(pair: Pair, situation: Situation) -> tuple[Kind, str] | None:
    """The step from which on a pair is to be audited, and why; None where it is done."""
    state = _state_of_audit(pair, situation)
    if state.reason is None:
        return None
    audit, benchmark = _facts_of_pair(pair, situation)
    if state.outcome is not None or audit.scores is None:
        return "run", state.reason
    # A run that did not come to its end may have scored anew what the findings do not rest on yet.
    kinds: list[Kind] = ["evaluate", *(kind for kind, _ in _find_changed_inputs(audit.scores, audit.now, benchmark))]
    if _differ(situation.code.get("scores"), audit.scores.code) or _DAMAGED_SCORES & {*audit.damaged}:
        kinds.append("score")
    return min(kinds, key=OF_PAIRS.index), state.reason


def _plan_pair(
    pair: Pair, situation: Situation, request: PlanRequest, earlier_steps: Sequence[PlannedStep]
) -> Iterator[PlannedStep]:
    model = situation.models.get(pair.model, ModelFacts())
    built_first = _find_earlier_step_reason(earlier_steps, "build", [pair.benchmark])
    if _facts_of_pair(pair, situation)[1].built is None and built_first is None:
        return
    own = _first_step(pair, situation)
    reasons = [own] if own is not None else []
    if request.again:
        reasons.append(("run", "it is asked for again"))
    if request.more_statistics:
        reasons.append(("run", f"more token statistics are asked for: {', '.join(request.more_statistics)}"))
    if again_first := built_first or _find_earlier_step_reason(earlier_steps, "train", _to_tuple(model.control)):
        reasons.append(("run", again_first))
    if first := _find_earlier_step_reason(
        earlier_steps, "count", [f"{table.corpus}|{pair.model}" for table in _to_tuple(model.frequencies)]
    ):
        reasons.append(("score", first))
    if first := _find_earlier_step_reason(earlier_steps, "assess", [pair.benchmark]):
        reasons.append(("evaluate", first))
    start = min((OF_PAIRS.index(kind) for kind, _ in reasons), default=len(OF_PAIRS))
    extract = find_extraction_reason(pair, situation)
    if extract is None and _facts_of_pair(pair, situation)[1].extraction and (request.again or again_first):
        extract = reasons[0][1]
    for kind in OF_PAIRS:
        because = extract if kind == "extract" else reasons[0][1] if OF_PAIRS.index(kind) >= start else None
        if because is not None:
            yield PlannedStep(kind, pair.partition, because)


def _why_fetch(source: SourceFacts, *, again: bool) -> str | None:
    if source.problem is not None:
        return None
    return _why_stale(source) or ("it is to be fetched again" if again else None)


def _why_stale(source: SourceFacts) -> str | None:
    if source.there is None:
        return "its documents are not there"
    return "its settings or files changed since it was fetched" if source.there != source.wanted else None


def _why_train(control: ControlFacts, fetch_steps: Iterable[PlannedStep]) -> str | None:
    if control.problem is not None:
        return None
    if control.there is None:
        return "it has not been trained"
    if _differ(control.wanted, control.there):
        return "its entry in the configuration or its documents changed since it was trained"
    return _find_earlier_step_reason(fetch_steps, "fetch", control.sources)


def _why_build(benchmark: BenchmarkFacts, earlier_steps: Sequence[PlannedStep]) -> str | None:
    comes_first = _find_earlier_step_reason(earlier_steps, "fetch", benchmark.sources) or _find_earlier_step_reason(
        earlier_steps, "train", _to_tuple(benchmark.control)
    )
    if benchmark.built is None:
        return None if benchmark.wanted is None and comes_first is None else "it has not been built"
    if _differ(benchmark.wanted, benchmark.built):
        return _ENTRY_CHANGED
    return comes_first


def explain_stale_split(split: SplitFacts, built: str, code: str | None) -> str | None:
    """Why what was assessed of a split does not hold for the benchmark ``built`` (its digest), by this version of the
    code; None where it does."""
    if split.benchmark is None:
        return "the split has not been assessed, or a file of it is damaged or gone"
    if split.benchmark != built:
        return "the split was assessed on another build of the benchmark"
    return "the code that assesses the split changed since" if _differ(code, split.code) else None


def _find_stale_split_reason(benchmark: BenchmarkFacts, code: Mapping[str, str]) -> str | None:
    """Why what was assessed of the split is not that of what is built, by the code of now."""
    split = benchmark.split
    if split is None or benchmark.built is None:
        return None
    return explain_stale_split(split, benchmark.built, code.get("split_quality"))


def _why_assess(name: str, situation: Situation, build_steps: Iterable[PlannedStep]) -> str | None:
    return _find_stale_split_reason(situation.benchmarks[name], situation.code) or _find_earlier_step_reason(
        build_steps, "build", [name]
    )


def _plan_searches(name: str, situation: Situation, build_steps: Sequence[PlannedStep]) -> Iterator[PlannedStep]:
    """The corpora that are to be searched for a benchmark's texts."""
    benchmark = situation.benchmarks[name]
    built_first = _find_earlier_step_reason(build_steps, "build", [name])
    for overlap in benchmark.overlaps if benchmark.built is not None or built_first is not None else ():
        because = built_first
        if overlap.problem is not None:
            because = None
        elif overlap.there is None:
            because = "its texts have not been looked for in this corpus"
        elif overlap.there != overlap.wanted:
            because = "the texts, the corpus or the code changed since it was searched"
        if because is not None:
            yield PlannedStep("search", f"{name}|{overlap.corpus}", because)


def _why_count(frequencies: FrequencyFacts, fetch_steps: Iterable[PlannedStep]) -> str | None:
    if frequencies.there is None:
        return "its tokens have not been counted with the model's tokenizer"
    if frequencies.there != frequencies.wanted:
        return "its settings or documents changed since its tokens were counted"
    return _find_earlier_step_reason(fetch_steps, "fetch", _to_tuple(frequencies.source))


def _why_publish(situation: Situation, request: PlanRequest, earlier_steps: Sequence[PlannedStep]) -> str | None:
    made = situation.published
    if earlier_steps:
        return _FIRST[earlier_steps[-1].kind].format(earlier_steps[-1].what)
    if made.there is None:
        return "they are not there"
    if changed := [name for name in made.wanted if made.wanted[name] != made.there.get(name)]:
        return f"{', '.join(changed)} changed since they were made"
    return _why_published_is_outdated(situation, request)


def _why_published_is_outdated(situation: Situation, request: PlanRequest) -> str | None:
    made = situation.published
    audits = [situation.audits[pair] for pair in request.pairs if pair in situation.audits]
    written = [rows for audit in audits for rows in (audit.evaluations, audit.extraction) if rows is not None]
    if {rows.run_id for rows in written} - made.runs:
        return "they do not hold the latest findings"
    splits = [benchmark.split for benchmark in situation.benchmarks.values() if benchmark.split is not None]
    if {split.run_id for split in splits if split.run_id is not None} - made.runs:
        return "they do not hold what was assessed of a split last"
    if made.at is not None and any(audit.outcome is not None and audit.outcome.at > made.at for audit in audits):
        return "they do not say what the latest runs could not do"
    return None


def _build_steps(kind: Kind, names: Iterable[str], find_reason: Callable[[str], str | None]) -> list[PlannedStep]:
    return [PlannedStep(kind, name, because) for name in names if (because := find_reason(name)) is not None]


def _find_earlier_step_reason(earlier_steps: Iterable[PlannedStep], kind: Kind, names: Collection[str]) -> str | None:
    """Why what is made of ``names`` is made again: a step of that kind makes one of them first; None: none does."""
    return next(
        (_FIRST[kind].format(step.what) for step in earlier_steps if step.kind == kind and step.what in names), None
    )


def _differ(version: T | None, other: T | None) -> bool:
    """Whether two versions are known and not the same."""
    return version is not None and other is not None and version != other


def _to_tuple(value: T | None) -> tuple[T, ...]:
    return () if value is None else (value,)


def _unique(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))
