"""The tables of docs/backends.md agree with the declarations."""

from __future__ import annotations

from audit_pipeline.detectors.registry import REGISTRY
from docs.writers.backends import format_backend_tables

ROWS = {
    cells[0]: cells[1:]
    for line in format_backend_tables(list(REGISTRY.values())).splitlines()
    if line.startswith("| ")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def row(name: str) -> list[str]:
    return next(cells for head, cells in ROWS.items() if head in (f"`{name}`", f"[{name}](detectors.md#{name})"))


def test_every_detector_has_a_row_and_every_back_end_a_column() -> None:
    head = ["transformers", *(f"openai: {one}" for one in ("vllm", "vllm with moments", "sglang"))]
    assert ROWS["detector"][:4] == ROWS["statistic"][:4] == head
    assert all(len(row(name)) == 6 and row(name)[0] == "yes" for name in REGISTRY)


def test_what_own_log_probabilities_suffice_for_is_scored_behind_every_interface() -> None:
    for name, detector in REGISTRY.items():
        if detector.own_logprobs_suffice and name != "combined":
            assert row(name) == ["yes"] * 6, name


def test_what_an_interface_gives_from_how_many_best_tokens_on() -> None:
    assert row("mean") == ["yes", "no", "yes", "no", "no", "no"]
    assert row("topk") == ["yes", "N ≥ 20", "N ≥ 20", "N ≥ 20", "no", "no"]
    assert row("log_mass_40") == ["yes", "N ≥ 40", "no", "N ≥ 40", "no", "no"]
    assert row("min_k_plus_plus") == row("mean")
    assert row("gap_k") == ["yes", "no", "N ≥ 1", "no", "no", "no"]
    # Its list holds detectors that read means and deviations.
    assert row("combined") == row("gap_k")
    assert row("max_renyi")[1] == "other settings, N ≥ 1"
