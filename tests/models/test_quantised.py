"""Quantised weights: detection, refusals, and loading."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import SENTENCES, forward_of, save_model, score, tokenized
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from audit_pipeline.errors import ModelError
from audit_pipeline.models import model_files
from audit_pipeline.models.weights import compute_weight_bytes, count_parameters, load_weights
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.loading import load_forward_pass

pytestmark = pytest.mark.usefixtures("one_thread")

LARGEST = 448.0
"""Of torch.float8_e4m3fn."""


def with_quantisation(folder: Path, **fields: object) -> Path:
    """Add a quantisation to the config.json of a model."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": fields}))
    return folder


def pack_in_fp8(folder: Path, suffix: str, block: tuple[int, int] | None, **fields: object) -> Path:
    """Convert weights to FP8 with one scale per block of this shape, or per row."""
    written = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        written[name] = weight
        if "proj" in name:
            rows, columns = weight.shape
            height, width = block or (1, columns)
            blocks = weight.view(rows // height, height, columns // width, width)
            scale = blocks.abs().amax(dim=(1, 3)) / LARGEST
            written[name] = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).view(weight.shape)
            written[f"{name}{suffix}"] = scale
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    return with_quantisation(folder, **fields)


# DeepSeek and others publish weights in this form.
in_fp8 = partial(
    pack_in_fp8,
    suffix="_scale_inv",
    block=(16, 16),
    quant_method="fp8",
    activation_scheme="dynamic",
    weight_block_size=[16, 16],
    modules_to_not_convert=["lm_head"],
)
NUMBERS = {"num_bits": 8, "type": "float", "symmetric": True}
in_compressed_tensors = partial(
    pack_in_fp8,
    suffix="_scale",
    block=None,
    quant_method="compressed-tensors",
    format="float-quantized",
    quantization_status="compressed",
    ignore=["lm_head"],
    config_groups={
        "group_0": {
            "targets": ["Linear"],
            "weights": {**NUMBERS, "strategy": "channel", "dynamic": False},
            "input_activations": {**NUMBERS, "strategy": "token", "dynamic": True},
        }
    },
)
needs_compressed_tensors = pytest.mark.skipif(find_spec("compressed_tensors") is None, reason="an optional package")


def pack_in_bits(folder: Path, bits: int) -> Path:
    pytest.importorskip("bitsandbytes")
    how = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8, bnb_4bit_compute_dtype=torch.float32)
    options = {"quantization_config": how, "dtype": torch.float32, "device_map": {"": "cpu"}}
    AutoModelForCausalLM.from_pretrained(folder, **options).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("write", "words", "tolerance"),
    [
        pytest.param(in_fp8, "fp8", 0.4, id="fp8"),
        pytest.param(
            in_compressed_tensors, "compressed-tensors", 0.4, id="compressed-tensors", marks=needs_compressed_tensors
        ),
        pytest.param(partial(pack_in_bits, bits=8), "bitsandbytes, 8 bits", 0.1, id="8 bits"),
        pytest.param(partial(pack_in_bits, bits=4), "bitsandbytes, 4 bits", 0.8, id="4 bits"),
    ],
)
def test_quantised_weights_have_their_own_fingerprint_and_similar_scores(
    tmp_path: Path, write: Callable[[Path], Path], words: str, tolerance: float
) -> None:
    # bitsandbytes packs weights in blocks of 64.
    folder = save_model(tmp_path / "model", hidden_size=64, intermediate_size=64, initializer_range=0.1)
    plain = tokenized(folder, tmp_path / "data")
    expected = score(plain, forward_of(plain), list(SENTENCES))
    plain_parameters = count_parameters(plain)
    model = tokenized(write(folder), tmp_path / "data")
    assert model.identity.model_fingerprint != plain.identity.model_fingerprint
    forward = load_forward_pass(model, DataPaths(tmp_path / "data"), "cpu")
    card = read_json(DataPaths(tmp_path / "data").model_card(model.identity.model_fingerprint))
    assert (card["weights_format"], card["parameters"]) == (words, plain_parameters)
    found = score(model, forward, list(SENTENCES))
    differences = [np.abs(row["logprob"] - other["logprob"]) for row, other in zip(found, expected, strict=True)]
    assert 0 < np.concatenate(differences).mean() < tolerance


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            r"bitsandbytes, 4 bits\). .* not installed: bitsandbytes\. Run: pip install 'corpus-audit\[quantised\]'",
        ),
        ({"load_in_8bit": True}, r"\(bitsandbytes, 8 bits\)\. .* not installed: bitsandbytes\."),
        (
            {"quant_method": "compressed-tensors"},
            r"not installed: compressed-tensors\. Run: pip install 'corpus-audit\[quantised\]'",
        ),
        (
            {"quant_method": "gptq", "bits": 4},
            r"\(gptq, 4 bits\). .* not installed: optimum gptqmodel\. Run: pip install --no-build-isolation",
        ),
        ({"quant_method": "new"}, "are quantised as 'new', which is not supported. Use one of bitsandbytes"),
    ],
)
def test_a_quantisation_without_its_package_raises_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], words: str
) -> None:
    folder = with_quantisation(save_model(tmp_path / "model"), **fields)
    monkeypatch.setattr(model_files, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=words) as refused:
        load_weights(tokenized(folder, tmp_path / "data"), "cpu")
    assert "\n" not in str(refused.value)


def test_packed_weights_take_the_bytes_of_their_files(tmp_path: Path) -> None:
    model = tokenized(in_fp8(save_model(tmp_path / "model")), tmp_path / "data")
    assert compute_weight_bytes(model, "cpu") == 4 * count_parameters(model)
    files = sum(weight.nbytes for weight in load_file(tmp_path / "model" / "model.safetensors").values())
    assert compute_weight_bytes(model, "cuda") == files < compute_weight_bytes(model, "cpu")
