"""Where there are too many pairs, the report shows those that matter most, and says what it leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.tables import read_json, write_json
from audit_pipeline.warehouse import report_choice, report_data
from audit_pipeline.warehouse.build import build_warehouse
from audit_pipeline.warehouse.query import query
from audit_pipeline.warehouse.report import build_report
from audit_pipeline.warehouse.report_choice import choose

from .conftest import Folder

Pairs = list[dict[str, str]]
Headlines = dict[tuple[str, str], list[dict[str, object]]]


def pairs_of(*models: str) -> Pairs:
    return [{"model": model, "benchmark": "b"} for model in models]


def headline(*lows: float | None, is_current: bool = True) -> list[dict[str, object]]:
    return [{"auroc_low": low, "is_current": is_current} for low in lows]


def limit(monkeypatch: pytest.MonkeyPatch, in_table: int, in_detail: int) -> None:
    monkeypatch.setattr(report_choice, "MAX_IN_TABLE", in_table)
    monkeypatch.setattr(report_choice, "MAX_IN_DETAIL", in_detail)


def test_what_matters_most(monkeypatch: pytest.MonkeyPatch) -> None:
    headlines: Headlines = {
        ("a", "b"): headline(0.5, 0.6),
        ("b", "b"): headline(0.9, is_current=False),
        ("c", "b"): headline(0.55, 0.7, None),
        ("e", "b"): headline(None, float("nan")),
        ("f", "b"): headline(0.65),
    }
    # By weight: c (.7), f (.65), a (.6), e (nothing known), b (of an earlier build), d (not evaluated).
    pairs = pairs_of(*"abcdef")
    orders = {6: "abcdef", 5: "abcef", 4: "acef", 3: "acf", 2: "cf", 1: "c"}
    for in_table, names in orders.items():
        limit(monkeypatch, in_table, 2)
        chosen = choose(pairs, headlines)
        assert "".join(pair["model"] for pair, _ in chosen) == names
        sections = {pair["model"]: section for pair, section in chosen}
        assert sections == {name: {"c": 1, "f": 2}.get(name) for name in names}


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_no_pair_left_out_matters_more(lows: list[float | None], in_table: int, in_detail: int) -> None:
    names = [f"m{number}" for number in range(len(lows))]
    headlines: Headlines = {(name, "b"): headline(low) for name, low in zip(names, lows, strict=True)}
    with pytest.MonkeyPatch.context() as monkeypatch:
        limit(monkeypatch, in_table, min(in_table, in_detail))
        chosen = choose(pairs_of(*names), headlines)
    known = {name: -1.0 if low is None else low for name, low in zip(names, lows, strict=True)}
    shown = [pair["model"] for pair, _ in chosen]
    detailed = [pair["model"] for pair, section in chosen if section is not None]
    assert shown == [name for name in names if name in shown]
    assert len(shown) == min(len(names), in_table)
    assert len(detailed) == min(len(names), in_table, in_detail)
    assert [section for _, section in chosen if section is not None] == list(range(1, len(detailed) + 1))
    for some in (shown, detailed):
        left_out = [known[name] for name in names if name not in some]
        assert all(known[name] >= worst for name in some for worst in left_out)


def test_a_report_of_too_many_pairs(audited: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One benchmark was built again since: its two pairs matter least.
    path = audited.paths.benchmark_manifest("speeches_64")
    write_json(path, {**read_json(path), "digest": "of another build"})
    build_warehouse(audited.paths)
    out = tmp_path / "report.html"
    whole = build_report(audited.paths.warehouse, out)
    assert "matter most" not in out.read_text(encoding="utf-8")

    limit(monkeypatch, 3, 1)
    cut = build_report(audited.paths.warehouse, out)
    assert (cut.pairs, cut.models, cut.benchmarks, cut.findings) == (4, 2, 2, 16)
    assert (cut.lineage_entries, cut.lineage_gaps) == (whole.lineage_entries, 0)
    html = out.read_text(encoding="utf-8")
    table = html[html.index('id="findings-table"') : html.index("</table>", html.index('id="findings-table"'))]
    assert table.count('class="finding"') == 3 * 4
    assert table.count("of an earlier build: audit again") == 1
    (best,) = query(
        audited.paths.warehouse,
        "SELECT model, benchmark FROM leaderboard WHERE is_current ORDER BY auroc_low DESC LIMIT 1",
    ).to_pylist()
    (section,) = re.findall(r'<article id="finding-1">\s*<h3>(.*?)</h3>', html)
    model = best["model"].replace("<", "&lt;").replace(">", "&gt;")
    assert section == f"{model} on {best['benchmark']}"
    assert html.count("<article") == 1
    assert html.count("<svg") == 3
    words = " ".join(re.sub(r"<.*?>", " ", html[html.index("<main>") :]).split())
    assert "The 3 of 4 pairs of model and benchmark that matter most are shown" in words
    assert "Of the 4 pairs of model and benchmark the 1 that matter most have a section" in words
    shown = len(re.findall(r'id="lineage-\d+"', html))
    assert shown == whole.lineage_entries - 2, "scores and evaluations of the pair that is left out"
    assert f"Here are the {shown} entries, of {whole.lineage_entries}, behind what is shown above." in words
    assert set(re.findall(r'href="#(.*?)"', html)) <= set(re.findall(r'id="(.*?)"', html))
    assert cut.bytes < whole.bytes / 2


def test_many_gaps_are_counted_and_some_named(audited: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in audited.paths.table("lineage").rglob("*.parquet"):
        file.unlink()
    build_warehouse(audited.paths)
    monkeypatch.setattr(report_data, "MAX_GAPS", 2)
    summary = build_report(audited.paths.warehouse, tmp_path / "report.html")
    gaps = query(audited.paths.warehouse, "FROM lineage_gaps").num_rows
    assert summary.lineage_gaps == gaps > 2
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<b>{gaps} partitions do not join to exactly one lineage entry.</b>" in html
    assert f'And {gaps - 2} more: <code>corpus-audit sql "FROM lineage_gaps"</code>' in html
