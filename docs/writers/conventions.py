"""The table of start tokens of docs/conventions.md."""

from __future__ import annotations

from audit_pipeline.models.conversion import FAMILY_START_TOKENS
from docs.writers.markdown import format_markdown_table


def format_start_tokens() -> str:
    """Return a table of the start token of each family, with the families of one token in one row."""
    families: dict[str, list[str]] = {}
    for family, token in FAMILY_START_TOKENS.items():
        families.setdefault(token, []).append(family)
    rows = [[", ".join(f"`{name}`" for name in names), f"`{token}`"] for token, names in families.items()]
    head = ["`model_type`", "start token"]
    return format_markdown_table(head, [[names, token.replace("|", "\\|")] for names, token in rows])
