"""docs/reference/benchmarks.md: every family of the default configuration, from config/benchmarks.yaml.

What belongs here: an entry as Markdown. What does not: the entries (config/benchmarks.yaml), and further facts about a
benchmark (docs/benchmarks).
"""

from __future__ import annotations

from pathlib import Path

import yaml

from docs.writers.markdown import escape_markdown, format_markdown_table

_CONFIG = Path(__file__).parents[2] / "config" / "benchmarks.yaml"
_HEAD = """\
# Benchmarks

This page lists the families of the default configuration and their benchmarks: one benchmark per length in words. A
command takes a benchmark (`release_notes_64`), a family (`release_notes`) or `all`. `all` excludes benchmarks on
request. [Configuration keys](configuration.md#benchmarksyaml) lists all keys of an entry. The pages under
*Understanding*, *Benchmarks* describe the quality of each benchmark.
"""


def benchmarks_page() -> str:
    """Return the page. It depends only on the shipped file, not on the machine."""
    families = yaml.safe_load(_CONFIG.read_text(encoding="utf-8"))["benchmarks"]
    rows = ([f"[{name}](#{name})", one["builder"], _request(one)] for name, one in families.items())
    parts = [_HEAD.rstrip(), format_markdown_table(["family", "builder", "audited"], rows)]
    for name, one in families.items():
        told = {
            "benchmarks": ", ".join(f"`{benchmark}`" for benchmark in _benchmarks(name, one)),
            "built by": f"`builder: {one['builder']}`",
            "texts from": _origin(one),
            "audited": _request(one),
            **({"licence": escape_markdown(one["licence"])} if "licence" in one else {}),
        }
        parts += [
            f"## {name}",
            escape_markdown(" ".join(one["description"].split())),
            format_markdown_table(["", ""], map(list, told.items())),
        ]
    return "\n\n".join(parts) + "\n"


def _benchmarks(name: str, entry: dict[str, object]) -> list[str]:
    words = entry["words"]
    return [f"{name}_{one}" for one in words] if isinstance(words, list) else [name]


def _request(entry: dict[str, object]) -> str:
    return (
        "only if it is named"
        if entry.get("on_request", entry["builder"] == "controlled")
        else "in every audit of `all`"
    )


def _origin(entry: dict[str, object]) -> str:
    if sources := entry.get("sources"):
        return f"documents of {', '.join(f'`{one}`' for one in sources)}"  # type: ignore[attr-defined]
    if "hub" in entry:
        return f"the hub's data set `{entry['hub']}`"
    if isinstance(package := entry.get("package"), dict):
        return f"a file of the package `{package['distribution']}`"
    return f"the control `{entry['control']}`"
