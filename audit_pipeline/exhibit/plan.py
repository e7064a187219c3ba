"""The plan of an audit, sealed before the model is run: texts, settings, model and code by their digests.

What belongs here: composing a plan from what is built and configured now, sealing it, and reading the last one. What
does not: timestamps (timestamps.py), what differs from a plan afterwards (the view plan_deviations).

A plan is canonical JSON, and its sha256 is what a timestamp is of. The digest of the last lineage row is in it, so that
whatever was recorded before is fixed by the same timestamp.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from audit_pipeline.benchmarks.built_benchmark import CONTENT_DIGEST, BuiltBenchmark, read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import PLANS, TABLES, Pair, canonical_json, text_sha256
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.catalogue.lineage import (
    LineageStep,
    code_digest,
    iterate_entries,
    package_versions,
    read_latest_run,
)
from audit_pipeline.catalogue.lineage_chain import read_chain_record
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.decision_tables import ALPHAS
from audit_pipeline.evidence.evaluate_options import choose_headline_detector
from audit_pipeline.exhibit.timestamps import Timestamp, read_timestamp, request_timestamp
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.metrics.claims import REPRODUCED_FROM
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION
from audit_pipeline.operate.stages.extraction import (
    build_lineage_settings,
    build_search_version,
    documents_of,
    search_options_from_settings,
    settings_of,
)
from audit_pipeline.operate.stages.scores import SCORES_VERSION
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.token_statistics.cached_texts import Caches

PLAN_VERSION = "1"
"""Of what a plan holds."""
_OF_THE_MOMENT = ("lineage_head", "rows_forgotten", "texts_in_cache")
"""What differs between two plans of the same audit that were sealed one after the other."""
_CACHED = ("base", "extraction", "grid")
RESULTS = tuple(
    table
    for table in TABLES.values()
    if table.per == "pair" and table.append_only and not table.is_record and table is not PLANS
)
"""The tables that a run of the model on a pair writes."""


@dataclass(frozen=True)
class SealedPlan:
    """A plan, when it was sealed by the clock of the machine, and its timestamp; None where there is none."""

    content: str
    sealed_at: datetime
    timestamp: Timestamp | None = None

    @property
    def sha256(self) -> str:
        """The digest that a timestamp is of (hex)."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def texts(self) -> Mapping[str, str]:
        """The sha256 of every document, audited and held out, by its name."""
        plan = json.loads(self.content)
        return {row["document_id"]: row["sha256"] for row in [*plan["texts"], *plan["held_out"]]}

    @property
    def lineage_head(self) -> str | None:
        """The digest of the last lineage row when it was sealed; None where there was none."""
        head: str | None = json.loads(self.content)["lineage_head"]
        return head

    @property
    def digests(self) -> Mapping[str, str]:
        """What it is of, by the columns of the lineage: benchmark, model and tokenizer."""
        plan = json.loads(self.content)
        return {name: plan[name] for name in ("benchmark_digest", "model_fingerprint", "tokenizer_fingerprint")}

    @property
    def texts_in_cache(self) -> int:
        """Of how many of its texts and documents the cache had rows of the model when it was sealed."""
        return int(json.loads(self.content)["texts_in_cache"])

    def says_the_same(self, other: SealedPlan) -> bool:
        """Whether both plan the same audit, whenever they were sealed."""
        mine, theirs = (
            {name: value for name, value in json.loads(plan.content).items() if name not in _OF_THE_MOMENT}
            for plan in (self, other)
        )
        return bool(mine == theirs)


def compose_plan(pair: Pair, model: TokenizedModel, paths: DataPaths) -> SealedPlan:
    """The plan of an audit of ``pair`` as benchmark, configuration and code are now. No model is run.

    Raises DataError where the benchmark is not built, is not fit, or is another control's.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    documents = documents_of(pair.benchmark, model.entry, paths)
    settings = settings_of(pair.benchmark)
    search = None if settings is None else search_options_from_settings(settings)
    detectors, record = _list_detectors(benchmark, model, paths), read_chain_record(paths)
    plan = {
        "benchmark": pair.benchmark,
        "model": pair.model,
        "benchmark_digest": benchmark.digest,
        "content_digest": benchmark.manifest.get(CONTENT_DIGEST),
        "model_fingerprint": model.identity.model_fingerprint,
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
        "texts": _digest_documents(documents, "audited"),
        "held_out": _digest_documents(documents, "held_out"),
        "extraction": search and build_lineage_settings(search),
        "threshold": REPRODUCED_FROM,
        "detectors": detectors,
        "headline": choose_headline_detector({row["detector"] for row in detectors}),
        "alphas": ALPHAS,
        "seeds": {"benchmark": benchmark.spec.get("seed")},
        "code_versions": {
            "document_memorisation": search and build_search_version(search),
            "scores": SCORES_VERSION,
            "evaluations": EVALUATIONS_VERSION,
        },
        "package_versions": package_versions(),
        "code_digest": code_digest(),
        "lineage_head": record.last_sha256,
        "rows_forgotten": len(record.withdrawn.get("forgotten", {})),
        "texts_in_cache": _count_cached_texts(benchmark, documents, model, paths),
    }
    return SealedPlan(canonical_json(plan), datetime.now(UTC))


def _digest_documents(documents: Sequence[SearchedDocument], side: str) -> list[dict[str, str]]:
    rows = [
        {"document_id": document.name, "sha256": text_sha256(document.text)}
        for document in documents
        if document.side == side
    ]
    return sorted(rows, key=lambda row: row["document_id"])


def _list_detectors(benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths) -> list[dict[str, str]]:
    """Every detector and setting that an audit computes."""
    selection = build_audit_session(benchmark, model, paths).selection
    rows = [
        {"detector": detector.name, "parameters": detector.label(settings)}
        for detector, of_detector in selection
        for settings in of_detector
    ]
    return sorted(rows, key=lambda row: (row["detector"], row["parameters"]))


def _count_cached_texts(
    benchmark: BuiltBenchmark, documents: Sequence[SearchedDocument], model: TokenizedModel, paths: DataPaths
) -> int:
    """How many of the texts and documents the model has been run on before, by its cache: by whatever command."""
    caches = Caches(paths)
    cached = {sha256 for kind in _CACHED for sha256 in caches.of(model, kind).values_of("text_sha256")}
    return len(cached & {text_sha256(text) for text in [*benchmark.texts, *(document.text for document in documents)]})


def explain_late_plan(plan: SealedPlan, pair: Pair, paths: DataPaths) -> list[str]:
    """Why ``plan`` does not show that an audit of ``pair`` was planned beforehand, in words; empty where it may.

    By the lineage of the pair, by the times of this machine's clock, and by what the cache held when it was sealed.
    """
    starts: dict[str, datetime] = {}
    for table in RESULTS:
        for entry in iterate_entries(paths, table.name, pair.partition):
            starts[entry["run_id"]] = min(entry["started_at"], starts.get(entry["run_id"], entry["started_at"]))
    runs = sum(start < plan.sealed_at for start in starts.values())
    stamp, cached = plan.timestamp, plan.texts_in_cache
    late_stamp = stamp is not None and any(plan.sealed_at <= start < stamp.time for start in starts.values())
    return [
        *([f"{runs:,} run(s) of this model on these texts came before it"] if runs else []),
        *([f"the model’s cache had {cached:,} of its texts and documents before it"] if cached else []),
        *(["its timestamp is later than a run that it was for"] if late_stamp else []),
    ]


def write_plan(plan: SealedPlan, pair: Pair, model: TokenizedModel, paths: DataPaths) -> None:
    """Write a sealed plan with its lineage."""
    run_id = f"plan-{uuid.uuid4()}"
    stamp = plan.timestamp
    row = {
        **{"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id},
        **{"plan": plan.content, "plan_sha256": plan.sha256, "sealed_at": plan.sealed_at},
        "timestamp": stamp and base64.b64encode(stamp.response).decode(),
        "timestamped_at": stamp and stamp.time,
        "authority": stamp and stamp.authority,
    }
    digest = json.loads(plan.content)["benchmark_digest"]
    store.write(
        paths,
        LineageStep.now(run_id, PLANS.name, PLAN_VERSION),
        PLANS,
        pair,
        table_from_rows([row], PLANS),
        upstream={f"examples/{pair.benchmark}": digest},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=digest,
    )


def seal(pair: Pair, model: TokenizedModel, paths: DataPaths, authority: str | None) -> tuple[SealedPlan, bool]:
    """Seal the plan of ``pair``, with a timestamp of the ``authority`` at a URL where one is named; and whether it is
    new.

    Where the last plan says the same it stays, and only a timestamp is added that it lacks. Raises DataError as
    :func:`compose_plan` does, and AuthorityError where there is no timestamp to be got.
    """
    plan, last = compose_plan(pair, model, paths), read_last_plan(pair, paths)
    is_new = last is None or not last.says_the_same(plan)
    if last is not None and not is_new:
        plan = last
    if authority is not None and plan.timestamp is None:
        plan = replace(plan, timestamp=request_timestamp(authority, plan.content.encode()))
    if plan is not last:
        write_plan(plan, pair, model, paths)
    return plan, is_new


def attach_timestamp(pair: Pair, model: TokenizedModel, response: bytes, paths: DataPaths) -> SealedPlan:
    """Keep an authority's answer (DER) with the last plan of ``pair``.

    Raises DataError where there is no plan, where the answer is of another digest, and where the plan has a timestamp.
    """
    plan = read_last_plan(pair, paths)
    if plan is None:
        raise DataError(f"no plan of {pair.partition} is sealed: seal one first")
    timestamp = read_timestamp(response, plan.content.encode())
    if plan.timestamp is not None:
        raise DataError(f"the plan of {pair.partition} has a timestamp already, of {plan.timestamp.time:%F %T} UTC")
    stamped = replace(plan, timestamp=timestamp)
    write_plan(stamped, pair, model, paths)
    return stamped


def read_last_plan(pair: Pair, paths: DataPaths) -> SealedPlan | None:
    """The plan of ``pair`` that was written last; None where there is none. Raises DataError where it was changed."""
    if not any(iterate_entries(paths, PLANS.name, pair.partition)):
        return None
    run = read_latest_run(paths, PLANS.name, pair.partition)
    rows = store.read(paths, PLANS, pair, run_id=run.run_id, label=f"the plan of {pair.partition}").to_pylist()
    return plan_from_row(rows[0])


def plan_from_row(row: Mapping[str, Any]) -> SealedPlan:
    """The plan of a row of PLANS; raises DataError where its digest, or its timestamp, is of another plan."""
    plan = SealedPlan(row["plan"], row["sealed_at"])
    if plan.sha256 != row["plan_sha256"]:
        raise DataError(
            f"the plan of {row['benchmark']}|{row['model']} was changed after it was sealed: its sha256 is not "
            f"{row['plan_sha256']}"
        )
    if row["timestamp"] is None:
        return plan
    return replace(plan, timestamp=read_timestamp(base64.b64decode(row["timestamp"]), plan.content.encode()))
