"""The plugin for vLLM, without vLLM: its arithmetic, what it wraps, and what it refuses to start with."""

from __future__ import annotations

import importlib.util
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SOURCE = Path(__file__).parents[2] / "plugins" / "vllm_moments" / "corpus_audit_vllm.py"


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_audit_vllm", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The fields of vLLM's LogprobsTensors that the plugin reads.
Gathered = namedtuple("Gathered", ["logprob_token_ids", "logprobs", "selected_token_ranks"])


class Sampler:
    @staticmethod
    def gather_logprobs(logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor) -> Gathered:
        best, indices = logprobs.topk(num_logprobs, dim=-1)
        own = logprobs.gather(-1, token_ids.unsqueeze(-1))
        ids = torch.cat((token_ids.unsqueeze(-1), indices), dim=1).to(torch.int32)
        return Gathered(ids, torch.cat((own, best), dim=1), (logprobs >= own).sum(-1))


def convert(tokenizer: object, token_ids: list[int]) -> list[str]:
    assert min(token_ids) >= 0, "a tokenizer refuses negative ids"
    return [f"<{one}>" for one in token_ids]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    names = ("vllm", "vllm.v1", "vllm.v1.engine", "vllm.v1.engine.logprobs", "vllm.v1.sample", "vllm.v1.sample.sampler")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["vllm"].__version__ = "0.32.0"
    modules["vllm.v1.engine"].logprobs = modules["vllm.v1.engine.logprobs"]
    modules["vllm.v1.engine.logprobs"].convert_ids_list_to_tokens = convert
    modules["vllm.v1.sample.sampler"].Sampler = type("Sampler", (Sampler,), {})
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    return modules


def test_two_columns_are_appended_only_if_22_logprobs_are_requested(plugin: ModuleType, vllm: dict[str, Any]) -> None:
    plugin.register()
    plugin.register()  # vLLM may call it more than once a process
    logprobs = torch.randn(600, 64, generator=torch.Generator().manual_seed(0)).mul(3).log_softmax(-1)
    own = torch.arange(600) % 64
    gather = vllm["vllm.v1.sample.sampler"].Sampler.gather_logprobs
    for asked in (1, 20, 21, 23):
        plain = Sampler.gather_logprobs(logprobs, asked, own)
        assert all(torch.equal(one, other) for one, other in zip(gather(logprobs, asked, own), plain, strict=True))
    found, plain = gather(logprobs, 22, own), Sampler.gather_logprobs(logprobs, 20, own)
    assert torch.equal(found.logprob_token_ids[:, :-2], plain.logprob_token_ids)
    assert torch.equal(found.logprobs[:, :-2], plain.logprobs)
    assert torch.equal(found.selected_token_ranks, plain.selected_token_ranks)
    assert found.logprob_token_ids[:, -2:].unique(dim=0).tolist() == [[-1, -2]]
    exact = logprobs.double()
    mean = (exact.exp() * exact).sum(-1)
    std = ((exact.exp() * exact.square()).sum(-1) - mean.square()).sqrt()
    torch.testing.assert_close(found.logprobs[:, -2:].double(), torch.stack((mean, std), dim=1), atol=1e-5, rtol=0)


def test_a_token_of_probability_zero_does_not_change_the_moments(plugin: ModuleType) -> None:
    logprobs = torch.tensor([[0.5, 0.5, 0.0]]).log()
    assert plugin.moments(logprobs).tolist() == [[pytest.approx(-0.693147), pytest.approx(0.0, abs=1e-6)]]


def test_the_two_ids_have_names_and_other_tokens_their_own(plugin: ModuleType, vllm: dict[str, Any]) -> None:
    plugin.register()
    named = vllm["vllm.v1.engine.logprobs"].convert_ids_list_to_tokens
    assert named(None, [5, 7, -1, -2, 6, 8, -1, -2]) == ["<5>", "<7>", "mean", "std", "<6>", "<8>", "mean", "std"]
    assert named(None, [5, 7]) == ["<5>", "<7>"]


def test_another_version_or_the_second_runner_stops_the_server(
    plugin: ModuleType, vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER")
    with pytest.raises(RuntimeError, match="Set VLLM_USE_V2_MODEL_RUNNER=0"):
        plugin.register()
    vllm["vllm"].__version__ = "0.33.0"
    with pytest.raises(RuntimeError, match=r"does not support vLLM 0\.33\.0\. Install vLLM 0\.32\.0"):
        plugin.register()
    assert vllm["vllm.v1.engine.logprobs"].convert_ids_list_to_tokens is convert
