"""Holds the budget of lines of every package (pyproject.toml, [tool.corpus-audit.lines]), which only falls.

python bench/count_lines.py            exit code 1 where a package is above its budget, or has none
python bench/count_lines.py --lower    write what is there now as the budget, where it is less
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "pyproject.toml"


def count_lines() -> Mapping[str, int]:
    """The lines of Python of every package: assets, corpus_audit, tests, and those within audit_pipeline."""
    folders = [ROOT / name for name in ("assets", "corpus_audit", "tests")]
    folders += sorted(file.parent for file in (ROOT / "audit_pipeline").glob("*/__init__.py"))
    counts = {folder.relative_to(ROOT).as_posix(): _count(folder.rglob("*.py")) for folder in folders}
    return {**counts, "audit_pipeline": _count((ROOT / "audit_pipeline").glob("*.py"))}


def _count(files: Iterable[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def main() -> int:
    """Compare what is there with the budgets; the exit code."""
    text = PROJECT.read_text(encoding="utf-8")
    budgets, counts = tomllib.loads(text)["tool"]["corpus-audit"]["lines"], count_lines()
    if "--lower" in sys.argv:
        for name in budgets.keys() & counts.keys():
            lower = min(budgets[name], counts[name])
            text = re.sub(rf'(?m)^"{re.escape(name)}" = \d+$', f'"{name}" = {lower}', text)
        PROJECT.write_text(text, encoding="utf-8")
        return 0
    wrong = [
        f"{name}: {counts.get(name, 0):,} lines, and its budget is {budgets.get(name, 0):,}"
        for name in sorted(budgets.keys() | counts.keys())
        if name not in budgets or name not in counts or counts[name] > budgets[name]
    ]
    print("\n".join(wrong) or f"{sum(counts.values()):,} lines, no package above its budget")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
