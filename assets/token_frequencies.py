"""The asset ``token_frequencies``: token counts of reference corpora, which calibrate the detector dc_pdd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.frequency_need import (
    build_frequencies,
    corpus_from_entry,
    find_countable_corpus,
    read_metadata_if_intact,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.tables import TOKEN_FREQUENCIES

_MAX_LOGGED = 20


@stage.audit_asset(
    partitions=("corpus", "model"),
    deps=["documents/sotu"],
    tables=[TOKEN_FREQUENCIES],
    group="3_model_runs",
    job=stage.StageJob("count_tokens", "Count the tokens of reference corpora, for dc_pdd.", "tokens counted"),
    kinds={"numpy", "parquet"},
    checks={
        "counts_belong_to_tokenizer": stage.StageCheck(
            "The table was counted with the model's tokenizer and has at least one token.", is_warning=False
        ),
        "every_row_counted": stage.StageCheck(
            "Every row of the corpus was counted. Skipped rows are listed in the log."
        ),
    },
    lock="references",
    is_optional=True,
    progress_message="counting how often tokens occur in the corpus {} for {} (the detector dc_pdd compares with it)",
    blocked_message="the tokens of {} are counted first",
    missing_message="the tokens of the corpus have not been counted with the model's tokenizer",
    change_messages={
        "settings": "the corpus's settings changed since its tokens were counted",
        "corpus": "the corpus's documents changed since its tokens were counted",
    },
    sources_purpose="everyday texts, whose tokens are counted for the detector dc_pdd",
)
def token_frequencies(run: stage.StageRun) -> stage.StageResult:
    """Count how often each token occurs in a corpus of everyday texts.

    Corpora are declared in config/references.yaml. The detector dc_pdd compares the tokens of a text with these counts.
    Models with the same tokenizer share one table. A count that was stopped continues with the next document.
    """
    corpus, name = run.partition_names
    notify = progress_logger(run.log)
    report = build_frequencies(
        load_references().get_entry(corpus),
        run.models.tokenized(name, run.paths),
        run.paths,
        run.step(),
        on_progress=lambda count: notify(f"{run.partition}: {count.progress_text}"),
    )
    if report.count is not None:
        for row in report.count.skipped.first[:_MAX_LOGGED]:
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
    return stage.StageResult(
        report.data_version,
        stage.UiMetadata(report.read_number("vocab_size"), values, paths={"path": report.path}),
        {
            "counts_belong_to_tokenizer": stage.CheckResult(tokens > 0, None if tokens else "the table has no token"),
            "every_row_counted": stage.CheckResult(not skipped, metadata=stage.UiMetadata(values={"rows": skipped})),
        },
    )


@token_frequencies.partitions
def list_counts(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return one partition per model of the scope: the model with the corpus that an audit counts for it."""
    return [f"{corpus.name}|{name}" for name, corpus in _iterate_countable(scope, state)]


@token_frequencies.sources
def list_sources_of_corpora(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the sources whose documents are the corpora of the scope's models."""
    return [corpus.package for _, corpus in _iterate_countable(scope, state) if corpus.package is not None]


@token_frequencies.inputs
def get_frequencies_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the corpus: its settings, its documents and its content."""
    corpus = load_references(state.config).get_entry(partition.partition("|")[0])
    inputs: dict[str, str | None] = {}
    if corpus.package is not None:
        inputs |= state.build_documents_input(corpus.package)
    inputs |= {"settings": corpus.settings_digest, "corpus": None}
    # Corpora of files can be large, so their content is read only when they are counted.
    if corpus.package is not None and state.paths.documents(corpus.package).exists():
        with suppress(AuditError):
            inputs["corpus"] = corpus_from_entry(corpus, state.paths).digest
    return inputs


@token_frequencies.recorded
def get_recorded_frequencies_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the versions of the corpus that was counted."""
    corpus, _, name = partition.partition("|")
    model = state.models.get(name)
    if not isinstance(model, TokenizedModel):
        return None
    counted = read_metadata_if_intact(corpus, model, state.paths)
    return counted and {"settings": counted.get("settings_digest", ""), "corpus": counted["corpus_digest"]}


def _iterate_countable(scope: Scope, state: WorkspaceState) -> Iterator[tuple[str, ReferenceEntry]]:
    """Yield the models of the scope, each with the corpus that an audit counts for it."""
    for name in dict.fromkeys([*scope.models, *(pair.model for pair in scope.pairs)]):
        model = state.models.get(name)
        if not isinstance(model, TokenizedModel):
            continue
        try:
            corpus = find_countable_corpus(model.entry)
        except ConfigError:
            # The job count_tokens reports the error of the entry. An audit continues without the corpus.
            continue
        if corpus is not None:
            yield name, corpus
