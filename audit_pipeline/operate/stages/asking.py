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

from audit_pipeline.asking.conclusions import conclude_documents
from audit_pipeline.asking.config import ChatModel, load_chat_models
from audit_pipeline.asking.engine import Allowance, AskLimits
from audit_pipeline.asking.journal import AskJournal
from audit_pipeline.asking.ladder import USUAL, WINDOW, AskOptions, AskRequest, list_requests
from audit_pipeline.asking.levelling import level
from audit_pipeline.asking.outputs import HandedOutput
from audit_pipeline.asking.quiz import ORDERS, Question, QuizAnswer, build_quiz_prompt, conclude_quiz
from audit_pipeline.asking.run import ask_missing, build_handed_over_row, list_unanswered
from audit_pipeline.asking.style import choose_by_style
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import (
    CHAT_ANSWERS,
    CHAT_DOCUMENTS,
    CHAT_QUIZ,
    Pair,
    Rung,
    digest,
    text_sha256,
)
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.catalogue.lineage import LineageStep, RowOrigin
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import AuditError, DataError
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
_OF_QUIZ = ("document_id", "passage", "draw", "is_right", "outcome")

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
    """What is asked about texts: the requests, those of the quiz among them, and how they came about."""

    texts: AskedTexts
    options: AskOptions
    requests: Sequence[AskRequest]
    questions: Sequence[Question] = ()


@dataclass(frozen=True)
class AskReport:
    """What was written of a pair: the rows of its documents and of the quiz, and how many answers are new."""

    pair: Pair
    documents: Rows
    quiz: Rows
    new: int
    data_version: str

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
    documents = read_benchmark_documents(built, paths)
    return AskedTexts(benchmark, documents, {f"examples/{benchmark}": built.digest}, built.digest)


def read_texts_of_files(inventory: Inventory, name: str, paths: DataPaths) -> AskedTexts:
    """The documents of a user's files under a name. Raises DataError where a benchmark has that name."""
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
    texts = digest(sorted((one.name, one.side, text_sha256(one.text)) for one in documents))
    return AskedTexts(name, documents, {f"files/{name}": texts})


def plan_asking(
    texts: AskedTexts,
    options: AskOptions,
    hints: Mapping[tuple[str, int], str] | None = None,
    questions: Sequence[Question] = (),
) -> AskPlan:
    """What is asked about the texts. Raises DataError where no document is long enough for a passage."""
    requests = [*list_requests(texts.documents, options, hints), *list_quiz_requests(questions, texts.documents)]
    if not any(request.document.side == "audited" for request in requests):
        raise DataError(f"no audited document has {WINDOW} words, so that there is a passage to ask for")
    return AskPlan(texts, options, requests, questions)


def find_missing_requests(plan: AskPlan, entry: ChatModel, paths: DataPaths) -> list[AskRequest]:
    """The requests of the plan that were not answered yet, by an earlier run or by one that was killed."""
    pair = Pair(plan.texts.name, entry.name)
    known = {
        row["request_sha256"] for row in [*read_answers(pair, paths), *AskJournal(_journal_path(pair, paths)).read()]
    }
    return list_unanswered(entry, plan.requests, known)


def has_unanswered_requests(benchmark: str, entry: ChatModel, paths: DataPaths) -> bool:
    """Whether a model was not asked yet all that is usually asked about a built benchmark.

    Raises as :func:`read_texts_of_benchmark` and :func:`plan_asking` do.
    """
    return bool(
        find_missing_requests(plan_asking(read_texts_of_benchmark(benchmark, paths), AskOptions()), entry, paths)
    )


def ask_pair(
    plan: AskPlan,
    entry: ChatModel,
    paths: DataPaths,
    run_id: str,
    allowance: Allowance,
    *,
    keeps_text: bool,
    tell: Callable[[str], None],
    on_answer: Callable[[int], None] = lambda answered: None,
) -> AskReport:
    """Ask what is missing, and write what came back and what follows of it.

    A run that was killed is finished: its answers are in the journal, and nothing is asked twice. Where asking ends
    early (a limit, a refusal of the interface), what came is written before the error is raised. Raises HeldError where
    another process asks for the same pair.
    """
    pair = Pair(plan.texts.name, entry.name)
    journal = AskJournal(_journal_path(pair, paths))
    fault: AuditError | None = None
    with journal.hold():
        missing = find_missing_requests(plan, entry, paths)
        try:
            ask_missing(entry, missing, journal, allowance, keeps_text=keeps_text, tell=tell, on_answer=on_answer)
        except AuditError as error:
            fault = error
        fitting = {one.digest_for(entry) for one in [*plan.requests, *_list_requests_of_other_rungs(plan)]}
        origin = RowOrigin(
            model_fingerprint=entry.fingerprint,
            benchmark_digest=plan.texts.benchmark_digest,
            settings={
                "rungs": list(plan.options.rungs),
                "headline": plan.options.headline,
                "draws": plan.options.draws,
                "passages": plan.options.passages,
                "questions": len(plan.questions),
            },
        )
        writing = _Writing(pair, plan.texts, LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION), origin)
        report = writing.conclude(
            journal.read(), fitting, paths, headline=plan.options.headline, questions=plan.questions
        )
        journal.discard()
    if fault is not None:
        raise fault
    return report


def ask_about_benchmark(
    benchmark: str,
    model: str,
    paths: DataPaths,
    run_id: str,
    *,
    rungs: Sequence[str],
    headline: str,
    draws: int,
    passages: int,
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    keeps_text: bool,
    tell: Callable[[str], None],
) -> AskReport:
    """As :func:`ask_pair`, with benchmark and entry by their names."""
    entry = load_chat_models().named(model)
    options = AskOptions.from_names(rungs, headline, draws, passages)
    allowance = Allowance(entry, AskLimits(max_requests, max_tokens, max_cost))
    plan = plan_asking(read_texts_of_benchmark(benchmark, paths), options)
    return ask_pair(plan, entry, paths, run_id, allowance, keeps_text=keeps_text, tell=tell)


def keep_outputs(
    texts: AskedTexts, outputs: Iterable[HandedOutput], model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> AskReport:
    """Measure outputs that somebody else got of ``model``, and write them and what follows of them.

    What was handed over before counts once, and together with what is new.
    """
    pair, documents = Pair(texts.name, model), {one.name: one for one in texts.documents}
    counts: Counter[tuple[str, int | None]] = Counter()
    rows: dict[str, Mapping[str, Any]] = {}
    for output in outputs:
        place = (output.document, output.passage_number)
        row = build_handed_over_row(output, documents[output.document], counts[place], keeps_text=keeps_text)
        counts[place] += 1
        rows[row["request_sha256"]] = row
    fitting = {row["request_sha256"] for row in read_answers(pair, paths) if row["rung"] == _HANDED_OVER} | rows.keys()
    origin = RowOrigin(benchmark_digest=texts.benchmark_digest, settings={"headline": _HANDED_OVER})
    writing = _Writing(pair, texts, LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION), origin)
    return writing.conclude(list(rows.values()), fitting, paths, headline=_HANDED_OVER)


def read_answers(pair: Pair, paths: DataPaths) -> list[dict[str, Any]]:
    """Every answer of a pair, of all runs. Raises DataError where a file is not as it was written."""
    folder = _folder(pair, paths)
    runs = sorted(file.stem.removeprefix("run_id=") for file in folder.glob("run_id=*.parquet"))
    label = f"the answers of {pair.model} about {pair.benchmark}"
    return [row for run in runs for row in store.read(paths, CHAT_ANSWERS, pair, label=label, run_id=run).to_pylist()]


def list_quiz_requests(questions: Sequence[Question], documents: Sequence[SearchedDocument]) -> list[AskRequest]:
    """The requests of the quiz: every question in all 24 orders of its options."""
    known = {document.name: document for document in documents}
    return [
        AskRequest(
            known[question.document],
            question.number,
            question.span,
            question.span,
            "quiz",
            order,
            build_quiz_prompt(question, order, known[question.document].title),
            len(level(question.passage)),
            right_choice=arrangement.index(0),
        )
        for question in questions
        for order, arrangement in enumerate(ORDERS)
    ]


def _list_requests_of_other_rungs(plan: AskPlan) -> list[AskRequest]:
    """What an earlier run asked in the same way at rungs that this one does not name: its answers count as well."""
    if not plan.requests:
        return []
    others = tuple(rung for rung in USUAL if rung not in plan.options.rungs)
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

    def conclude(
        self,
        answers: Rows,
        fitting: Container[str],
        paths: DataPaths,
        *,
        headline: Rung,
        questions: Sequence[Question] = (),
    ) -> AskReport:
        """Write those of the ``answers`` that are new, and what follows of all that are ``fitting``, by digest."""
        earlier = {row["request_sha256"]: row for row in read_answers(self.pair, paths)}
        new = [row for row in answers if row["request_sha256"] not in earlier]
        chosen = [row for row in [*earlier.values(), *new] if row["request_sha256"] in fitting]
        of_quiz = [row for row in chosen if row["rung"] == "quiz"]
        of_ladder = [row for row in chosen if row["rung"] != "quiz"]
        documents = conclude_documents(self.texts.documents, of_ladder, headline=headline)
        quiz = self._conclude_quiz(of_quiz, questions) if questions else []
        # What others were made of comes first: a kill in between loses no answer, and the same command concludes again.
        versions = [
            self._write(table, rows, paths)
            for table, rows in ((CHAT_ANSWERS, new), (CHAT_DOCUMENTS, documents), (CHAT_QUIZ, quiz))
            if rows
        ]
        return AskReport(self.pair, documents, quiz, len(new), versions[-1] if versions else "")

    def _conclude_quiz(self, rows: Rows, questions: Sequence[Question]) -> list[dict[str, Any]]:
        answers = [QuizAnswer(*(row[name] for name in _OF_QUIZ)) for row in rows]
        style = choose_by_style([one.options for one in questions], [one.document for one in questions])
        return conclude_quiz(answers, questions, self.texts.documents, style)

    def _write(self, table: Table, rows: Rows, paths: DataPaths) -> str:
        of_run = {"benchmark": self.pair.benchmark, "model": self.pair.model, "run_id": self.step.run_id}
        filled = table_from_rows([{**row, **of_run} for row in rows], table)
        return store.write(paths, self.step, table, self.pair, filled, upstream=self.texts.upstream, **self.origin)


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
