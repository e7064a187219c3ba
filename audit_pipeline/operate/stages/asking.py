"""The stage that asks models that answer in words: from documents and an entry to what came back, with its lineage.

What belongs here: which documents there are, and the order of read, ask, conclude, record and write. What does not:
prompts, requests, measures and conclusions (asking/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from audit_pipeline.asking.chat_client import open_budget
from audit_pipeline.asking.conclusions import conclude_documents
from audit_pipeline.asking.config import ChatModel, load_chat_models
from audit_pipeline.asking.defaults import DRAWS, PASSAGES
from audit_pipeline.asking.journal import AskJournal
from audit_pipeline.asking.ladder import LADDER, WINDOW, AskOptions, AskRequest, list_requests
from audit_pipeline.asking.outputs import HandedOutput
from audit_pipeline.asking.run import ask_missing, build_handed_over_row, identify_output, list_unanswered, without_text
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import (
    CHAT_ANSWERS,
    CHAT_DOCUMENTS,
    Pair,
    Rung,
    digest,
    text_sha256,
)
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.catalogue.lineage import LatestRun, LineageStep, RowOrigin, read_latest_run
from audit_pipeline.catalogue.paths import DataPaths, explain_invalid_partition
from audit_pipeline.catalogue.table import Table
from audit_pipeline.endpoints.budget import Budget, Limits
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.operate.own_files import HELD_OUT, Inventory
from audit_pipeline.operate.stages.extraction import read_benchmark_documents
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.sources.base import document_id
from audit_pipeline.sources.local_files import NAME

ASKING_VERSION = "1"
"""Of the code that asks, measures and concludes."""
_JOURNAL = ".asked.jsonl"
_SHOWN = 10
_HANDED_OVER: Rung = "handed over"

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class AskedTexts:
    """The documents that a model is asked about, of a benchmark or of files under a name.

    ``upstream``: the versions of what they were made of.
    """

    name: str
    documents: Sequence[SearchedDocument]
    upstream: Mapping[str, str]
    benchmark_digest: str | None = None


@dataclass(frozen=True)
class AskPlan:
    """What is asked about texts: the requests, and how they came about."""

    texts: AskedTexts
    options: AskOptions
    requests: Sequence[AskRequest]


@dataclass(frozen=True)
class AskReport:
    """What was written of a pair: the rows of its documents, and how many answers are new.

    ``fault``: what ended the asking early, for the caller to raise once it has shown the rest.
    """

    pair: Pair
    documents: Rows
    new: int
    data_version: str
    fault: AuditError | None = None

    @property
    def unmeasured(self) -> int:
        """Requests about documents that brought no answer that could be measured."""
        return sum(row["requests"] - row["answered"] for row in self.documents)


def read_texts_of_benchmark(benchmark: str, paths: DataPaths) -> AskedTexts:
    """The documents of a built benchmark, its non-members held out.

    Raises DataError where it is not built, is not fit, or a document is no longer there.
    """
    built = read_built(paths, benchmark)
    built.require_passed_checks()
    documents = _list_distinct(read_benchmark_documents(built, paths))
    return AskedTexts(benchmark, documents, {f"examples/{benchmark}": built.digest}, built.digest)


def read_texts_of_files(inventory: Inventory, name: str, paths: DataPaths) -> AskedTexts:
    """The documents of a user's files under a name.

    Raises DataError where a benchmark has that name, or a name cannot be kept.
    """
    if problem := explain_invalid_partition("benchmark", name):
        raise DataError(problem)
    if paths.examples(name).exists():
        raise DataError(f"there is a benchmark {name}: give the files another name with --name")
    documents = [
        SearchedDocument(
            # As `check` names them: both sides may have a file of one name.
            document_id(NAME, one),
            one.text,
            one.title,
            one.group or one.name,
            one.collection,
            "held_out" if one.collection == HELD_OUT else "audited",
            places=one.places,
        )
        for one in inventory.documents
    ]
    documents = _list_distinct(documents)
    texts = digest(sorted((one.name, one.side, text_sha256(one.text)) for one in documents))
    return AskedTexts(name, documents, {f"files/{name}": texts})


def _list_distinct(documents: Iterable[SearchedDocument]) -> list[SearchedDocument]:
    """The documents, of those with the same text the first: what is asked and answered belongs to a text."""
    found: dict[str, SearchedDocument] = {}
    for document in documents:
        found.setdefault(document.text, document)
    return list(found.values())


def plan_asking(texts: AskedTexts, options: AskOptions) -> AskPlan:
    """What is asked about the texts. Raises DataError where no document is long enough for a passage."""
    requests = list_requests(texts.documents, options)
    if not any(request.document.side == "audited" for request in requests):
        raise DataError(f"no audited document has {WINDOW} words, so that there is a passage to ask for")
    return AskPlan(texts, options, requests)


def find_missing_requests(plan: AskPlan, entry: ChatModel, paths: DataPaths) -> list[AskRequest]:
    """The requests of the plan that were not answered yet, by an earlier run or by one that was killed.

    Raises DataError where outputs of the model were handed over under this name, and ConfigError where another rung was
    named to answer when it was first asked.
    """
    pair = Pair(plan.texts.name, entry.name)
    answers = read_answers(pair, paths)
    if any(row["rung"] == _HANDED_OVER for row in answers):
        raise DataError(
            f"outputs of {entry.name} were handed over under {pair.benchmark}: give the texts another --name"
        )
    if (named := read_named_headline(pair, paths)) not in (None, plan.options.headline):
        raise ConfigError(
            f"the rung '{named}' was named to answer before {entry.name} was asked about {pair.benchmark}, and stays: "
            "leave --headline out, or give the texts another --name"
        )
    known = {row["request_sha256"] for row in [*answers, *AskJournal(_journal_path(pair, paths)).read()]}
    return list_unanswered(entry, plan.requests, known)


def read_named_headline(pair: Pair, paths: DataPaths) -> str | None:
    """The rung that was named to answer when a pair was first asked; None where it was not asked yet."""
    run = _find_latest_run(CHAT_DOCUMENTS, pair, paths)
    return None if run is None else str(run.settings["headline"])


def needs_asking(benchmark: str, entry: ChatModel, paths: DataPaths) -> bool:
    """Whether a built benchmark has requests of a usual run that were not answered, or answers that nothing follows
    from yet: of a run that was killed, or of another build.

    Raises as :func:`read_texts_of_benchmark`, :func:`plan_asking` and :func:`find_missing_requests` do.
    """
    pair = Pair(benchmark, entry.name)
    texts = read_texts_of_benchmark(benchmark, paths)
    options = AskOptions.from_names(entry.interface, LADDER, read_named_headline(pair, paths), DRAWS, PASSAGES)
    concluded = _find_latest_run(CHAT_DOCUMENTS, pair, paths)
    return (
        bool(find_missing_requests(plan_asking(texts, options), entry, paths))
        or _journal_path(pair, paths).exists()
        or concluded is None
        or concluded.benchmark_digest != texts.benchmark_digest
    )


def ask_pair(
    plan: AskPlan,
    entry: ChatModel,
    paths: DataPaths,
    run_id: str,
    budget: Budget,
    *,
    keeps_text: bool,
    tell: Callable[[str], None],
    on_answer: Callable[[int], None] = lambda answered: None,
) -> AskReport:
    """Ask what is missing, and write what came back and what follows of it.

    A run that was killed is finished: its answers are in the journal, and nothing is asked twice. Where asking ends
    early (a limit, a refusal of the interface), what came is written, and the report holds the error. Raises HeldError
    where another process asks for the same pair, and as :func:`find_missing_requests`.
    """
    pair = Pair(plan.texts.name, entry.name)
    journal = AskJournal(_journal_path(pair, paths))
    fault: AuditError | None = None
    with journal.hold():
        missing = find_missing_requests(plan, entry, paths)
        try:
            ask_missing(entry, missing, journal, budget, keeps_text=keeps_text, tell=tell, on_answer=on_answer)
        except AuditError as error:
            fault = error
        answers = journal.read() if keeps_text else list(map(without_text, journal.read()))
        fitting = {one.digest_for(entry) for one in [*plan.requests, *_list_requests_of_other_rungs(plan)]}
        origin = RowOrigin(
            model_fingerprint=entry.fingerprint,
            benchmark_digest=plan.texts.benchmark_digest,
            settings={
                "rungs": list(plan.options.rungs),
                "headline": plan.options.headline,
                "draws": plan.options.draws,
                "passages": plan.options.passages,
            },
        )
        writing = _Writing(pair, plan.texts, LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION), origin)
        report = writing.conclude(answers, fitting, paths, headline=plan.options.headline)
        journal.discard()
    return replace(report, fault=fault)


def ask_about_benchmark(
    benchmark: str,
    model: str,
    paths: DataPaths,
    run_id: str,
    *,
    rungs: Sequence[str],
    headline: str | None,
    draws: int,
    passages: int,
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    keeps_text: bool,
    tell: Callable[[str], None],
) -> AskReport:
    """As :func:`ask_pair`, with benchmark and entry by their names. Raises what ended the asking early."""
    entry = load_chat_models().named(model)
    named = headline or read_named_headline(Pair(benchmark, model), paths)
    options = AskOptions.from_names(entry.interface, rungs, named, draws, passages)
    budget = open_budget(entry, Limits(max_tokens, max_cost, max_requests))
    plan = plan_asking(read_texts_of_benchmark(benchmark, paths), options)
    report = ask_pair(plan, entry, paths, run_id, budget, keeps_text=keeps_text, tell=tell)
    if report.fault is not None:
        raise report.fault
    return report


def keep_outputs(
    texts: AskedTexts, outputs: Iterable[HandedOutput], model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> AskReport:
    """Measure outputs that somebody else got of ``model``, and write them and what follows of them.

    What was handed over before counts once, and together with what is new. Raises DataError where the model was asked
    under this name here, or its own name cannot be kept.
    """
    pair, documents = Pair(texts.name, model), {one.name: one for one in texts.documents}
    if problem := explain_invalid_partition("model", model):
        raise DataError(problem)
    earlier = read_answers(pair, paths)
    if any(row["rung"] != _HANDED_OVER for row in earlier):
        raise DataError(f"{model} was asked about {texts.name} here: give outputs that are handed over another --name")
    numbers: Counter[tuple[str, object]] = Counter()
    repeats: Counter[str] = Counter()
    rows: dict[str, Mapping[str, Any]] = {}
    # By document: a matcher is built once for each.
    for output in sorted(outputs, key=lambda output: output.document):
        known, passage = identify_output(output), (output.document, output.passage_number or output.passage_span)
        if output.request_id is not None and repeats[known]:
            continue
        row = build_handed_over_row(
            output, documents[output.document], numbers[passage], repeats[known], keeps_text=keeps_text
        )
        numbers[passage] += 1
        repeats[known] += 1
        rows[row["request_sha256"]] = row
    fitting = {row["request_sha256"] for row in earlier} | rows.keys()
    origin = RowOrigin(benchmark_digest=texts.benchmark_digest, settings={"headline": _HANDED_OVER})
    writing = _Writing(pair, texts, LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION), origin)
    return writing.conclude(list(rows.values()), fitting, paths, headline=_HANDED_OVER)


def read_answers(pair: Pair, paths: DataPaths) -> list[dict[str, Any]]:
    """Every answer of a pair, of all runs. Raises DataError where a file is not as it was written."""
    folder = _folder(pair, paths)
    runs = sorted(file.stem.removeprefix("run_id=") for file in folder.glob("run_id=*.parquet"))
    label = f"the answers of {pair.model} about {pair.benchmark}"
    return [row for run in runs for row in store.read(paths, CHAT_ANSWERS, pair, label=label, run_id=run).to_pylist()]


def _list_requests_of_other_rungs(plan: AskPlan) -> list[AskRequest]:
    """What an earlier run asked in the same way at rungs that this one does not name: its answers count as well."""
    if not plan.requests:
        return []
    others = tuple(rung for rung in LADDER if rung not in plan.options.rungs)
    return (
        list_requests(plan.texts.documents, replace(plan.options, rungs=others, headline=others[0])) if others else []
    )


@dataclass(frozen=True)
class _Writing:
    """What the rows of a run have in common."""

    pair: Pair
    texts: AskedTexts
    step: LineageStep
    origin: RowOrigin

    def conclude(self, answers: Rows, fitting: Container[str], paths: DataPaths, *, headline: Rung) -> AskReport:
        """Write those of the ``answers`` that are new, and what follows of all that are ``fitting``, by digest."""
        earlier = {row["request_sha256"]: row for row in read_answers(self.pair, paths)}
        new = [row for row in answers if row["request_sha256"] not in earlier]
        # By its text: a document may have another name now, or be on the other side.
        documents = {text_sha256(document.text): document for document in self.texts.documents}
        chosen = [
            {**row, "document_id": document.name, "side": document.side}
            for row in [*earlier.values(), *new]
            if row["request_sha256"] in fitting and (document := documents.get(row["document_sha256"])) is not None
        ]
        found = conclude_documents(self.texts.documents, chosen, headline=headline)
        # What others were made of comes first: a kill in between loses no answer, and the same command concludes again.
        if new:
            self._write(CHAT_ANSWERS, new, paths)
        # What was concluded of other texts is no longer current.
        if found or _find_latest_run(CHAT_DOCUMENTS, self.pair, paths) is not None:
            return AskReport(self.pair, found, len(new), self._write(CHAT_DOCUMENTS, found, paths))
        return AskReport(self.pair, found, len(new), "")

    def _write(self, table: Table, rows: Rows, paths: DataPaths) -> str:
        of_run = {"benchmark": self.pair.benchmark, "model": self.pair.model, "run_id": self.step.run_id}
        filled = table_from_rows([{**row, **of_run} for row in rows], table)
        return store.write(paths, self.step, table, self.pair, filled, upstream=self.texts.upstream, **self.origin)


def _find_latest_run(table: Table, pair: Pair, paths: DataPaths) -> LatestRun | None:
    """The run whose rows of a pair are the current ones; None without any. Raises DataError for a damaged entry."""
    folder = paths.run_file(table.name, pair.partition, "any").parent
    return read_latest_run(paths, table.name, pair.partition) if any(folder.glob("*.parquet")) else None


def _folder(pair: Pair, paths: DataPaths) -> Path:
    return paths.run_file(CHAT_ANSWERS.name, pair.partition, "any").parent


def _journal_path(pair: Pair, paths: DataPaths) -> Path:
    return _folder(pair, paths) / _JOURNAL


def summarise_asking(report: AskReport) -> Shown:
    """Of a pair, by what the UI shows: the answer in the report's words, and what came back of each document."""
    headline = [row for row in report.documents if row["is_headline"]]
    shown = sorted(headline, key=lambda row: (-(row["score"] or 0.0), row["document_id"]))[:_SHOWN]
    body = [
        (
            row["title"] or row["document_id"],
            str(row["side"]).replace("_", "-"),
            "–" if row["longest_run"] is None else row["longest_run"],
            "–" if row["q_bh"] is None else f"{row['q_bh']:.3g}",
            row["claim"],
        )
        for row in shown
    ]
    header = ("document", "side", "longest run (words)", "q (Benjamini-Hochberg)", "claim")
    values = {
        "new answers": report.new,
        "requests without a measure": report.unmeasured,
        "audited documents reproduced in part": _count_reproduced(headline, "audited"),
        "held-out documents reproduced in part": _count_reproduced(headline, "held_out"),
        "data_version": report.data_version,
    }
    return Shown(len(report.documents), values, {"what came back": (header, body)} if body else {})


def _count_reproduced(rows: Rows, side: str) -> int:
    return sum(row["claim"] == "reproduced" and row["side"] == side for row in rows)
