"""Plans of audits that were sealed before the model was run."""

from __future__ import annotations

from audit_pipeline.tables.common import build_run_table
from audit_pipeline.tables.table import moment, string

PLANS = build_run_table(
    "plans",
    "what was said beforehand of an audit: texts, settings, model, code; of every sealing",
    made_from=("examples",),
    columns=(
        string("plan", "the plan as canonical JSON (docs/exhibit.md)"),
        string("plan_sha256", "sha256 of its UTF-8 bytes: what a timestamp is of"),
        # "at" is a word of DuckDB's grammar.
        moment("sealed_at", "when it was sealed, by the clock of this machine"),
        string(
            "timestamp",
            "the answer of a timestamp authority (RFC 3161), DER in base64; null where there is none",
            null=True,
        ),
        moment("timestamped_at", "the time that the authority gives", null=True),
        string("authority", "the authority's name in the timestamp; null where it has none", null=True),
    ),
)
