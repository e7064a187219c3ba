"""A model with compiled decoder layers: equal numbers except for rounding, and another fingerprint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import SAME_IN_FLOAT32, SENTENCES, forward_of, score, tokenized

from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.load_checks import LoadCheck
from audit_pipeline.token_statistics.tokens import cut_windows, encode

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [SENTENCES[0], "a", SENTENCES[3] * 2, SENTENCES[1]]
KNOWN = LoadCheck(onednn=False, split=True, equal_lengths=False, packed=True, shared_prefix=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a processor")
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_compiled_layers_give_the_same_statistics_and_branches(
    tiny_folder: Callable[[str], Path], tmp_path: Path, family: str
) -> None:
    model = tokenized(tiny_folder(family), tmp_path)
    plain = forward_of(model)
    expected = score(model, plain, TEXTS)
    encoded = encode(model, TEXTS)
    batch = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, 64, 32)]
    branches = plain.run_with_branches(encoded, batch, 3)
    compiled = ForwardPass(plain.model, model.vocab_size, plain.checked, compiles=True)
    for ours, reference in zip(score(model, compiled, TEXTS), expected, strict=True):
        np.testing.assert_allclose(ours["logprob"], reference["logprob"], atol=SAME_IN_FLOAT32)
    found = compiled.run_with_branches(encoded, batch, 3)
    for one, other in zip(found, branches, strict=True):
        np.testing.assert_allclose(one.branches.logprob, other.branches.logprob, atol=SAME_IN_FLOAT32)


def test_a_machine_without_a_compiler_raises_an_error(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path)
    inner = forward_of(model).model

    def refuse(layer: torch.nn.Module) -> None:
        def fail(*args: object, **options: object) -> None:
            raise RuntimeError("no compiler\nand a long trace")

        layer.forward = fail  # type: ignore[method-assign,assignment]

    monkeypatch.setattr(torch.nn.Module, "compile", refuse)
    with pytest.raises(ModelError, match=r"cannot compile .* \(no compiler\)\. Remove 'compile' from"):
        ForwardPass(inner, model.vocab_size, KNOWN, compiles=True)


def test_compilation_changes_the_fingerprint(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tiny_folder("llama")
    plain, compiled = (tokenized(folder, tmp_path, compile=compiles) for compiles in (False, True))
    assert plain.identity.model_fingerprint == tokenized(folder, tmp_path).identity.model_fingerprint
    assert plain.identity.model_fingerprint != compiled.identity.model_fingerprint
    with pytest.raises(ValueError, match=r"'compile' requires a single device\. Remove 'devices'"):
        ModelEntry(name="m", path=folder, compile=True, devices="auto")


def test_few_lengths_are_compiled(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path)
    forward = ForwardPass(forward_of(model).model, model.vocab_size, KNOWN)
    forward._compiles, forward.config = True, None
    assert [forward.pad_length(length) for length in (1, 16, 17, 31, 33, 65, 100, 129)] == [
        *(16, 16, 17, 31, 34, 68, 100, 136)
    ]
