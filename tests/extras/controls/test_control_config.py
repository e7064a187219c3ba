"""The entries of controls.yaml and studies.yaml, and errors that name file, entry and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.controls.config import STUDIES_FILE, load_controls, load_studies
from audit_pipeline.pipeline.whole_configuration import load_configuration

CONTROL = """
controls:
  check:
    description: made up
    sources: [sotu]
    members: 10
    held_out: 10
    seed: 1
"""
STUDY = """
studies:
  rates:
    description: made up
    control: check
    vary: {learning_rate: [0.001, 0.01], hidden_size: [64, 128]}
    seeds: 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "controls.yaml").write_text(CONTROL)
    (tmp_path / "studies.yaml").write_text(STUDY)
    return tmp_path


def test_the_shipped_files_are_read() -> None:
    shipped = Path(__file__).parents[3] / "config"
    controls = load_controls(shipped)
    assert next(iter(controls)) == "instrument_check"
    assert all(study.control in controls for study in load_studies(shipped).values())


def test_the_digest_of_a_control_is_the_same_as_in_earlier_versions(folder: Path) -> None:
    control = load_controls(folder)["check"].with_settings(occurrences=8)
    assert control.settings_digest == "8d1e36ca2bc878617278938702680f9c0950c8f0481748304ec75b4312e7b09b"


def test_members_may_have_several_numbers_of_occurrences(folder: Path) -> None:
    (folder / "controls.yaml").write_text(CONTROL.replace("seed: 1", "seed: 1\n    occurrences: [1, 2, 64]"))
    control = load_controls(folder)["check"]
    assert control.occurrences == (1, 2, 64)


def test_a_setting_goes_to_the_control_or_to_its_architecture(folder: Path) -> None:
    control = load_controls(folder)["check"]
    changed = control.with_settings(learning_rate=0.5, hidden_size=64)
    assert (changed.learning_rate, changed.architecture.hidden_size, changed.architecture.layers) == (0.5, 64, 4)
    assert changed.settings_digest != control.settings_digest
    assert control.with_settings(description="other").settings_digest == control.settings_digest


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("members: 10", "members: 0", r"control check: members: .*greater than or equal to 1"),
        ("members: 10", "member: 10", r"control check: (unknown key 'member'|key 'members' is missing)"),
        (
            "seed: 1",
            "seed: 1\n    occurrences: 1.5",
            "1.5 requires draw: poisson, because draw: fixed takes a whole number",
        ),
        (
            "seed: 1",
            "seed: 1\n    architecture: {hidden_size: 100}",
            r"hidden_size is 100, but must be a multiple of 2 × heads \(8\)",
        ),
        ("sources: [sotu]", "sources: [sotu, sotu]", "sources: sotu, sotu contains a source twice"),
        ("seed: 1", "seed: 1\n    occurrences: 1.0e+300", "occurrences: must be less than or equal"),
        (
            "seed: 1",
            "seed: 1\n    draw: poisson\n    occurrences: 701",
            "701 is too large; with draw: poisson, the mean is at most 700",
        ),
        ("seed: 1", "seed: 1\n    occurrences: []", "occurrences: list should have at least 1 item"),
        ("seed: 1", "seed: 1\n    occurrences: [1, 2, 2]", "occurrences: .1, 2, 2. contains a number twice"),
        ("seed: 1", "seed: 1\n    occurrences: [1, 0]", r"occurrences: must be greater than or equal to 1, not 0$"),
        ("seed: 1", "seed: 1\n    occurrences: [1, 2.5]", r"occurrences: must be a valid integer, not 2\.5$"),
        (
            "members: 10",
            "members: 2\n    occurrences: [1, 2, 4]",
            r"members: 2 member\(s\) cannot be divided among the 3 numbers",
        ),
        ("seed: 1", "seed: 1\n    draw: poisson\n    occurrences: [1, 2]", "draw: poisson takes one mean"),
    ],
)
def test_an_invalid_entry_is_named(folder: Path, old: str, new: str, problem: str) -> None:
    (folder / "controls.yaml").write_text(CONTROL.replace(old, new))
    [said] = map(str, load_controls(folder).problems)
    assert re.search(problem, said)
    assert said.startswith(f"{folder / 'controls.yaml'}:")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("control: check", "control: chek", "did you mean check"),
        (
            "hidden_size: [64, 128]",
            "hidden_size: [64, 100]",
            r"hidden_size is 100, but must be a multiple of 2 × heads \(8\)",
        ),
        ("hidden_size: [64, 128]", "size: [1]", "unknown key 'size'"),
    ],
)
def test_an_invalid_study_is_refused_before_it_runs(folder: Path, old: str, new: str, problem: str) -> None:
    (folder / "studies.yaml").write_text(STUDY.replace(old, new))
    [said] = map(str, load_configuration(folder).problems_of("studies.yaml"))
    assert re.search(problem, said)
    with pytest.raises(ConfigError, match=problem):
        load_configuration(folder).entries_of(STUDIES_FILE).get_entry("rates")
