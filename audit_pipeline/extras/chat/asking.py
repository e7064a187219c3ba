"""Asks models that answer in words: from documents and an entry to what came back, with its lineage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.extras.chat.conclusions import conclude_documents
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.extras.chat.defaults import DRAWS, PASSAGES
from audit_pipeline.extras.chat.given_outputs import HandedOutput
from audit_pipeline.extras.chat.prompt_styles import LADDER, WINDOW, AskOptions, AskRequest, list_requests
from audit_pipeline.extras.chat.rows import AskJournal, ask_missing, build_handed_over_row, identify_output, remove_text
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.pair_extraction import read_benchmark_documents
from audit_pipeline.models.usage_budget import Budget, Limits
from audit_pipeline.pipeline.user_files import HELD_OUT, Inventory
from audit_pipeline.sources.base import document_id
from audit_pipeline.sources.local_files import NAME
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, RowOrigin, read_latest_run
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths, explain_invalid_partition
from audit_pipeline.tables import CHAT_ANSWERS, CHAT_DOCUMENTS, Pair, Rung, digest, text_sha256
from audit_pipeline.tables.table import Table

ASKING_VERSION = "1"
"""Of the code that asks, measures and concludes."""
_JOURNAL = ".asked.jsonl"
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
    documents = _list_distinct(
        SearchedDocument(
            # As `check` names them: both sides may have a file of one name.
            document_id(NAME, document),
            document.text,
            document.title,
            document.group or document.name,
            document.collection,
            "held_out" if document.collection == HELD_OUT else "audited",
            places=document.places,
        )
        for document in inventory.documents
    )
    texts = digest(sorted((document.name, document.side, text_sha256(document.text)) for document in documents))
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


def plan_from_options(texts: AskedTexts, entry: ChatModel, paths: DataPaths, options: AskingOptions) -> AskPlan:
    """What a user asks about the texts; without a headline the one that was named first.

    Raises as :func:`plan_asking`, and ConfigError for an unknown rung and for a headline that is not asked.
    """
    named = options.headline or _read_named_headline(Pair(texts.name, entry.name), paths)
    asked = AskOptions.from_names(entry.interface, options.rungs, named, options.draws, options.passages)
    return plan_asking(texts, asked)


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
    if (named := _read_named_headline(pair, paths)) not in (None, plan.options.headline):
        raise ConfigError(
            f"the rung '{named}' was named to answer before {entry.name} was asked about {pair.benchmark}, and stays: "
            "leave --headline out, or give the texts another --name"
        )
    known = {row["request_sha256"] for row in [*answers, *_open_journal(pair, paths).read()]}
    return [request for request in plan.requests if request.compute_digest(entry) not in known]


def _read_named_headline(pair: Pair, paths: DataPaths) -> str | None:
    """The rung that was named to answer when a pair was first asked; None where it was not asked yet."""
    run = _find_latest_run(pair, paths)
    return None if run is None else str(run.settings["headline"])


def ask_pair(
    plan: AskPlan,
    entry: ChatModel,
    paths: DataPaths,
    run_id: str,
    budget: Budget,
    *,
    keeps_text: bool,
    notify: Callable[[str], None],
    on_answer: Callable[[int], None] = lambda answered: None,
) -> AskReport:
    """Ask what is missing, and write what came back and what follows of it.

    A run that was killed is finished: its answers are in the journal, and nothing is asked twice. Where asking ends
    early (a limit, a refusal of the interface), what came is written, and the report holds the error. Raises HeldError
    where another process asks for the same pair, and as :func:`find_missing_requests`.
    """
    options, pair = plan.options, Pair(plan.texts.name, entry.name)
    journal = _open_journal(pair, paths)
    fault: AuditError | None = None
    with journal.hold():
        missing = find_missing_requests(plan, entry, paths)
        try:
            ask_missing(entry, missing, journal, budget, keeps_text=keeps_text, notify=notify, on_answer=on_answer)
        except AuditError as error:
            fault = error
        answers = journal.read() if keeps_text else list(map(remove_text, journal.read()))
        # What an earlier run asked in the same way at rungs that this one does not name counts as well.
        same_way = list_requests(plan.texts.documents, replace(options, rungs=LADDER)) if plan.requests else []
        fitting = {request.compute_digest(entry) for request in [*plan.requests, *same_way]}
        origin = RowOrigin(
            model_fingerprint=entry.fingerprint, benchmark_digest=plan.texts.benchmark_digest, settings=asdict(options)
        )
        report = _write_conclusions(pair, plan.texts, run_id, origin, answers, fitting, paths, options.headline)
        journal.path.unlink(missing_ok=True)
    return replace(report, fault=fault)


def write_outputs(
    texts: AskedTexts, outputs: Iterable[HandedOutput], model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> AskReport:
    """Measure outputs that somebody else got of ``model``, and write them and what follows of them.

    What was handed over before counts once, and together with what is new. Raises DataError where the model was asked
    under this name here, or its own name cannot be kept.
    """
    pair, documents = Pair(texts.name, model), {document.name: document for document in texts.documents}
    if problem := explain_invalid_partition("model", model):
        raise DataError(problem)
    earlier = read_answers(pair, paths)
    if any(row["rung"] != _HANDED_OVER for row in earlier):
        raise DataError(f"{model} was asked about {texts.name} here: give outputs that are handed over another --name")
    numbers: Counter[tuple[str, object]] = Counter()
    repeats: Counter[str] = Counter()
    rows: list[Mapping[str, Any]] = []
    # By document: a matcher is built once for each.
    for output in sorted(outputs, key=lambda output: output.document):
        known, passage = identify_output(output), (output.document, output.passage)
        if output.request_id is not None and repeats[known]:
            continue
        document, number = documents[output.document], numbers[passage]
        rows.append(build_handed_over_row(output, document, number, repeats[known], keeps_text=keeps_text))
        numbers[passage] += 1
        repeats[known] += 1
    fitting = {row["request_sha256"] for row in [*earlier, *rows]}
    origin = RowOrigin(benchmark_digest=texts.benchmark_digest, settings={"headline": _HANDED_OVER})
    return _write_conclusions(pair, texts, run_id, origin, rows, fitting, paths, _HANDED_OVER)


def read_answers(pair: Pair, paths: DataPaths) -> list[dict[str, Any]]:
    """Every answer of a pair, of all runs. Raises DataError where a file is not as it was written."""
    runs = sorted(file.stem.removeprefix("run_id=") for file in _find_folder(pair, paths).glob("run_id=*.parquet"))
    label = f"the answers of {pair.model} about {pair.benchmark}"
    return [row for run in runs for row in store.read(paths, CHAT_ANSWERS, pair, label=label, run_id=run).to_pylist()]


def _write_conclusions(
    pair: Pair,
    texts: AskedTexts,
    run_id: str,
    origin: RowOrigin,
    answers: Rows,
    fitting: Container[str],
    paths: DataPaths,
    headline: Rung,
) -> AskReport:
    """Write those of the ``answers`` that are new, and what follows of all that are ``fitting``, by digest."""
    step = LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION)

    def write(table: Table, rows: Rows) -> str:
        of_run = {"benchmark": pair.benchmark, "model": pair.model, "run_id": run_id}
        filled = table_from_rows([{**row, **of_run} for row in rows], table)
        return store.write(paths, step, table, pair, filled, upstream=texts.upstream, **origin)

    earlier = {row["request_sha256"]: row for row in read_answers(pair, paths)}
    new = {row["request_sha256"]: row for row in answers if row["request_sha256"] not in earlier}
    # By its text: a document may have another name now, or be on the other side.
    documents = {text_sha256(document.text): document for document in texts.documents}
    chosen = [
        {**row, "document_id": document.name, "side": document.side}
        for sha256, row in {**earlier, **new}.items()
        if sha256 in fitting and (document := documents.get(row["document_sha256"])) is not None
    ]
    found = conclude_documents(texts.documents, chosen, headline=headline)
    # Answers come first: a kill in between loses none, and the same command concludes again.
    if new:
        write(CHAT_ANSWERS, list(new.values()))
    # What was concluded of other texts is no longer current.
    is_concluded = found or _find_latest_run(pair, paths) is not None
    return AskReport(pair, found, len(new), write(CHAT_DOCUMENTS, found) if is_concluded else "")


def _find_latest_run(pair: Pair, paths: DataPaths) -> Entry | None:
    """The run whose conclusions are the current ones; None without any. Raises DataError for a damaged entry."""
    folder = paths.run_file(CHAT_DOCUMENTS.name, pair.partition, "any").parent
    return read_latest_run(paths, CHAT_DOCUMENTS.name, pair.partition) if any(folder.glob("*.parquet")) else None


def _find_folder(pair: Pair, paths: DataPaths) -> Path:
    return paths.run_file(CHAT_ANSWERS.name, pair.partition, "any").parent


def _open_journal(pair: Pair, paths: DataPaths) -> AskJournal:
    return AskJournal(_find_folder(pair, paths) / _JOURNAL)


class AskingOptions(BaseModel):
    """How a model is asked, and the most that one run may take; the entry's own limits hold besides."""

    rungs: list[str] = Field(default=[*LADDER], description="how it is asked (docs/ask.md)")
    headline: str | None = Field(
        default=None,
        description="the rung whose numbers answer; null: instruction, or prefix for interface: completions",
    )
    draws: int = Field(default=DRAWS, ge=0, description="drawn answers in addition to the likeliest")
    passages: int = Field(default=PASSAGES, ge=1, description="the most passages of a document")
    max_requests: int | None = Field(default=None, ge=1, description="the most requests; null: as the entry says")
    max_tokens: int | None = Field(default=None, ge=1, description="the most tokens, of prompts and answers")
    max_cost: float | None = Field(default=None, gt=0, description="the most that it may cost, by the entry's prices")

    @property
    def limits(self) -> Limits:
        """The most that one run may take, besides the entry's own limits."""
        return Limits(self.max_tokens, self.max_cost, self.max_requests)
