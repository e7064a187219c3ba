"""Token frequencies of reference corpora, partitioned by corpus and model: what dc_pdd is calibrated with.

What belongs here: wiring, and what the UI shows of a count. What does not: counting (audit_pipeline/references).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import TOKEN_FREQUENCIES
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.operate.dagster.jobs import MODEL_RUNS
from audit_pipeline.operate.dagster.metadata import markdown_table, row_count_metadata, schema_metadata
from audit_pipeline.operate.dagster.partitions import MODEL, PairPartitions, model_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models
from audit_pipeline.operate.dagster.retries import with_retries
from audit_pipeline.operate.progress import progress_logger
from audit_pipeline.references.config import DEFAULT, load_references
from audit_pipeline.references.count import CorpusCount
from audit_pipeline.references.frequencies import FrequencyReport, build_frequencies

CODE_VERSION = "1"
CORPUS = "corpus"
_LOGGED = 20


def list_corpora() -> list[str]:
    """The corpora of references.yaml, those with a broken entry too, and the default one even where it cannot be read.

    So everything else still loads. A run of the asset reads the file again, and says what is wrong with it.
    """
    try:
        return list(dict.fromkeys([DEFAULT, *load_references().names]))
    except ConfigError:
        return [DEFAULT]


corpus_partitions = PairPartitions({CORPUS: dg.StaticPartitionsDefinition(list_corpora()), MODEL: model_partitions})


@dg.asset(
    group_name=MODEL_RUNS,
    description="How often each token occurs in a corpus of everyday texts (config/references.yaml); the detector "
    "dc_pdd compares with it. Models with one tokenizer share one table; a count that is stopped goes "
    "on where it was.",
    kinds={"numpy", "parquet"},
    code_version=CODE_VERSION,
    partitions_def=corpus_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=[dg.AssetKey(["documents", "sotu"])],
    pool="references",
    metadata=schema_metadata(TOKEN_FREQUENCIES),
    check_specs=[
        dg.AssetCheckSpec(
            "counts_belong_to_tokenizer",
            asset="token_frequencies",
            description="Every table of the run is of its model's tokenizer and holds at least one token.",
        ),
        dg.AssetCheckSpec(
            "every_row_counted",
            asset="token_frequencies",
            description="Every corpus could be had and every row of it counted; those that could not are named.",
        ),
    ],
)
def token_frequencies(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Bring the table of every corpus and model of the run up to date."""
    references, keys = load_references(), context.partition_keys
    step = LineageStep.now(context.run.run_id, "token_frequencies", CODE_VERSION)
    done: dict[str, FrequencyReport] = {}
    left_out: dict[str, str] = {}
    for key in keys:
        corpus, _, name = key.partition("|")
        try:
            model, entry = models.tokenized(name, data.paths), references.named(corpus)
            build = partial(
                build_frequencies, entry, model, data.paths, step, on_progress=partial(_log_count, context, key)
            )
            done[key] = with_retries(build, f"counting {key}", context.log)
        except AuditError as error:
            if len(keys) == 1:
                raise
            context.log.error(f"{key}: {error}")
            left_out[key] = str(error)
            context.add_asset_metadata({"status": "not_applicable", "reason": str(error)}, partition_key=key)
        else:
            _add_count_metadata(context, key, done[key])
    return dg.MaterializeResult(check_results=_build_check_results(done, left_out))


def _add_count_metadata(context: dg.AssetExecutionContext, key: str, report: FrequencyReport) -> None:
    for row in report.count.skipped[:_LOGGED] if report.count else ():
        context.log.warning(f"{key}: skipped {row.location}: {row.reason}")
    context.add_asset_metadata(_build_count_metadata(report), partition_key=key)


def _build_check_results(
    reports: Mapping[str, FrequencyReport], omission_reasons: Mapping[str, str]
) -> list[dg.AssetCheckResult]:
    wrong = {key: report.problem for key, report in reports.items() if report.problem is not None}
    skipped = {key: report.skipped_rows for key, report in reports.items()}
    return [
        dg.AssetCheckResult(
            check_name="counts_belong_to_tokenizer",
            passed=not wrong,
            metadata={"tables that are wrong": len(wrong), "wrong": wrong},
        ),
        dg.AssetCheckResult(
            check_name="every_row_counted",
            passed=not any(skipped.values()) and not omission_reasons,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                "rows skipped": sum(skipped.values()),
                "corpora not counted": len(omission_reasons),
                "skipped": skipped,
                "not counted": dict(omission_reasons),
            },
        ),
    ]


def _log_count(context: dg.AssetExecutionContext, key: str, count: CorpusCount) -> None:
    progress_logger(context.log)(f"{key}: {count.in_words}")


def _build_count_metadata(report: FrequencyReport) -> dict[str, Any]:
    count = report.count
    return {
        **row_count_metadata(report.vocabulary),
        "status": "ok",
        "tokens": report.tokens,
        "documents": report.documents,
        "skipped rows": report.skipped_rows,
        "up to date before": count is None,
        **({} if count is None else {"MB/s": round(count.megabytes_per_second, 2), "counted by": count.way}),
        **(
            {"skipped": markdown_table(("row", "reason"), [(one.location, one.reason) for one in count.skipped[:50]])}
            if count is not None and count.skipped
            else {}
        ),
        "path": dg.MetadataValue.path(report.path),
        "tokenizer_fingerprint": report.tokenizer_fingerprint,
        "corpus digest": report.metadata["corpus_digest"],
        "data_version": report.data_version,
    }
