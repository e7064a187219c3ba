"""The product follows the style rules of tests/style_rules.py."""

from __future__ import annotations

from pathlib import Path

import style_rules

ROOT = Path(__file__).parent.parent
PRODUCT = [ROOT / "assets", ROOT / "audit_pipeline", ROOT / "corpus_audit"]


def test_no_docstring_comment_message_or_statement_violates_a_style_rule() -> None:
    violations = []
    for path in style_rules.list_files(PRODUCT):
        violations += [str(violation) for violation in style_rules.find_violations(path)]
    assert not violations, "\n".join(violations[:50])


def test_public_classes_have_different_names() -> None:
    places: dict[str, list[str]] = {}
    for path in style_rules.list_files(PRODUCT):
        for name in style_rules.list_public_classes(path):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
