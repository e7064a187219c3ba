"""The stages of an audit: each reads its input tables, does its work, and writes its output with a lineage row.

What belongs here: the order of read, compute, record and write, for one partition of one table. What does not: the
computations themselves (the domain packages), and when a stage is run (assets/ and operate/dagster/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from audit_pipeline.benchmarks.build import BuildReport, build, read_examples, read_manifest
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve
from audit_pipeline.benchmarks.drawn import MATCHED
from audit_pipeline.benchmarks.rolling import keep_day
from audit_pipeline.benchmarks.words import word_unit
from audit_pipeline.catalogue.contracts import SCORES, Pair, digest, texts_read
from audit_pipeline.catalogue.lineage import Step, keep, latest_run, read_kept, record, table_version
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.detectors import dc_pdd, infilling
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.registry import Overrides, select, settings_up_to, settings_with
from audit_pipeline.detectors.score import score_texts
from audit_pipeline.errors import AuditError, ConfigError, DataError, ModelError, TransientError
from audit_pipeline.evidence.audited_side import against_held_out
from audit_pipeline.evidence.evaluate import MARGIN, Evaluation, ScoreColumn, score_columns
from audit_pipeline.evidence.findings import Design, Findings, find
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer
from audit_pipeline.references.frequencies import FrequencyLookup, frequencies_of, read_frequencies
from audit_pipeline.scoring.highlights import highlights
from audit_pipeline.scoring.passes import (
    Passes,
    PassesSummary,
    Selection,
    Statistics,
    in_context,
    needs_of,
    passes_for,
    run_passes,
)
from audit_pipeline.separability.quality import MOST_PER_SIDE, Quality, split_quality
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import SourceReport, refresh
from audit_pipeline.token_statistics.encode import KIND_VERSIONS, window_and_stride
from audit_pipeline.token_statistics.run import Kind, Progress, compute

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass


SCORES_VERSION = "2"
EVALUATIONS_VERSION = "3"
"""Of the code that makes these tables: where one is raised, pairs that are done are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair; ``columns`` are those with a label, for plots."""

    pair: Pair
    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str
    columns: Sequence[ScoreColumn]


@dataclass(frozen=True)
class SplitReport:
    """What is known of a benchmark's two sides without any model, as written.

    ``matched`` is what matching achieved, where the sides were chosen to be hard to tell apart.
    """

    benchmark: str
    quality: Quality
    design: str
    matched: Mapping[str, Any] | None
    data_version: str


@dataclass(frozen=True)
class EvaluationReport:
    """The findings of a pair, as written."""

    pair: Pair
    findings: Findings
    data_version: str

    @property
    def evaluation(self) -> Evaluation:
        """The metrics among the findings."""
        return self.findings.evaluation

    @property
    def out_of_range(self) -> int:
        """How many metrics or interval ends are not between 0 and 1 (a margin: -1 and 1)."""
        return sum(
            1
            for row in self.evaluation.table.to_pylist()
            for number in (row["value"], row["ci_low"], row["ci_high"])
            if number is not None and not (-1 if row["metric"] == MARGIN else 0) <= number <= 1
        )


def refresh_source(source: str, paths: DataPaths, step: Step) -> SourceReport:
    """Fetch a source and keep what it brought; raises SourceError where nothing arrived and nothing was there."""

    def write(report: SourceReport) -> None:
        version = report.data_version
        keep(paths, step, report.table, table="documents", partition=source, data_version=version, upstream={})

    return refresh(source, paths, step.run_id, load_source_settings(), write)


def spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """The benchmark of that name; where its cutoffs are told by today, the day they count from is kept from now on.

    Raises ConfigError where there is none of that name.
    """
    (spec,) = resolve(name)
    if spec.is_relative:
        keep_day(paths)
        (spec,) = resolve(name)
    return spec


def build_benchmark(spec: BenchmarkSpec, paths: DataPaths, step: Step) -> BuildReport:
    """Build a benchmark's examples from its sources' documents or its labelled files."""

    def write(report: BuildReport) -> None:
        keep(
            paths,
            step,
            report.examples,
            table="examples",
            partition=spec.name,
            data_version=report.digest,
            upstream={
                f"documents/{name}" if name in spec.sources else name: version
                for name, version in report.source_versions.items()
            },
            benchmark_digest=report.digest,
        )

    return build(spec, paths, step.run_id, write=write)


def assess_split(benchmark: str, paths: DataPaths, step: Step, *, most_per_side: int = MOST_PER_SIDE) -> SplitReport:
    """How far the two sides of a built benchmark differ in anything but membership; no model's scores are read.

    Of a side of more than ``most_per_side`` texts so many are read. Raises DataError where it has not been built.
    """
    manifest = read_manifest(paths, benchmark)
    examples = read_examples(paths, benchmark)
    spec = manifest["spec"]
    compared = against_held_out(examples)
    quality = split_quality(
        examples if compared is None else compared,
        manifest["design"],
        _language(examples),
        split=word_unit(spec["unit"]).split,
        near_duplicate_threshold=spec["near_duplicate_threshold"],
        run_id=step.run_id,
        matched=MATCHED in manifest,
        most_per_side=most_per_side,
    )
    version = table_version(quality.table)
    keep(
        paths,
        step,
        quality.table,
        table="split_quality",
        partition=benchmark,
        data_version=version,
        upstream={f"examples/{benchmark}": manifest["digest"]},
        benchmark_digest=manifest["digest"],
    )
    return SplitReport(benchmark, quality, manifest["design"], manifest.get(MATCHED), version)


def texts_of(pair: Pair, paths: DataPaths) -> list[str]:
    """The distinct texts that a model reads of the pair's benchmark, in order; contexts are part of them.

    Raises DataError where it has not been built, or where a check says that numbers on it would be wrong.
    """
    require_fit(pair.benchmark, paths)
    return list(dict.fromkeys(texts_read(read_examples(paths, pair.benchmark))))


def require_fit(benchmark: str, paths: DataPaths) -> None:
    """Raise DataError where a check of the built benchmark says that numbers on it would be wrong."""
    failed = [check for check in read_manifest(paths, benchmark)["checks"] if check["blocking"] and not check["passed"]]
    if failed:
        raise DataError(
            f"the benchmark {benchmark} is not fit to be audited: {failed[0]['what']}: {failed[0]['counts']}; "
            "mend its entry in config/benchmarks.yaml or its source and build it again"
        )


def require_belonging(pair: Pair, model: TokenizedModel, paths: DataPaths) -> None:
    """Raise DataError where one of model and benchmark is a control's and the other is not that control's."""
    of_benchmark = read_manifest(paths, pair.benchmark)["spec"].get("control")
    of_model = model.entry.control.name if model.entry.control is not None else None
    if of_benchmark == of_model:
        return
    if of_benchmark is not None:
        raise DataError(
            f"the labels of {pair.benchmark} say what the models of the control {of_benchmark} were trained on, "
            f"and nothing of {pair.model}"
        )
    raise DataError(f"{pair.model} was trained here on the texts of the control {of_model}: audit it on those")


def overrides_of(benchmark: str, paths: DataPaths) -> Overrides:
    """What a benchmark fixes of detectors: infilling's m, by its length or as its entry says, and DC-PDD's a."""
    manifest = read_manifest(paths, benchmark)
    steps = manifest["spec"].get("infilling_m") or infilling.steps_for(manifest["words"])
    bound = manifest["spec"].get("dc_pdd_a")
    return {infilling.NAME: {"m": steps}, **({dc_pdd.NAME: {"a": float(bound)}} if bound is not None else {})}


def audit_selection(overrides: Overrides) -> Selection:
    """What an audit scores: every detector that is not on request, at every setting of its grid and of ``overrides``.

    Of infilling, every m up to that of the benchmark: what one pass over branches of that length gives.
    """
    found = []
    for detector, settings in select(grid=True):
        fixed = overrides.get(detector.name, {})
        chosen = settings_up_to if detector.name == infilling.NAME else settings_with
        found.append((detector, chosen(detector, fixed, settings)))
    return found


def passes_of(
    selection: Selection, model: TokenizedModel, paths: DataPaths, *, frequencies: Path | None = None
) -> Passes:
    """What the selection needs beside the model, and why there is none where there is none.

    The reference model and corpus are those of the model's entry; ``frequencies`` is a table that the user names.
    Raises DataError where that cannot be read or was counted with another tokenizer, and the error of a hub that could
    not be reached: it may be reached later.
    """
    needs = needs_of(selection)
    absent: dict[Need, str] = {}
    reference, found = None, FrequencyLookup(None, None, {})
    if Need.REFERENCE_MODEL in needs:
        try:
            reference = _reference_model(model, paths)
        except AuditError as error:
            if isinstance(error, TransientError):
                raise
            absent[Need.REFERENCE_MODEL] = str(error)
    if Need.FREQUENCY_TABLE in needs:
        try:
            found = _frequencies(model, paths, frequencies)
        except AuditError as error:
            if frequencies is not None or isinstance(error, TransientError):
                raise
            absent[Need.FREQUENCY_TABLE] = str(error)
        if found.reason is not None:
            absent[Need.FREQUENCY_TABLE] = found.reason
    passes = passes_for(selection, reference=reference, frequencies=found.frequencies, absent=absent)
    upstream = dict(found.upstream)
    if reference is not None:
        identity = reference.identity
        upstream[f"reference_model/{reference.entry.name}"] = (
            f"{identity.model_fingerprint}/{identity.tokenizer_fingerprint}"
        )
    return replace(passes, upstream=upstream)


def upstream_now(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str]:
    """The reference model and the token frequencies that an audit would take now, with their versions."""
    try:
        return passes_of(select(), model, paths).upstream
    except AuditError:
        # The hub cannot be reached: nothing is known of them now.
        return {}


def is_extra(upstream: str) -> bool:
    """Whether an entry of a lineage row's upstream is a reference model or a table of token frequencies."""
    return upstream.startswith(("reference_model/", "token_frequencies/"))


def _reference_model(model: TokenizedModel, paths: DataPaths) -> TokenizedModel:
    if model.entry.reference_model is None:
        raise ModelError(f"no reference model: give {model.entry.name} a reference_model in config/models.yaml")
    return load_tokenizer(resolve_model(model.entry.reference_model, load_models()), paths)


def _frequencies(model: TokenizedModel, paths: DataPaths, given: Path | None) -> FrequencyLookup:
    if model.entry.start_token_policy != "always":
        return FrequencyLookup(None, "dc_pdd scores the first token too: it needs the start-token policy 'always'", {})
    if given is not None:
        return FrequencyLookup(read_frequencies(given, model), None, {})
    if model.entry.reference_corpus is None:
        raise ConfigError(f"no reference corpus: give {model.entry.name} a reference_corpus in config/models.yaml")
    return frequencies_of(model.entry.reference_corpus, model, paths)


def run_reference(
    pairs: Sequence[Pair],
    model: TokenizedModel,
    paths: DataPaths,
    forward_of: Callable[[TokenizedModel], ForwardPass],
) -> str | None:
    """Run the model's reference model over the texts of ``pairs``; why that could not be, where it could not.

    One detector goes without then. Pairs that cannot be audited are left to their own run to tell. Raises the error of
    a hub that could not be reached: it may be reached later.
    """
    try:
        reference = _reference_model(model, paths)
        compute(reference, _texts_of_all(pairs, model, paths), paths, partial(forward_of, reference))
    except AuditError as error:
        if isinstance(error, TransientError):
            raise
        return str(error)
    return None


def _texts_of_all(pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> list[str]:
    texts: list[str] = []
    for pair in pairs:
        with suppress(DataError):
            require_belonging(pair, model, paths)
            texts.extend(texts_of(pair, paths))
    return texts


def run_tokens(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    forward: Callable[[], ForwardPass],
    step: Step,
    *,
    kinds: Sequence[Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Bring the caches of token statistics up to the benchmark's texts, and to what detectors need besides.

    The reference model's passes are not among them: see :func:`run_reference`.
    """
    texts = texts_of(pair, paths)
    require_belonging(pair, model, paths)
    benchmark = read_manifest(paths, pair.benchmark)["digest"]
    passes = passes_for(audit_selection(overrides_of(pair.benchmark, paths)))
    passes = in_context(passes, read_examples(paths, pair.benchmark).column("context").to_pylist())
    summary = run_passes(
        model,
        texts,
        paths,
        forward,
        passes,
        kinds=kinds,
        logits_budget=logits_budget,
        on_progress=on_progress,
    )
    record(
        paths,
        step,
        table="token_statistics",
        partition=pair.partition,
        data_version=statistics_version(model, benchmark),
        upstream={f"examples/{pair.benchmark}": benchmark},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark,
    )
    return summary


def statistics_version(model: TokenizedModel, benchmark_digest: str) -> str:
    """The data version of a pair's token statistics: what they were computed from.

    The length of branches is the benchmark's, so its digest stands for it.
    """
    policy = model.entry.start_token_policy
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        model.start_token if policy == "always" else None,
        *window_and_stride(model),
        KIND_VERSIONS["base"],
        KIND_VERSIONS["branches"],
    )[:16]


def score_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: Step) -> ScoreReport:
    """Score a benchmark's examples with every detector, at every setting of its grid, from the cache.

    Raises DataError where the benchmark is not fit to be audited, or the model has been run on none of its texts.
    """
    require_fit(pair.benchmark, paths)
    examples = read_examples(paths, pair.benchmark)
    benchmark = read_manifest(paths, pair.benchmark)["digest"]
    overrides = overrides_of(pair.benchmark, paths)
    selection = audit_selection(overrides)
    contexts = examples.column("context").to_pylist()
    passes = in_context(passes_of(selection, model, paths), contexts)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = score_from_cache(model, ids, texts, paths, selection, passes, contexts)
    table = (
        scored.append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = checked(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark,
        f"token_statistics/{pair.partition}": statistics_version(model, benchmark),
    }
    highlighted = highlights(table, examples, pair, model, paths, overrides)
    written = {
        "highlights": (highlighted, table_version(highlighted), {**upstream, f"scores/{pair.partition}": version}),
        # Last: where they are, everything is that later stages read.
        "scores": (table, version, {**upstream, **passes.upstream}),
    }
    for name, (rows, data_version, from_what) in written.items():
        keep(
            paths,
            step,
            rows,
            table=name,
            partition=pair.partition,
            data_version=data_version,
            upstream=from_what,
            model_fingerprint=model.identity.model_fingerprint,
            tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
            benchmark_digest=benchmark,
        )
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    columns = score_columns(table, examples, model=pair.model, benchmark=pair.benchmark, overrides=overrides)
    return ScoreReport(pair, len(table), Counter(table.column("status").to_pylist()), reasons, version, columns)


def score_from_cache(
    model: TokenizedModel,
    ids: Sequence[str],
    texts: Sequence[str],
    paths: DataPaths,
    selection: Selection,
    passes: Passes,
    contexts: Sequence[str | None] | None = None,
) -> pa.Table:
    """Scores of ``texts``, behind their ``contexts`` where given, from their cached statistics.

    ``ids`` name the texts in the column example_id.
    """
    before = [None] * len(texts) if contexts is None else contexts
    whole = [(context or "") + text for context, text in zip(before, texts, strict=True)]
    statistics = Statistics(model, whole, paths, passes)
    if texts and not len(statistics):
        raise DataError(f"{model.entry.name} has been run on none of these texts: run token_statistics first")
    return score_texts(statistics.of_examples_in_context(zip(ids, texts, before, strict=True)), selection)


def evaluate_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: Step) -> EvaluationReport:
    """Everything that is concluded from a pair's latest scores: see :mod:`audit_pipeline.evidence.findings`.

    Raises DataError where the pair has not been scored, or was scored on another build of the benchmark, with other
    weights or under other conventions.
    """
    require_fit(pair.benchmark, paths)
    manifest = read_manifest(paths, pair.benchmark)
    written = latest_run(paths, "scores", pair.partition)
    statistics, version_now = f"token_statistics/{pair.partition}", statistics_version(model, manifest["digest"])
    if written.benchmark_digest != manifest["digest"]:
        raise DataError(f"the scores of {pair.partition} are of an earlier build of the benchmark: score it again")
    if written.upstream.get(statistics) != version_now:
        raise DataError(f"the scores of {pair.partition} are of other weights or another start token: score it again")
    scores = read_kept(
        paths,
        SCORES,
        table="scores",
        partition=pair.partition,
        run_id=written.run_id,
        what=f"the scores of {pair.partition}",
    )
    examples = read_examples(paths, pair.benchmark)
    design = Design(manifest["design"], _language(examples), MATCHED in manifest, overrides_of(pair.benchmark, paths))
    found = find(scores, examples, pair, design, step.run_id)
    upstream = {
        f"examples/{pair.benchmark}": manifest["digest"],
        f"scores/{pair.partition}": written.data_version,
        statistics: version_now,
        **{key: version for key, version in written.upstream.items() if is_extra(key)},
    }
    versions = write_findings(
        found,
        pair,
        paths,
        step,
        upstream=upstream,
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=manifest["digest"],
    )
    return EvaluationReport(pair, found, versions["evaluations"])


def write_findings(
    findings: Findings,
    pair: Pair,
    paths: DataPaths,
    step: Step,
    *,
    upstream: Mapping[str, str],
    benchmark_digest: str,
    model_fingerprint: str | None = None,
    tokenizer_fingerprint: str | None = None,
) -> Mapping[str, str]:
    """Write every table of a pair's findings with its lineage row; their data versions, by table."""
    versions = {}
    for name, table in findings.tables.items():
        versions[name] = table_version(table)
        keep(
            paths,
            step,
            table,
            table=name,
            partition=pair.partition,
            data_version=versions[name],
            upstream=upstream,
            model_fingerprint=model_fingerprint,
            tokenizer_fingerprint=tokenizer_fingerprint,
            benchmark_digest=benchmark_digest,
        )
    return versions


def _language(examples: pa.Table) -> str:
    """The language of most examples."""
    counted: Counter[str] = Counter(examples.column("language").to_pylist())
    return max(sorted(counted), key=lambda language: counted[language])
