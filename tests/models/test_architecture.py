"""Models that cannot be audited. Each error is one line that names the cause, and no library prints anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tiny_models import error_line, tokenized
from transformers import BertConfig, BertForMaskedLM

from audit_pipeline.models.weights import load_weights

Folder = Callable[[str], Path]
Changed = Callable[..., Path]


@pytest.fixture
def copy_with_config(tiny_folder: Folder, tmp_path: Path) -> Changed:
    """Return a function that copies a tiny model and changes fields of its config.json. None removes a field."""

    def make(family: str = "llama", **fields: Any) -> Path:
        folder = shutil.copytree(tiny_folder(family), tmp_path / "changed")
        config = {**json.loads((folder / "config.json").read_text()), **fields}
        config = {key: value for key, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture
def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """Return a function that loads a folder and returns the one-line error. Nothing else may be printed."""

    def load(folder: Path) -> str:
        capfd.readouterr()
        line = error_line(lambda: load_weights(tokenized(folder, tmp_path / "data"), "cpu"))
        printed = capfd.readouterr()
        assert (printed.out, printed.err) == ("", "")
        return line

    return load


Refused = Callable[[Path], str]


def test_custom_code_raises_an_error_that_names_the_setting_and_the_code(
    copy_with_config: Changed, refused: Refused
) -> None:
    auto_map = {"AutoConfig": "configuration_my.MyConfig", "AutoModelForCausalLM": "modeling_my.MyForCausalLM"}
    folder = copy_with_config(model_type="my_own", auto_map=auto_map)
    (folder / "configuration_my.py").write_text("raise SystemExit('this code has been run')")
    message = refused(folder)
    assert "requires Python code that is among its files" in message
    assert f"Read the code ({folder}/*.py)" in message
    assert "trust_remote_code: true in the entry of this model in config/models.yaml" in message


def test_custom_tokenizer_code_raises_the_same_error(copy_with_config: Changed, refused: Refused) -> None:
    folder = copy_with_config()
    file = folder / "tokenizer_config.json"
    fields = json.loads(file.read_text())
    file.write_text(
        json.dumps(
            {**fields, "tokenizer_class": "MyTokenizer", "auto_map": {"AutoTokenizer": ["my.MyTokenizer", "my.MyFast"]}}
        )
    )
    assert "trust_remote_code: true" in refused(folder)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"model_type": "lama"},
            ["'lama'", "does not support. Did you mean llama?", transformers.__version__],
        ),
        (
            {"model_type": "never_heard_of_it"},
            ["architecture 'never_heard_of_it'", "A later version of transformers may support it"],
        ),
        ({"model_type": "vit"}, ["(vit) does not predict the next token of a text"]),
    ],
)
def test_an_unknown_architecture_raises_an_error_with_its_name(
    copy_with_config: Changed, refused: Refused, fields: dict[str, Any], told: list[str]
) -> None:
    message = refused(copy_with_config(**fields))
    assert all(words in message for words in told), message


def test_an_encoder_is_refused(tiny_folder: Folder, tmp_path: Path, refused: Refused) -> None:
    without = shutil.ignore_patterns("config.json", "*.safetensors")
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "bert", ignore=without)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertForMaskedLM(BertConfig(vocab_size=400, **sizes)).save_pretrained(folder)
    assert "(bert) does not predict the next token of a text. Use a decoder-only model" in refused(folder)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"intermediate_size": 999}, "mlp.down_proj.weight. Use weights"),
        ({"hidden_size": 16}, "for example lm_head.weight"),
        (
            {"num_hidden_layers": 5},
            ": 27 tensors are missing, unexpected or of another shape, for example model.layers.2.input_lay",
        ),
        # Left to itself, transformers leaves the layer out, and the model answers all the same.
        ({"num_hidden_layers": 1}, "for example model.layers.1.input_layernorm.weight"),
    ],
)
def test_weights_that_do_not_match_config_json_are_refused(
    copy_with_config: Changed, refused: Refused, fields: dict[str, Any], told: str
) -> None:
    assert told in refused(copy_with_config(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_hidden_layers": "many"},
        {"num_attention_heads": 7},
        {"hidden_act": "no_such_function"},
        {"dtype": "no_such_type"},
        {"quantization_config": {"quant_method": "gptq"}},
    ],
)
def test_an_invalid_config_json_raises_a_one_line_error(
    copy_with_config: Changed, refused: Refused, fields: dict[str, Any]
) -> None:
    assert "changed" in refused(copy_with_config(**fields))
