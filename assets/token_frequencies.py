"""The asset ``token_frequencies``: how often tokens occur in reference corpora, which dc_pdd is calibrated with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.frequencies import (
    build_frequencies,
    corpus_from_entry,
    find_countable_corpus,
    read_metadata_if_whole,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.stage import (
    CheckResult,
    StageCheck,
    StageJob,
    StageResult,
    StageRun,
    UiMetadata,
    audit_asset,
)
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.tables import TOKEN_FREQUENCIES

_MAX_LOGGED = 20


@audit_asset(
    partitions=("corpus", "model"),
    deps=["documents/sotu"],
    tables=[TOKEN_FREQUENCIES],
    group="3_model_runs",
    job=StageJob("count_tokens", "Count the tokens of reference corpora, for dc_pdd.", "tokens counted"),
    kinds={"numpy", "parquet"},
    checks={
        "counts_belong_to_tokenizer": StageCheck(
            "The table is of its model's tokenizer and holds at least one token.", is_warning=False
        ),
        "every_row_counted": StageCheck("Every row of the corpus was counted; those that could not are named."),
    },
    lock="references",
    is_optional=True,
    progress_message="counting how often tokens occur in the corpus {} for {} (the detector dc_pdd compares with it)",
    blocked_message="the tokens of {} are counted first",
    missing_message="its tokens have not been counted with the model's tokenizer",
    change_messages={
        "settings": "its settings or documents changed since its tokens were counted",
        "corpus": "its settings or documents changed since its tokens were counted",
    },
    sources_purpose="everyday texts, whose tokens are counted for the detector dc_pdd",
)
def token_frequencies(run: StageRun) -> StageResult:
    """How often each token occurs in a corpus of everyday texts (config/references.yaml); the detector dc_pdd compares
    with it. Models with one tokenizer share one table; a count that is stopped goes on where it was."""
    corpus, name = run.partition_names
    notify = progress_logger(run.log)
    report = build_frequencies(
        load_references().get_entry(corpus),
        run.models.tokenized(name, run.paths),
        run.paths,
        run.step(),
        on_progress=lambda count: notify(f"{run.partition}: {count.progress_text}"),
    )
    skipped_rows = report.count.skipped.first[:_MAX_LOGGED] if report.count else ()
    for row in skipped_rows:
        run.log.warning(f"{run.partition}: skipped {row.location}: {row.reason}")
    tokens = report.read_number("tokens")
    skipped = report.read_number("skipped_rows")
    values = {
        "tokens": tokens,
        "documents": report.read_number("documents"),
        "skipped rows": skipped,
        "up to date before": report.count is None,
        "tokenizer_fingerprint": report.tokenizer_fingerprint,
        "corpus digest": report.metadata["corpus_digest"],
        "data_version": report.data_version,
    }
    return StageResult(
        report.data_version,
        UiMetadata(report.read_number("vocab_size"), values, paths={"path": report.path}),
        {
            "counts_belong_to_tokenizer": CheckResult(tokens > 0, None if tokens else "the table holds no token"),
            "every_row_counted": CheckResult(not skipped, metadata=UiMetadata(values={"rows": skipped})),
        },
    )


@token_frequencies.partitions
def list_counts(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return each model of the scope with the corpus that an audit counts for it."""
    return [f"{corpus.name}|{name}" for name, corpus in _iterate_countable(scope, state)]


@token_frequencies.sources
def list_sources_of_corpora(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the sources whose documents are the corpora of the scope's models."""
    return [corpus.package for _, corpus in _iterate_countable(scope, state) if corpus.package is not None]


@token_frequencies.inputs
def get_frequencies_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the settings and the content of the corpus."""
    corpus = load_references(state.config).get_entry(partition.partition("|")[0])
    inputs: dict[str, str | None] = {}
    if corpus.package is not None:
        inputs |= state.build_documents_input(corpus.package)
    inputs |= {"settings": corpus.settings_digest, "corpus": None}
    # The bytes of files, which may be many, are read when they are counted.
    if corpus.package is not None and state.paths.documents(corpus.package).exists():
        with suppress(AuditError):
            inputs["corpus"] = corpus_from_entry(corpus, state.paths).digest
    return inputs


@token_frequencies.recorded
def get_recorded_frequencies_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the settings and the content of the corpus that were counted."""
    corpus, _, name = partition.partition("|")
    model = state.models.get(name)
    counted = read_metadata_if_whole(corpus, model, state.paths) if isinstance(model, TokenizedModel) else None
    return counted and {"settings": counted.get("settings_digest", ""), "corpus": counted["corpus_digest"]}


def _iterate_countable(scope: Scope, state: WorkspaceState) -> Iterator[tuple[str, ReferenceEntry]]:
    """Yield the models of the scope, each with the corpus that an audit counts for it."""
    for name in dict.fromkeys([*scope.models, *(pair.model for pair in scope.pairs)]):
        model = state.models.get(name)
        if isinstance(model, TokenizedModel):
            try:
                corpus = find_countable_corpus(model.entry)
            except ConfigError:
                # Counting reports what is wrong with the entry; the audit goes on without it.
                continue
            if corpus is not None:
                yield name, corpus
