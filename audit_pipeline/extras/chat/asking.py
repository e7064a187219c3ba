"""The stage that asks a configured chat model about documents, and stores answers and results with their lineage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.extras.chat import DRAWS, PASSAGES
from audit_pipeline.extras.chat.conclusions import conclude_documents
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.extras.chat.imported_outputs import ImportedOutput
from audit_pipeline.extras.chat.prompt_styles import PASSAGE_WORDS, PROMPT_STYLES, AskOptions, AskRequest, list_requests
from audit_pipeline.extras.chat.rows import (
    AskJournal,
    build_imported_row,
    compute_output_digest,
    remove_text,
    send_requests,
)
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.pair_extraction import read_benchmark_documents
from audit_pipeline.models.usage_budget import Budget, Limits
from audit_pipeline.pipeline.user_files import HELD_OUT, Inventory
from audit_pipeline.sources.base import Document, build_document_id
from audit_pipeline.sources.local_files import NAME
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, RowOrigin, read_latest_run
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths, explain_invalid_partition
from audit_pipeline.tables import CHAT_ANSWERS, CHAT_DOCUMENTS, Pair, PromptStyle, digest, text_sha256
from audit_pipeline.tables.table import Table

ASKING_VERSION = "1"
"""Version of the code that asks models, measures answers and computes results."""
_JOURNAL = ".asked.jsonl"
# The prompt style of imported outputs.
_IMPORTED: PromptStyle = "handed over"

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class AskedTexts:
    """The documents that a model is asked about.

    Attributes:
        name: The name of the benchmark, or the user's name for the files.
        documents: The documents. No two have the same text.
        upstream: Data versions of the sources by asset key.
        benchmark_digest: The digest of the benchmark, or None for files.
    """

    name: str
    documents: Sequence[SearchedDocument]
    upstream: Mapping[str, str]
    benchmark_digest: str | None = None


@dataclass(frozen=True)
class AskPlan:
    """The requests about documents, and the options that they were built from."""

    texts: AskedTexts
    options: AskOptions
    requests: Sequence[AskRequest]


@dataclass(frozen=True)
class AskReport:
    """The stored results of a pair of benchmark and model.

    Attributes:
        pair: The benchmark and the model.
        documents: The stored rows of CHAT_DOCUMENTS.
        new_answer_count: Number of answers that this run added.
        data_version: The data version of the rows, or an empty string if no rows were written.
        fault: The error that ended the run early. The caller raises it after it has printed the results.
    """

    pair: Pair
    documents: Rows
    new_answer_count: int
    data_version: str
    fault: AuditError | None = None

    @property
    def unmeasured(self) -> int:
        """Return the number of requests without a measurable answer."""
        return sum(row["requests"] - row["answered"] for row in self.documents)


def read_texts_of_benchmark(benchmark: str, paths: DataPaths) -> AskedTexts:
    """Return the documents of a built benchmark. Its non-members are held out.

    Raises:
        DataError: If the benchmark is not built, failed its checks, or lacks a document.
    """
    built = read_built(paths, benchmark)
    built.require_passed_checks()
    documents = _remove_duplicates(read_benchmark_documents(built, paths))
    return AskedTexts(benchmark, documents, {f"examples/{benchmark}": built.digest}, built.digest)


def read_texts_of_files(inventory: Inventory, name: str, paths: DataPaths) -> AskedTexts:
    """Return the documents of a user's files.

    Raises:
        DataError: If the name is invalid, or a benchmark has the same name.
    """
    problem = explain_invalid_partition("benchmark", name)
    if problem:
        raise DataError(problem)
    if paths.examples(name).exists():
        raise DataError(f"A benchmark has the name '{name}'. Choose another name for the files with --name.")
    documents = _remove_duplicates(_build_document(document) for document in inventory.documents)
    texts = digest(sorted((document.name, document.side, text_sha256(document.text)) for document in documents))
    return AskedTexts(name, documents, {f"files/{name}": texts})


def _build_document(document: Document) -> SearchedDocument:
    return SearchedDocument(
        # Audited and held-out files may have the same names. The command `check` uses the same identifiers.
        build_document_id(NAME, document),
        document.text,
        document.title,
        document.group or document.name,
        document.collection,
        "held_out" if document.collection == HELD_OUT else "audited",
        places=document.places,
    )


def _remove_duplicates(documents: Iterable[SearchedDocument]) -> list[SearchedDocument]:
    """Return the first of all documents with the same text. Requests and answers belong to texts, not to documents."""
    document_by_text: dict[str, SearchedDocument] = {}
    for document in documents:
        document_by_text.setdefault(document.text, document)
    return list(document_by_text.values())


def plan_asking(texts: AskedTexts, options: AskOptions) -> AskPlan:
    """Build the plan: the options and all requests about the documents.

    Raises:
        DataError: If all audited documents are shorter than a passage.
    """
    requests = list_requests(texts.documents, options)
    if not any(request.document.side == "audited" for request in requests):
        raise DataError(
            f"All audited documents have fewer than {PASSAGE_WORDS} words, the length of a passage. Add longer "
            "documents."
        )
    return AskPlan(texts, options, requests)


def plan_from_options(texts: AskedTexts, entry: ChatModel, paths: DataPaths, options: AskRunOptions) -> AskPlan:
    """Build the plan for the options of a user.

    If the user names no headline style, the headline style of an earlier run of the pair is used.

    Raises:
        DataError: If all audited documents are shorter than a passage.
        ConfigError: If a prompt style is unknown, or the headline style is not among the asked styles.
    """
    headline = options.headline or _read_stored_headline(Pair(texts.name, entry.name), paths)
    ask_options = AskOptions.from_names(entry.interface, options.rungs, headline, options.draws, options.passages)
    return plan_asking(texts, ask_options)


def find_missing_requests(plan: AskPlan, entry: ChatModel, paths: DataPaths) -> list[AskRequest]:
    """Return the requests of the plan that have no stored answer yet, not even from a killed run.

    Raises:
        DataError: If imported outputs of the model exist under this name.
        ConfigError: If an earlier run of the pair had another headline style.
    """
    pair = Pair(plan.texts.name, entry.name)
    answers = read_answers(pair, paths)
    if any(row["rung"] == _IMPORTED for row in answers):
        raise DataError(
            f"'{pair.benchmark}' already contains imported outputs of {entry.name}. Choose another --name for the "
            "texts."
        )
    stored_headline = _read_stored_headline(pair, paths)
    if stored_headline not in (None, plan.options.headline):
        raise ConfigError(
            f"An earlier run asked {entry.name} about '{pair.benchmark}' with the headline style '{stored_headline}'. "
            "The headline style cannot change afterwards. Remove --headline, or choose another --name for the texts."
        )
    answered = {row["request_sha256"] for row in [*answers, *_open_journal(pair, paths).read()]}
    return [request for request in plan.requests if request.compute_digest(entry) not in answered]


def _read_stored_headline(pair: Pair, paths: DataPaths) -> str | None:
    """Return the headline style of earlier runs of a pair, or None without an earlier run."""
    run = _find_latest_run(pair, paths)
    if run is None:
        return None
    return str(run.settings["headline"])


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
    """Send the missing requests, and write the answers and the results.

    The answers of a killed run are in the journal and are not requested again. If an error ends the run early, the
    answers so far are written, and the report contains the error. Such an error is a reached limit or a failure of the
    server.

    Args:
        plan: The requests.
        entry: The chat model.
        paths: The data folder.
        run_id: The identifier of the run.
        budget: The budget of the run.
        keeps_text: Store prompts, answers and excerpts. Otherwise only their measures are stored.
        notify: Receives messages about retries.
        on_answer: Receives the number of answers after each answer.

    Raises:
        HeldError: If another process asks the same model about the same texts.
        DataError: If imported outputs of the model exist under this name.
        ConfigError: If an earlier run of the pair had another headline style.
    """
    pair = Pair(plan.texts.name, entry.name)
    journal = _open_journal(pair, paths)
    fault: AuditError | None = None
    with journal.hold():
        missing = find_missing_requests(plan, entry, paths)
        try:
            send_requests(entry, missing, journal, budget, keeps_text=keeps_text, notify=notify, on_answer=on_answer)
        except AuditError as error:
            fault = error
        answers = journal.read()
        if not keeps_text:
            answers = list(map(remove_text, answers))
        requests = list(plan.requests)
        if requests:
            # Answers of earlier runs to other prompt styles with the same options count, too.
            requests += list_requests(plan.texts.documents, replace(plan.options, rungs=PROMPT_STYLES))
        relevant_digests = {request.compute_digest(entry) for request in requests}
        origin = RowOrigin(
            model_fingerprint=entry.fingerprint,
            benchmark_digest=plan.texts.benchmark_digest,
            settings=asdict(plan.options),
        )
        report = _write_results(
            pair, plan.texts, run_id, origin, answers, relevant_digests, paths, plan.options.headline
        )
        journal.path.unlink(missing_ok=True)
    return replace(report, fault=fault)


def write_outputs(
    texts: AskedTexts, outputs: Iterable[ImportedOutput], model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> AskReport:
    """Measure outputs that somebody else requested from a model, and write them and the results.

    Outputs of earlier imports count, too. An output that was imported before counts once.

    Raises:
        DataError: If the name of the model is invalid, or if answers to requests of corpus-audit are stored for these
            texts.
    """
    pair = Pair(texts.name, model)
    document_by_name = {document.name: document for document in texts.documents}
    problem = explain_invalid_partition("model", model)
    if problem:
        raise DataError(problem)
    earlier = read_answers(pair, paths)
    if any(row["rung"] != _IMPORTED for row in earlier):
        raise DataError(
            f"'{texts.name}' already contains answers that {model} gave to corpus-audit. Choose another --name for "
            "imported outputs."
        )
    n_outputs_by_passage: Counter[tuple[str, object]] = Counter()
    n_repeats: Counter[str] = Counter()
    rows: list[Mapping[str, Any]] = []
    # The outputs are sorted by document, so that the matcher of each document is built once.
    for output in sorted(outputs, key=lambda output: output.document):
        output_digest = compute_output_digest(output)
        if output.request_id is not None and n_repeats[output_digest]:
            continue
        document = document_by_name[output.document]
        passage = (output.document, output.passage)
        number = n_outputs_by_passage[passage]
        rows.append(build_imported_row(output, document, number, n_repeats[output_digest], keeps_text=keeps_text))
        n_outputs_by_passage[passage] += 1
        n_repeats[output_digest] += 1
    relevant_digests = {row["request_sha256"] for row in [*earlier, *rows]}
    origin = RowOrigin(benchmark_digest=texts.benchmark_digest, settings={"headline": _IMPORTED})
    return _write_results(pair, texts, run_id, origin, rows, relevant_digests, paths, _IMPORTED)


def read_answers(pair: Pair, paths: DataPaths) -> list[dict[str, Any]]:
    """Return the answers of all runs of a pair.

    Raises:
        DataError: If a file is corrupt.
    """
    label = f"the answers of {pair.model} about {pair.benchmark}"
    run_ids = sorted(file.stem.removeprefix("run_id=") for file in _get_folder(pair, paths).glob("run_id=*.parquet"))
    rows: list[dict[str, Any]] = []
    for run_id in run_ids:
        rows += store.read(paths, CHAT_ANSWERS, pair, label=label, run_id=run_id).to_pylist()
    return rows


def _write_results(
    pair: Pair,
    texts: AskedTexts,
    run_id: str,
    origin: RowOrigin,
    answers: Rows,
    relevant_digests: Container[str],
    paths: DataPaths,
    headline: PromptStyle,
) -> AskReport:
    """Write the new answers, and the results of all answers to relevant requests.

    Args:
        pair: The pair of benchmark and model.
        texts: The documents.
        run_id: The identifier of the run.
        origin: The columns of the lineage.
        answers: Rows of CHAT_ANSWERS. Some may be stored already.
        relevant_digests: The digests of the requests whose answers count.
        paths: The data folder.
        headline: The style whose results decide the conclusion.
    """
    step = LineageStep.now(run_id, CHAT_ANSWERS.name, ASKING_VERSION)

    def write(table: Table, rows: Rows) -> str:
        keys = {"benchmark": pair.benchmark, "model": pair.model, "run_id": run_id}
        arrow_table = table_from_rows([{**row, **keys} for row in rows], table)
        return store.write(paths, step, table, pair, arrow_table, upstream=texts.upstream, **origin)

    stored = {row["request_sha256"]: row for row in read_answers(pair, paths)}
    new = {row["request_sha256"]: row for row in answers if row["request_sha256"] not in stored}
    # Documents are identified by text. The name and the side of a document may have changed since an earlier run.
    document_by_sha256 = {text_sha256(document.text): document for document in texts.documents}
    relevant_rows: list[Mapping[str, Any]] = []
    for request_digest, row in {**stored, **new}.items():
        document = document_by_sha256.get(row["document_sha256"])
        if document is not None and request_digest in relevant_digests:
            relevant_rows.append({**row, "document_id": document.name, "side": document.side})
    results = conclude_documents(texts.documents, relevant_rows, headline=headline)
    # The answers are written before the results. After a kill between them, the same command only computes the results.
    if new:
        write(CHAT_ANSWERS, list(new.values()))
    data_version = ""
    # An empty table replaces stale results about other texts.
    if results or _find_latest_run(pair, paths) is not None:
        data_version = write(CHAT_DOCUMENTS, results)
    return AskReport(pair, results, len(new), data_version)


def _find_latest_run(pair: Pair, paths: DataPaths) -> Entry | None:
    """Return the ledger entry of the latest results, or None without results.

    Raises:
        DataError: If the entry is corrupt.
    """
    folder = paths.run_file(CHAT_DOCUMENTS.name, pair.partition, "any").parent
    if not any(folder.glob("*.parquet")):
        return None
    return read_latest_run(paths, CHAT_DOCUMENTS.name, pair.partition)


def _get_folder(pair: Pair, paths: DataPaths) -> Path:
    return paths.run_file(CHAT_ANSWERS.name, pair.partition, "any").parent


def _open_journal(pair: Pair, paths: DataPaths) -> AskJournal:
    return AskJournal(_get_folder(pair, paths) / _JOURNAL)


class AskRunOptions(BaseModel):
    """The options and limits of one run. The limits of the entry apply, too."""

    rungs: list[str] = Field(
        default=[*PROMPT_STYLES], description="prompt styles in which the model is asked (docs/ask.md)"
    )
    headline: str | None = Field(
        default=None,
        description="prompt style whose results decide the conclusion; null: the headline style of earlier runs, else "
        "instruction, or prefix for interface: completions",
    )
    draws: int = Field(
        default=DRAWS, ge=0, description="number of randomly drawn answers in addition to the answer at temperature 0"
    )
    passages: int = Field(default=PASSAGES, ge=1, description="maximum number of passages per document")
    max_requests: int | None = Field(
        default=None, ge=1, description="maximum number of requests; null: the limit of the entry"
    )
    max_tokens: int | None = Field(
        default=None, ge=1, description="maximum number of prompt and answer tokens; null: the limit of the entry"
    )
    max_cost: float | None = Field(
        default=None,
        gt=0,
        description="maximum cost, in the currency of the entry's prices; null: the limit of the entry",
    )

    @property
    def limits(self) -> Limits:
        """Return the limits of the run."""
        return Limits(self.max_tokens, self.max_cost, self.max_requests)
