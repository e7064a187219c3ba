"""The training of controls: its losses, its repeatability and its files."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from control_corpus import ENTRY, build, documents, entry, step
from ledger_lines import write_explained
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from audit_pipeline.errors import DataError, ModelError
from audit_pipeline.extras.controls.build import (
    START,
    build_untrained_model,
    ensure_control_trained,
    train,
    train_models_into,
    train_tokenizer,
)
from audit_pipeline.extras.controls.config import Architecture, StudyEntry
from audit_pipeline.extras.controls.draw import compute_wanted_version, draw_texts
from audit_pipeline.extras.controls.study import list_conditions, run_study, train_and_measure
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.control_files import (
    count_training_occurrences,
    read_control,
    read_control_texts,
    read_trained_version,
)
from audit_pipeline.store.paths import EXPOSED, TWIN, DataPaths
from audit_pipeline.tables import DOCUMENTS

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_tokenizer_knows_every_byte_and_ignores_the_order_of_texts() -> None:
    texts = ["the lamp of the harbour", "the lamp, the lamp", "nobody counted"]
    tokenizer = train_tokenizer(texts, 300, 64)
    assert tokenizer.get_vocab() == train_tokenizer(texts[::-1], 300, 64).get_vocab()
    unseen = "ÿ☃ 海 lamp"
    assert tokenizer.decode(tokenizer(unseen)["input_ids"]) == unseen
    assert tokenizer.convert_tokens_to_ids(START) == 0


def make_untrained(seed: int = 3) -> tuple[Any, Any]:
    """Return a model with random weights, and a small tokenizer."""
    tokenizer = train_tokenizer(["a lamp in the harbour"], 300, 64)
    tiny = Architecture(hidden_size=16, layers=1, heads=2, intermediate_size=32, vocabulary=300)
    return build_untrained_model(tiny, len(tokenizer), 0, seed), tokenizer


def test_the_loss_of_a_step_is_the_loss_by_hand() -> None:
    """The loss is -mean log p(x_t | x_<t) with a start token in front and without padding."""
    model, tokenizer = make_untrained()
    texts = ["a lamp", "a lamp in the harbour"]
    expected = []
    for text in texts:
        ids = torch.tensor([[0, *tokenizer(text)["input_ids"]]])
        logprob = model(ids).logits[0, :-1].double().log_softmax(-1)
        expected.append(logprob.gather(1, ids[0, 1:, None])[:, 0].detach().numpy())
    losses: list[float] = []
    trained = train(
        model, tokenizer, 0, texts, entry(epochs=1, batch_size=2), role="exposed", device="cpu",
        on_step=lambda step, steps, loss: losses.append(loss),
    )  # fmt: skip
    assert losses == [pytest.approx(-np.concatenate(expected).mean(), rel=1e-5)]
    assert (trained.steps, trained.tokens) == (1, sum(map(len, expected)))


def test_weights_depend_only_on_the_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        model, tokenizer = make_untrained(seed)
        done = train(
            model, tokenizer, 0, ["a lamp", "a lamp", "in the harbour", "the lamp"],
            entry(seed=seed, batch_size=2), role="exposed", device="cpu",
        )  # fmt: skip
        return torch.cat([parameter.detach().flatten() for parameter in done.model.parameters()])

    before = torch.random.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(before, torch.random.get_rng_state()), "the caller's random state is unchanged"


def test_each_member_is_trained_on_as_often_as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make_untrained()
    seen: Counter[tuple[int, ...]] = Counter()
    forward = model.forward

    def counting(*args: object, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: object) -> object:
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            seen[tuple(ids[mask.bool()].tolist())] += 1
        return forward(*args, input_ids=input_ids, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(model, "forward", counting)
    texts = ["one", "one", "one", "two three"]
    train(model, tokenizer, 0, texts, entry(epochs=2, batch_size=3), role="exposed", device="cpu")
    assert seen == {(0, *tokenizer(text)["input_ids"]): 2 * texts.count(text) for text in texts}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> DataPaths:
    paths = DataPaths(tmp_path_factory.mktemp("control"))
    torch.set_num_threads(1)
    build(paths)
    return paths


def test_the_training_texts_are_stored_with_the_models(built: DataPaths) -> None:
    manifest = read_control("c", built)
    assert manifest["roles"] == {"member": 24, "held_out": 24, "twin": 24}
    assert list(manifest["models"]) == ["exposed", "twin"]
    assert manifest["settings"]["learning_rate"] == ENTRY.learning_rate
    assert manifest["packages"]["torch"]
    texts = read_control_texts("c", built)
    assert texts.num_rows == 72
    folder = built.control_version("c", manifest["version"])
    for role in ("exposed", "twin"):
        assert manifest["models"][role]["losses"][-1] < math.log(manifest["vocabulary"])
        assert load_file(folder / role / "model.safetensors")
        assert not list((folder / role).glob("*.bin")), "no pickle"


def test_the_occurrences_of_a_text_are_counted_over_all_epochs(built: DataPaths) -> None:
    roles = {text["text"]: text["role"] for text in read_control_texts("c", built).to_pylist()}
    texts = sorted(roles)
    for role, own in ((EXPOSED, "member"), (TWIN, "twin")):
        found = count_training_occurrences(texts, "c", role, built)
        assert found == [8 if roles[text] == own else 0 for text in texts]
    assert count_training_occurrences([], "c", EXPOSED, built) == []
    with pytest.raises(
        DataError, match=r"a text is not in the current version of the control c.*corpus-audit control c"
    ):
        count_training_occurrences([*texts, "another text"], "c", TWIN, built)


def test_a_trained_control_is_a_model_like_any_other(built: DataPaths) -> None:
    model_entry = ModelEntry(name="exposed one", control={"name": "c", "role": "exposed"})
    model = load_tokenized(model_entry, built)
    assert model.start_token == START
    assert "control c, exposed" in model.located.resolved_from
    assert AutoModelForCausalLM.from_pretrained(model.located.folder).config.vocab_size == model.vocab_size
    twin = load_tokenized(ModelEntry(name="t", control={"name": "c", "role": "twin"}), built)
    assert twin.identity.tokenizer_fingerprint == model.identity.tokenizer_fingerprint
    assert twin.identity.model_fingerprint != model.identity.model_fingerprint


def test_a_control_is_trained_again_only_after_a_change(built: DataPaths, tmp_path: Path) -> None:
    assert read_trained_version(ENTRY.name, built) == compute_wanted_version(ENTRY, built)
    again = ensure_control_trained(ENTRY, built, step())
    assert not again.trained
    other = entry(learning_rate=0.001)
    assert read_trained_version(other.name, built) != compute_wanted_version(other, built)

    paths = DataPaths(tmp_path)
    first = build(paths)
    second = ensure_control_trained(other, paths, step())
    assert second.trained
    assert second.version != first.version
    assert not first.folder.exists(), "the earlier version is deleted after the pointer has moved"
    assert read_control("c", paths)["version"] == second.version


@pytest.mark.parametrize("name", ["texts.parquet", "exposed/model.safetensors", "twin/tokenizer.json", "manifest.json"])
def test_a_damaged_control_is_refused_and_trained_again(built: DataPaths, tmp_path: Path, name: str) -> None:
    paths = DataPaths(shutil.copytree(built.root, tmp_path / "data"))
    file = paths.control_version("c", read_control("c", paths)["version"]) / name
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    if name == "manifest.json":
        # An interrupted training writes no manifest.
        file.unlink()
        with pytest.raises(DataError, match=r"has not been trained yet\. Run: corpus-audit control c"):
            read_control("c", paths)
    elif name == "texts.parquet":
        with pytest.raises(DataError, match=rf"the control c is damaged: .*{name} is missing or corrupt"):
            read_control_texts("c", paths)
    else:
        damaged, other = ("exposed", "twin") if name.startswith("exposed") else ("twin", "exposed")
        with pytest.raises(ModelError, match=rf"the control c cannot be read .*{name}.*Train it again"):
            load_tokenized(ModelEntry(name="m", control={"name": "c", "role": damaged}), paths)
        assert load_tokenized(ModelEntry(name="m", control={"name": "c", "role": other}), paths)
    assert read_trained_version(ENTRY.name, paths) != compute_wanted_version(ENTRY, paths)
    assert ensure_control_trained(ENTRY, paths, step()).trained
    assert name == "manifest.json" or file.read_bytes() == whole, "the same seed, on the same machine"
    assert read_trained_version(ENTRY.name, paths) == compute_wanted_version(ENTRY, paths)


def test_models_trained_in_parallel_have_the_weights_of_models_trained_in_turn(
    built: DataPaths, tmp_path: Path
) -> None:
    texts = draw_texts(documents(), ENTRY)
    version = built.control_version(ENTRY.name, str(read_control(ENTRY.name, built)["version"]))
    for role in (EXPOSED, TWIN):
        train_models_into(tmp_path, texts, ENTRY, device="cpu", paths=built, roles=(role,))
        alone, beside = (load_file(folder / role / "model.safetensors") for folder in (tmp_path, version))
        assert all(torch.equal(alone[name], beside[name]) for name in alone), role


def test_an_untrained_control_is_reported_with_its_command(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with pytest.raises(DataError, match="corpus-audit control c"):
        read_control_texts("c", paths)
    with pytest.raises(ModelError, match=r"m has not been trained yet\. Run: corpus-audit control c"):
        load_tokenized(ModelEntry(name="m", control={"name": "c", "role": "twin"}), paths)
    with pytest.raises(DataError):
        ensure_control_trained(ENTRY, paths, step())


def test_detectors_find_members_in_the_exposed_model_but_not_in_the_twin() -> None:
    """After twenty epochs, even a model of this size knows 24 short texts by heart."""
    control = entry(epochs=20)
    texts = draw_texts(documents(), control)
    detectors = ("loss", "min_k", "min_k_plus_plus")
    for role, low, high in (("exposed", 0.95, 1.0), ("twin", 0.2, 0.8)):
        evaluation, _ = train_and_measure(
            texts, control, detectors, DataPaths(Path("/nowhere")), role=role, device="cpu"
        )  # type: ignore[arg-type]
        rows = evaluation.table.to_pylist()
        found = {row["detector"]: row["value"] for row in rows if row["metric"] == "auroc"}
        assert set(found) >= set(detectors)
        assert all(low <= found[name] <= high for name in detectors), (role, found)
        assert evaluation.split_verdict == "randomised by design"


def test_a_study_varies_one_setting_at_a_time_and_trains_no_condition_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = StudyEntry(
        name="s", description="d", control="c", vary={"occurrences": (1, 8), "epochs": (1,)}, detectors=("loss",)
    )
    planned = list_conditions(study, ENTRY)
    assert [(setting, value) for setting, value, _ in planned] == [
        ("occurrences", 1),
        ("occurrences", 8),
        ("epochs", 1),
    ]
    paths = DataPaths(tmp_path)
    build(paths)
    lines: list[str] = []
    entry = ENTRY.with_settings(epochs=1, occurrences=8)
    table = run_study(study, entry, paths, step(), device="cpu", log=lines.append)
    rows = [row for row in table.to_pylist() if row["detector"] == "loss"]
    assert [(row["setting"], row["value"]) for row in rows] == [
        ("occurrences", "1"),
        ("occurrences", "8"),
        ("epochs", "1"),
    ]
    assert rows[0]["training_tokens"] * 8 == rows[1]["training_tokens"]
    assert rows[1]["auroc"] == rows[2]["auroc"], "the same training under two names"
    assert rows[0]["final_loss"] > rows[1]["final_loss"]
    assert len(lines) == 3
    assert paths.study("s").exists()


def test_a_control_can_start_from_a_base_model(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control has the tokenizer, start token and initial weights of its base, in float32."""
    folder = tiny_folder("llama")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "models.yaml").write_text(f"models:\n  one: {{path: {folder}, dtype: bfloat16}}\n")
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path / "config"))
    before = load_file(folder / "model.safetensors")
    paths = DataPaths(tmp_path / "data")
    write_explained(paths, DOCUMENTS, "made", documents())
    report = ensure_control_trained(entry(base="one", epochs=1, learning_rate=1e-9), paths, step(), device="cpu")
    trained = load_file(report.folder / "exposed" / "model.safetensors")
    for name, weight in load_file(folder / "model.safetensors").items():
        assert torch.equal(weight, before[name]), "the base is not written to"
        assert trained[name].dtype == torch.float32
        torch.testing.assert_close(trained[name], weight.float(), atol=1e-5, rtol=1e-2)
    base = load_tokenized(ModelEntry(name="one", path=folder), paths)
    exposed = load_tokenized(ModelEntry(name="e", control={"name": "c", "role": "exposed"}), paths)
    assert exposed.tokenizer.backend.get_vocab() == base.tokenizer.backend.get_vocab()
    assert report.manifest["start_token"] == base.start_token
