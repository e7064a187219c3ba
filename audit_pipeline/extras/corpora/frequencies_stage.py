"""The stage that counts the tokens of reference corpora: what dc_pdd is calibrated with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

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
from audit_pipeline.pipeline.stage import Check, Finding, Inputs, Job, Made, Shown, Stage, StageRun
from audit_pipeline.tables import TOKEN_FREQUENCIES

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Scope, Situation

_LOGGED = 20


def _count(run: StageRun) -> Made:
    corpus, name = run.partition_names
    notify = progress_logger(run.log)
    report = build_frequencies(
        load_references().named(corpus),
        run.models.tokenized(name, run.paths),
        run.paths,
        run.step(),
        on_progress=lambda count: notify(f"{run.partition}: {count.progress_text}"),
    )
    for row in report.count.skipped.first[:_LOGGED] if report.count else ():
        run.log.warning(f"{run.partition}: skipped {row.location}: {row.reason}")
    tokens, skipped = report.read_number("tokens"), report.read_number("skipped_rows")
    values = {
        "tokens": tokens,
        "documents": report.read_number("documents"),
        "skipped rows": skipped,
        "up to date before": report.count is None,
        "tokenizer_fingerprint": report.tokenizer_fingerprint,
        "corpus digest": report.metadata["corpus_digest"],
        "data_version": report.data_version,
    }
    return Made(
        report.data_version,
        Shown(report.read_number("vocab_size"), values, paths={"path": report.path}),
        {
            "counts_belong_to_tokenizer": Finding(tokens > 0, None if tokens else "the table holds no token"),
            "every_row_counted": Finding(not skipped, shown=Shown(values={"rows": skipped})),
        },
    )


def _iterate_countable(scope: Scope, situation: Situation) -> Iterator[tuple[str, ReferenceEntry]]:
    """The models of the scope, each with the corpus that an audit counts for it."""
    for name in dict.fromkeys([*scope.models, *(pair.model for pair in scope.pairs)]):
        model = situation.models.get(name)
        if isinstance(model, TokenizedModel):
            try:
                corpus = find_countable_corpus(model.entry)
            except ConfigError:
                # Counting raises what is wrong with the entry; the audit goes on without.
                continue
            if corpus is not None:
                yield name, corpus


def _list_sources(scope: Scope, situation: Situation) -> Iterable[str]:
    """The sources whose documents are the corpora of the scope's models."""
    return [corpus.package for _, corpus in _iterate_countable(scope, situation) if corpus.package is not None]


def _list_counts(scope: Scope, situation: Situation) -> Iterable[str]:
    return [f"{corpus.name}|{name}" for name, corpus in _iterate_countable(scope, situation)]


def _inputs(partition: str, situation: Situation) -> Inputs:
    corpus = load_references(situation.config).named(partition.partition("|")[0])
    source = {} if corpus.package is None else situation.build_presence_input("documents", corpus.package)
    inputs: dict[str, str | None] = {**source, "settings": corpus.settings_digest, "corpus": None}
    # The bytes of files, which may be many, are looked at when they are counted.
    if corpus.package is not None and situation.paths.documents(corpus.package).exists():
        with suppress(AuditError):
            inputs["corpus"] = corpus_from_entry(corpus, situation.paths).digest
    return inputs


def _recorded(partition: str, situation: Situation) -> Inputs | None:
    corpus, _, name = partition.partition("|")
    model = situation.models[name]
    counted = read_metadata_if_whole(corpus, model, situation.paths) if isinstance(model, TokenizedModel) else None
    return counted and {"settings": counted.get("settings_digest", ""), "corpus": counted["corpus_digest"]}


FREQUENCIES_STAGE = Stage(
    name="token_frequencies",
    description="How often each token occurs in a corpus of everyday texts (config/references.yaml); the detector "
    "dc_pdd compares with it. Models with one tokenizer share one table; a count that is stopped goes "
    "on where it was.",
    dimensions=("corpus", "model"),
    group="3_model_runs",
    job=Job("count_tokens", "Count the tokens of reference corpora, for dc_pdd.", "tokens counted"),
    make=_count,
    after=("documents/sotu",),
    tables=(TOKEN_FREQUENCIES,),
    checks={
        "counts_belong_to_tokenizer": Check(
            "The table is of its model's tokenizer and holds at least one token.", False
        ),
        "every_row_counted": Check("Every row of the corpus was counted; those that could not are named."),
    },
    kinds=frozenset({"numpy", "parquet"}),
    lock="references",
    is_optional=True,
    step="counting how often tokens occur in the corpus {} for {} (the detector dc_pdd compares with it)",
    first="the tokens of {} are counted first",
    absent="its tokens have not been counted with the model's tokenizer",
    words={
        "settings": "its settings or documents changed since its tokens were counted",
        "corpus": "its settings or documents changed since its tokens were counted",
    },
    partitions=_list_counts,
    sources=_list_sources,
    sources_purpose="everyday texts, whose tokens are counted for the detector dc_pdd",
    inputs=_inputs,
    recorded=_recorded,
)
