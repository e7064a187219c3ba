"""Plans of audits that were sealed before the model was run.

What belongs here: the declaration of their table. What does not: what a plan holds, and timestamps (exhibit/).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, MODEL, RUN_ID
from audit_pipeline.catalogue.table import Column, Table

PLANS = Table(
    "plans",
    "what was said beforehand of an audit: texts, settings, model, code; of every sealing",
    key=("run_id", "benchmark", "model"),
    per="pair",
    kept="runs",
    made_from=("examples",),
    columns=(
        MODEL,
        BENCHMARK,
        Column("plan", pa.string(), "the plan as canonical JSON (docs/exhibit.md)"),
        Column("plan_sha256", pa.string(), "sha256 of its UTF-8 bytes: what a timestamp is of"),
        # "at" is a word of DuckDB's grammar.
        Column("sealed_at", pa.timestamp("us", tz="UTC"), "when it was sealed, by the clock of this machine"),
        Column(
            "timestamp",
            pa.string(),
            "the answer of a timestamp authority (RFC 3161), DER in base64; null where there is none",
            null=True,
        ),
        Column("timestamped_at", pa.timestamp("us", tz="UTC"), "the time that the authority gives", null=True),
        Column("authority", pa.string(), "the authority's name in the timestamp; null where it has none", null=True),
        RUN_ID,
    ),
)
