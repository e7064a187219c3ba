"""The plan of an audit, sealed before the model is run: texts, settings, model and code by their digests.

A plan is canonical JSON, and its sha256 is what a timestamp is of. The digest of the last lineage row is in it, so that
whatever was recorded before is fixed by the same timestamp. What differs from a plan afterwards is the view
plan_deviations.
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

from audit_pipeline.benchmarks.built_benchmark import CONTENT_DIGEST, read_built
from audit_pipeline.errors import DataError
from audit_pipeline.extras.evidence_packs.timestamps import Timestamp, read_timestamp, request_timestamp
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.pair_extraction import (
    build_search_version,
    find_extraction_settings,
    read_searched_documents,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION
from audit_pipeline.scoring.pair_scores import SCORES_VERSION
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.statistics.evaluate_options import choose_headline_detector
from audit_pipeline.statistics.membership_decisions import ALPHAS
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, has_entries, read_latest_run, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import code_digest, package_versions
from audit_pipeline.tables import PLANS, TABLES, Pair, canonical_json, text_sha256
from audit_pipeline.token_statistics.cached_texts import Caches

PLAN_VERSION = "1"
DIGESTS = ("benchmark_digest", "model_fingerprint", "tokenizer_fingerprint")
"""What a plan is of: fields of a plan and columns of the lineage alike."""
_OF_THE_MOMENT = ("lineage_head", "rows_forgotten", "texts_in_cache")
"""What differs between two plans of the same audit that were sealed one after the other."""
_CACHED = ("base", "extraction", "grid")
RESULTS = tuple(
    table for table in TABLES.values() if table.partitioned_by == "pair" and table.append_only and table is not PLANS
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
    def fields(self) -> dict[str, Any]:
        """What the plan says, by name (:func:`compose_plan`)."""
        return dict(json.loads(self.content))

    def plans_same_audit(self, other: SealedPlan) -> bool:
        """Return whether both plan the same audit, whenever they were sealed."""
        mine, theirs = (
            {name: value for name, value in plan.fields.items() if name not in _OF_THE_MOMENT} for plan in (self, other)
        )
        return mine == theirs


def compose_plan(pair: Pair, model: TokenizedModel, paths: DataPaths) -> SealedPlan:
    """Return the plan of an audit of ``pair`` as benchmark, configuration and code are now. No model is run.

    Raises DataError where the benchmark is not built or not fit.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    documents = read_searched_documents(pair.benchmark, model.entry, paths)
    search = find_extraction_settings(pair.benchmark)
    detectors = {
        (detector.name, detector.to_json(setting))
        for detector, settings_of_detector in build_audit_session(benchmark, model, paths).selection
        for setting in settings_of_detector
    }
    ledger, caches = read_ledger(paths), Caches(paths)
    cached = {sha256 for kind in _CACHED for sha256 in caches.of(model, kind).values_of("text_sha256")}
    texts = [*benchmark.model_inputs, *(document.text for document in documents)]
    plan = {
        "benchmark": pair.benchmark,
        "model": pair.model,
        "benchmark_digest": benchmark.digest,
        "content_digest": benchmark.manifest.get(CONTENT_DIGEST),
        "model_fingerprint": model.identity.model_fingerprint,
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
        "texts": _list_document_digests(documents, "audited"),
        "held_out": _list_document_digests(documents, "held_out"),
        "extraction": search and search.recorded,
        "threshold": REPRODUCED_FROM,
        "detectors": [{"detector": name, "parameters": parameters} for name, parameters in sorted(detectors)],
        "headline": choose_headline_detector({name for name, _ in detectors}),
        "alphas": ALPHAS,
        "seeds": {"benchmark": benchmark.spec.get("seed")},
        "code_versions": {
            "document_memorisation": search and build_search_version(search),
            "scores": SCORES_VERSION,
            "evaluations": EVALUATIONS_VERSION,
        },
        "package_versions": package_versions(),
        "code_digest": code_digest(),
        "lineage_head": ledger.head if ledger.lines else None,
        "rows_forgotten": ledger.forgotten_count,
        # Of those that the model has been run on before, by whatever command.
        "texts_in_cache": len(cached & set(map(text_sha256, texts))),
    }
    return SealedPlan(canonical_json(plan), datetime.now(UTC))


def _list_document_digests(documents: Sequence[SearchedDocument], side: str) -> list[dict[str, str]]:
    digests = {document.name: text_sha256(document.text) for document in documents if document.side == side}
    return [{"document_id": name, "sha256": digest} for name, digest in sorted(digests.items())]


def explain_late_plan(plan: SealedPlan, pair: Pair, paths: DataPaths) -> list[str]:
    """Say why ``plan`` does not show that an audit of ``pair`` was planned beforehand; empty where it may."""
    stamp, cached = plan.timestamp, plan.fields["texts_in_cache"]
    shown_at = plan.sealed_at if stamp is None else max(plan.sealed_at, stamp.time)
    earlier = {
        entry.run_id
        for table in RESULTS
        for entry in read_ledger(paths).list_entries(table.name, pair.partition)
        if entry.started_at < shown_at
    }
    return [
        *([f"{len(earlier):,} run(s) of this model on these texts came before it or its timestamp"] if earlier else []),
        *([f"the model’s cache had {cached:,} of its texts and documents before it"] if cached else []),
    ]


def seal_plan(pair: Pair, model: TokenizedModel, paths: DataPaths, authority: str | None) -> tuple[SealedPlan, bool]:
    """Seal the plan of ``pair``, stamped by the ``authority`` at a URL where one is named; return it and whether it is
    new.

    Where the last plan says the same and has the timestamp that is asked for, it stays. Raises DataError as
    :func:`compose_plan` does, and AuthorityError where the authority gives no timestamp.
    """
    plan, last = compose_plan(pair, model, paths), read_last_plan(pair, paths)
    if last is not None and last.plans_same_audit(plan) and (authority is None or last.timestamp is not None):
        return last, False
    if authority is not None:
        plan = replace(plan, timestamp=request_timestamp(authority, plan.content.encode()))
    write_plan(plan, pair, model, paths)
    return plan, True


def write_plan(plan: SealedPlan, pair: Pair, model: TokenizedModel, paths: DataPaths) -> None:
    """Write a sealed plan with its lineage."""
    run_id, stamp, digest = f"plan-{uuid.uuid4()}", plan.timestamp, plan.fields["benchmark_digest"]
    row = {
        **{"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id},
        **{"plan": plan.content, "plan_sha256": plan.sha256, "sealed_at": plan.sealed_at},
        "timestamp": stamp and base64.b64encode(stamp.response).decode(),
        "timestamped_at": stamp and stamp.time,
        "authority": stamp and stamp.authority,
    }
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


def read_last_plan(pair: Pair, paths: DataPaths) -> SealedPlan | None:
    """Read the plan of ``pair`` that was written last; None if none. Raises DataError where it was changed."""
    if not has_entries(paths, PLANS, pair):
        return None
    run = read_latest_run(paths, PLANS.name, pair.partition)
    rows = store.read(paths, PLANS, pair, run_id=run.run_id, label=f"the plan of {pair.partition}").to_pylist()
    return plan_from_row(rows[0])


def plan_from_row(row: Mapping[str, Any]) -> SealedPlan:
    """Return the plan of a row of PLANS; raise DataError where its digest, or its timestamp, is of another plan."""
    plan = SealedPlan(row["plan"], row["sealed_at"])
    if plan.sha256 != row["plan_sha256"]:
        raise DataError(f"the plan was changed after it was sealed: its sha256 is not {row['plan_sha256']}")
    if row["timestamp"] is None:
        return plan
    return replace(plan, timestamp=read_timestamp(base64.b64decode(row["timestamp"]), plan.content.encode()))
