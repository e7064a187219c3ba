"""Sealed plans: the texts, settings, model and code of an audit by digest, recorded before the model runs.

A plan is canonical JSON. A timestamp refers to its sha256. The plan contains the digest of the last line of the ledger,
so the timestamp also covers everything that was recorded before. The SQL view plan_deviations lists later differences
from a plan.
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
from audit_pipeline.benchmarks.model_inputs import build_benchmark_inputs, build_template_upstream
from audit_pipeline.errors import DataError
from audit_pipeline.extras.evidence_packs.timestamps import Timestamp, read_timestamp, request_timestamp
from audit_pipeline.extras.extraction import pair_extraction
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION
from audit_pipeline.scoring.pair_scores import SCORES_VERSION
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.statistics.evaluate_options import choose_headline_detector
from audit_pipeline.statistics.membership_decisions import ALPHAS
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.integrity import code_digest, package_versions
from audit_pipeline.store.ledger import LineageStep, has_entries, read_latest_run, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import PLANS, TABLES, Pair, canonical_json, text_sha256
from audit_pipeline.token_statistics.cached_texts import Caches

PLAN_VERSION = "1"
DIGESTS = ("benchmark_digest", "model_fingerprint", "tokenizer_fingerprint")
"""The digests that identify the planned audit. Plans and the ledger have them under the same names."""
# These fields may differ between two plans of the same audit that were sealed at different times.
_CHANGING_FIELDS = ("lineage_head", "rows_forgotten", "texts_in_cache")
_CACHED_KINDS = ("base", "extraction", "grid")
RESULTS = tuple(
    table for table in TABLES.values() if table.partitioned_by == "pair" and table.append_only and table is not PLANS
)
"""The tables that a run of a model on a benchmark writes."""


@dataclass(frozen=True)
class SealedPlan:
    """The sealed plan of an audit, with its timestamp if one was requested.

    Attributes:
        content: The plan as canonical JSON.
        sealed_at: The time of the sealing, by the clock of the machine.
        timestamp: The timestamp of an authority, or None.
    """

    content: str
    sealed_at: datetime
    timestamp: Timestamp | None = None

    @property
    def sha256(self) -> str:
        """Return the digest that the timestamp refers to, as hexadecimal digits."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of the plan by name (:func:`compose_plan`)."""
        return dict(json.loads(self.content))

    def plans_same_audit(self, other: SealedPlan) -> bool:
        """Return whether both plans describe the same audit, even if they were sealed at different times."""
        fields = self.fields
        other_fields = other.fields
        for name in _CHANGING_FIELDS:
            fields.pop(name, None)
            other_fields.pop(name, None)
        return fields == other_fields


def compose_plan(pair: Pair, model: TokenizedModel, paths: DataPaths) -> SealedPlan:
    """Return the plan of an audit with the current benchmark, configuration and code. The model does not run.

    Raises:
        DataError: If the benchmark is not built, or failed its checks.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    documents = pair_extraction.read_searched_documents(pair.benchmark, model, paths)
    search = pair_extraction.find_extraction_settings(pair.benchmark)
    spec = pair_extraction.find_spec(pair.benchmark)
    detectors: set[tuple[str, str]] = set()
    for detector, settings in build_audit_session(benchmark, model, paths).selection:
        detectors |= {(detector.name, detector.to_json(setting)) for setting in settings}
    ledger = read_ledger(paths)
    caches = Caches(paths)
    cached: set[str] = set()
    for kind in _CACHED_KINDS:
        cached |= set(caches.of(model, kind).values_of("text_sha256"))
    inputs = build_benchmark_inputs(benchmark, model)
    texts = [*inputs.distinct_texts, *(document.text for document in documents)]
    headline = choose_headline_detector({name for name, _ in detectors})
    lineage_head = ledger.head if ledger.lines else None
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
        "headline": headline,
        "alphas": ALPHAS,
        "seeds": {"benchmark": benchmark.spec.get("seed")},
        "code_versions": {
            "document_memorisation": search and pair_extraction.build_search_version(search, spec),
            "scores": SCORES_VERSION,
            "evaluations": EVALUATIONS_VERSION,
        },
        "package_versions": package_versions(),
        "code_digest": code_digest(),
        **build_template_upstream(benchmark, model),
        "lineage_head": lineage_head,
        "rows_forgotten": ledger.forgotten_count,
        # The number of texts that the model was run on before, by any command.
        "texts_in_cache": len(cached & set(map(text_sha256, texts))),
    }
    return SealedPlan(canonical_json(plan), datetime.now(UTC))


def _list_document_digests(documents: Sequence[SearchedDocument], side: str) -> list[dict[str, str]]:
    digests = {document.name: text_sha256(document.text) for document in documents if document.side == side}
    return [{"document_id": name, "sha256": digest} for name, digest in sorted(digests.items())]


def explain_late_plan(plan: SealedPlan, pair: Pair, paths: DataPaths) -> list[str]:
    """Return the reasons why a plan does not prove that it was sealed before the audit ran.

    The list is empty if the plan proves it.
    """
    sealed_at = plan.sealed_at
    if plan.timestamp is not None:
        sealed_at = max(sealed_at, plan.timestamp.time)
    ledger = read_ledger(paths)
    earlier_runs: set[str] = set()
    for table in RESULTS:
        entries = ledger.list_entries(table.name, pair.partition)
        earlier_runs |= {entry.run_id for entry in entries if entry.started_at < sealed_at}
    reasons: list[str] = []
    if earlier_runs:
        reasons.append(
            f"{len(earlier_runs):,} run(s) of this model on these texts began before the plan was sealed or timestamped"
        )
    n_cached = plan.fields["texts_in_cache"]
    if n_cached:
        reasons.append(
            f"the model had run on {n_cached:,} of the planned texts and documents before the plan was sealed"
        )
    return reasons


def seal_plan(pair: Pair, model: TokenizedModel, paths: DataPaths, authority: str | None) -> tuple[SealedPlan, bool]:
    """Seal and store the plan of an audit, unless the last stored plan describes the same audit.

    If a timestamp is requested and the last plan has none, a new plan is sealed in any case.

    Args:
        pair: The pair of benchmark and model.
        model: The model.
        paths: The data folder.
        authority: The URL of a timestamp authority, or None for a plan without a timestamp.

    Returns:
        The plan, and True if it is new.

    Raises:
        DataError: If the benchmark is not built, or failed its checks.
        AuthorityError: If the authority does not return a timestamp.
    """
    plan = compose_plan(pair, model, paths)
    last = read_last_plan(pair, paths)
    if last is not None and last.plans_same_audit(plan) and (authority is None or last.timestamp is not None):
        return last, False
    if authority is not None:
        plan = replace(plan, timestamp=request_timestamp(authority, plan.content.encode()))
    write_plan(plan, pair, model, paths)
    return plan, True


def write_plan(plan: SealedPlan, pair: Pair, model: TokenizedModel, paths: DataPaths) -> None:
    """Write a sealed plan with its lineage."""
    run_id = f"plan-{uuid.uuid4()}"
    stamp = plan.timestamp
    digest = plan.fields["benchmark_digest"]
    row = {
        "model": pair.model,
        "benchmark": pair.benchmark,
        "run_id": run_id,
        "plan": plan.content,
        "plan_sha256": plan.sha256,
        "sealed_at": plan.sealed_at,
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
    """Read the last plan of a pair, or None if no plan was sealed.

    Raises:
        DataError: If the plan was changed after it was sealed.
    """
    if not has_entries(paths, PLANS, pair):
        return None
    run = read_latest_run(paths, PLANS.name, pair.partition)
    rows = store.read(paths, PLANS, pair, run_id=run.run_id, label=f"the plan of {pair.partition}").to_pylist()
    return plan_from_row(rows[0])


def plan_from_row(row: Mapping[str, Any]) -> SealedPlan:
    """Build the plan from a row of the table PLANS, and check its digest.

    Raises:
        DataError: If the digest or the timestamp belongs to another plan.
    """
    plan = SealedPlan(row["plan"], row["sealed_at"])
    if plan.sha256 != row["plan_sha256"]:
        raise DataError(
            f"The plan was changed after it was sealed: its sha256 is {plan.sha256}, but the sealed sha256 is "
            f"{row['plan_sha256']}."
        )
    if row["timestamp"] is None:
        return plan
    return replace(plan, timestamp=read_timestamp(base64.b64decode(row["timestamp"]), plan.content.encode()))
