"""The whole configuration: references between files, and all problems at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors.registry import ONE_PASS
from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.controls import config as controls
from audit_pipeline.pipeline.whole_configuration import FILES, Configuration, load_configuration
from audit_pipeline.sources.local_files import LocalFilesSettings

ROOT = Path(__file__).parents[2]

BROKEN = {
    "sources.yaml": """\
local_files: {path: texts}
books: {folder: x, gutenberg: {limits: 3}}
""",
    "references.yaml": """\
references:
  mine: {path: x, language: en, licence: l}
""",
    "models.yaml": """\
models:
  fine: {hub: a/b, reference_model: /some/where, reference_corpus: mine}
  elsewhere: {hub: a/b, reference_model: owner/name}
  astray:
    hub: a/b
    reference_model: fien
    reference_corpus: mien
    dtyp: float32
  trained: {control: {name: chek, role: twin}}
""",
    "controls.yaml": """\
controls:
  check: {description: d, sources: [sotu], members: 1, held_out: 1, seed: 1}
  other: {description: d, sources: [sotu, stou], members: 1, held_out: 1, seed: 1, base: fien}
""",
    "studies.yaml": """\
studies:
  fine: {description: d, control: check, vary: {epochs: [1, 2], hidden_size: [64]}}
  wrong: {description: d, control: check, vary: {epocs: [1], hidden_size: [100]}, detectors: [mink]}
  lost: {description: d, control: chekc, vary: {epochs: [1]}}
""",
    "benchmarks.yaml": """\
benchmarks:
  fine: {builder: controlled, description: d, control: check, words: [8], seed: 1}
  lost: {builder: controlled, description: d, control: chcek, words: [8], seed: 1}
  shelf:
    builder: shelf
    description: d
    sources: [local_files, local_file]
    held_out: {sources: [boks]}
    combined: [zlib, mink, dc_pdd]
    words: [8]
    windows_per_document: 1
    design: exchangeable
    seed: 1
""",
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    for name, content in BROKEN.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def told(config: Configuration) -> list[str]:
    return [str(problem).removeprefix(f"{config.folder}/") for problem in config.problems]


def test_the_shipped_files_have_no_problem() -> None:
    config = load_configuration(ROOT / "config")
    assert config.problems == ()
    assert sorted(FILES) == sorted(path.name for path in (ROOT / "config").glob("*.yaml"))


def test_every_problem_of_every_file_at_once(broken: Path) -> None:
    one_pass = did_you_mean("dc_pdd", ONE_PASS)
    assert told(load_configuration(broken)) == [
        "sources.yaml:2: section books: unknown key 'gutenberg.limits'; did you mean limit?",
        "models.yaml:8: model astray: unknown key 'dtyp'; did you mean dtype?",
        "models.yaml:6: model astray: reference_model: there is no model 'fien'; did you mean fine?",
        "models.yaml:7: model astray: reference_corpus: there is no corpus 'mien'; did you mean mine?",
        "models.yaml:9: model trained: control.name: there is no control 'chek'; did you mean check?",
        "benchmarks.yaml:3: family lost: control: there is no control 'chcek'; did you mean check?",
        "benchmarks.yaml:9: family shelf: combined: there is no one-pass detector 'mink'; did you mean min_k?",
        f"benchmarks.yaml:9: family shelf: combined: there is no one-pass detector 'dc_pdd'; {one_pass}",
        "benchmarks.yaml:7: family shelf: sources: there is no source 'local_file'; did you mean local_files?",
        "benchmarks.yaml:8: family shelf: held_out.sources: there is no source 'boks'; did you mean books?",
        "controls.yaml:3: control other: sources: there is no source 'stou'; did you mean sotu?",
        "controls.yaml:3: control other: base: there is no model 'fien'; did you mean fine?",
        "studies.yaml:3: study wrong: detectors: there is no detector 'mink'; did you mean min_k?",
        "studies.yaml:3: study wrong: vary.epocs: 1: control check: unknown key 'epocs'; did you mean epochs?",
        "studies.yaml:3: study wrong: vary.hidden_size: 100: control check: architecture: hidden_size is 100, but "
        "must be a multiple of 2 × heads (8), because the position embeddings (RoPE) rotate pairs of values within "
        "each head",
        "studies.yaml:4: study lost: control: there is no control 'chekc'; did you mean check?",
    ]


def test_an_entry_with_a_wrong_reference_is_broken_and_the_others_load(broken: Path) -> None:
    config = load_configuration(broken)
    assert list(config.models) == ["fine", "elsewhere"]
    assert list(config.entries_of(controls.FILE)) == ["check"]
    assert list(config.entries_of(controls.STUDIES_FILE)) == ["fine"]
    assert list(config.benchmarks) == ["fine_8"]
    assert config.models.names == ("fine", "elsewhere", "astray", "trained")
    with pytest.raises(ConfigError, match="no source 'local_file'"):
        config.benchmarks.require_not_broken("shelf_8")
    assert config.sources.for_source("local_files") == LocalFilesSettings(path=broken / "texts")
    with pytest.raises(ConfigError, match="section books: unknown key"):
        config.sources.digest_for("books")


@pytest.mark.parametrize("content", [None, "models: [", "- one", "models: {}\nmore: 1"])
def test_an_unreadable_file_is_a_problem_and_stops_only_its_users(broken: Path, content: str | None) -> None:
    path = broken / "models.yaml"
    path.unlink()
    if content is not None:
        path.write_text(content)
    config = load_configuration(broken)
    assert list(config.benchmarks) == ["fine_8"]
    [problem] = config.problems_of("models.yaml")
    assert str(problem).startswith(str(path))
    with pytest.raises(ConfigError) as caught:
        _ = config.models
    assert str(caught.value) == str(problem)
    # Nobody can say that a name is not in a file that cannot be read.
    assert not any("base:" in words for words in told(config))


def test_a_corpus_that_nobody_named_need_not_be_there(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config" / "references.yaml").unlink()
    assert load_configuration(tmp_path / "config").problems == ()
