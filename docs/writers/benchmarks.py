"""docs/reference/benchmarks.md: every family of the default configuration, from config/benchmarks.yaml.

What belongs here: what an entry says of itself, as Markdown. What does not: the entries (config/benchmarks.yaml), what
is known of a benchmark beyond that (docs/benchmarks).
"""

from __future__ import annotations

from pathlib import Path

import yaml

from docs.writers.markdown import escape_markdown, format_markdown_table

_CONFIG = Path(__file__).parents[2] / "config" / "benchmarks.yaml"
_HEAD = """\
# Benchmarks

The families that the default configuration has, and the benchmarks that each expands to: one for every length in words.
A command takes a benchmark (`release_notes_64`), a family (`release_notes`) or `all`, which leaves out those that are
on request. [Configuration keys](configuration.md#benchmarksyaml) has all keys of an entry, and the pages under
*Understanding*, *Benchmarks* say what is known of each one's quality.
"""


def benchmarks_page() -> str:
    """The page, read from the file as it is: nothing of the machine that writes it plays a part."""
    families = yaml.safe_load(_CONFIG.read_text(encoding="utf-8"))["benchmarks"]
    rows = ([f"[{name}](#{name})", one["builder"], _request(one)] for name, one in families.items())
    parts = [_HEAD.rstrip(), format_markdown_table(["family", "builder", "audited"], rows)]
    for name, one in families.items():
        told = {
            "benchmarks": ", ".join(f"`{benchmark}`" for benchmark in _benchmarks(name, one)),
            "made by": f"`builder: {one['builder']}`",
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
        "where it is named" if entry.get("on_request", entry["builder"] == "controlled") else "in every audit of `all`"
    )


def _origin(entry: dict[str, object]) -> str:
    if sources := entry.get("sources"):
        return f"documents of {', '.join(f'`{one}`' for one in sources)}"  # type: ignore[attr-defined]
    if "hub" in entry:
        return f"the hub's data set `{entry['hub']}`"
    if isinstance(package := entry.get("package"), dict):
        return f"a file of the package `{package['distribution']}`"
    return f"the control `{entry['control']}`"
