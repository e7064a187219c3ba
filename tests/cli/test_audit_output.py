"""Output of `corpus-audit audit` on a series, one heading per checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from audit_pipeline.cli import audit_output
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.pipeline.audit_requests import AuditOutcome


def test_a_checkpoint_without_findings_has_the_reason_below_its_heading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path))
    monkeypatch.setattr(audit_output, "print_damaged_files", lambda paths: None)
    monkeypatch.setattr(audit_output, "_show_pair_results", lambda paths, model, benchmark, details: model == "m@1")
    models = [ModelEntry(name=name, path=tmp_path) for name in ("m@1", "m@2", "m@3")]
    reasons = {"made|m@2": "its weights are cut short"}
    outcome = AuditOutcome(models, [SimpleNamespace(name="made")], not_run=reasons)  # type: ignore[list-item]
    audit_output.show_audit_outcome(outcome)
    assert capsys.readouterr().out.split("\nReport:")[0].splitlines() == [
        *("", "m@1:"),
        *("", "m@2:", "made has no findings: its weights are cut short"),
        *("", "m@3:", "made has no findings: no text was evaluated"),
    ]
