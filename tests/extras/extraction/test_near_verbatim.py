"""Bounds of near-verbatim extraction, against all sequences and against samples."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from quick import slow_but
from scipy import stats
from taught import DOCUMENTS, Taught
from tiny_models import config_of
from transformers import AutoModelForCausalLM, GenerationConfig

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction import continuations as module
from audit_pipeline.extras.extraction.continuations import bound_near_verbatim
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import EncodedText

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY, PREFIX, SUFFIX, BEST = 5, 9, 4, 3
EVERY = np.array(list(itertools.product(range(VOCABULARY), repeat=SUFFIX)))
ASKED = ExtractionSettings(prefix=16, suffix=24, stride="tiled")


def random_model(family: str, vocabulary: int = VOCABULARY) -> ForwardPass:
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(config_of(family, vocabulary), dtype=torch.float32)
    return ForwardPass(network.eval(), vocabulary)


def window_of(ids: Sequence[int], prefix: int = PREFIX) -> EncodedText:
    spans = np.arange(len(ids), dtype=np.int32)
    return EncodedText("", np.array(ids, dtype=np.int32), spans, spans + 1, None, prefix)


def count_differing(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "family", slow_but({"llama", "gemma3"}, ["llama", "gpt2", "gemma3", "bloom", "opt", "gpt_neo", "mamba"])
)
@torch.inference_mode()
def test_a_wide_beam_gives_the_exact_probability(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEST_TOKENS", BEST)
    forward, draw = random_model(family), np.random.default_rng(0)
    for differing in range(SUFFIX):
        ids = draw.integers(VOCABULARY, size=PREFIX + SUFFIX).tolist()
        prefix, suffix = ids[:PREFIX], ids[PREFIX:]
        # The log-probability of each suffix, sampled from the best tokens, without cache and beams.
        all_ids = torch.tensor(np.hstack([np.tile(prefix, (len(EVERY), 1)), EVERY]))
        logits = forward.model(input_ids=all_ids, use_cache=False).logits[:, PREFIX - 1 : -1].double()
        is_best = logits >= logits.topk(BEST, dim=-1).values[..., -1:]
        log_p = torch.log_softmax(torch.where(is_best, logits, -math.inf), dim=-1)
        every = log_p.gather(2, torch.tensor(EVERY)[..., None]).sum(dim=(1, 2)).numpy()
        # The likeliest suffix is one of those that can be drawn; a random one often is not.
        for text in (suffix, EVERY[every.argmax()].tolist()):
            word_for_word, window = every[(text == EVERY).all(axis=1)].item(), window_of([*prefix, *text])
            is_near = [count_differing(other, text) <= differing for other in EVERY.tolist()]
            exact = float(np.logaddexp.reduce(every[is_near]))
            assert bound_near_verbatim(forward, window, differing, len(EVERY)) == pytest.approx(exact, abs=1e-4)
            for beams in (1, 3):
                assert word_for_word - 1e-4 <= bound_near_verbatim(forward, window, differing, beams) <= exact + 1e-4


def test_everything_is_near_if_all_tokens_may_differ() -> None:
    window = window_of(list(range(VOCABULARY)) * 2, prefix=7)
    assert bound_near_verbatim(random_model("llama"), window, 3, 1) == pytest.approx(0.0, abs=1e-9)


def test_a_token_that_ties_with_the_last_best_token_is_a_best_token() -> None:
    forward = random_model("llama", vocabulary=60)
    with torch.no_grad():
        forward.model.get_output_embeddings().weight.zero_()
    for begin in range(0, 57, 3):
        window = window_of([*range(PREFIX), begin, begin + 1, begin + 2])
        assert bound_near_verbatim(forward, window, 0, 1) == pytest.approx(-3 * math.log(40), abs=1e-6)


@pytest.fixture(scope="module")
def planted(taught: Taught, tmp_path_factory: pytest.TempPathFactory) -> Extraction:
    return taught.search(tmp_path_factory.mktemp("planted"), ASKED, DOCUMENTS[:1]).run(taught.load)[0]


@pytest.fixture(scope="module")
def windows(taught: Taught, planted: Extraction) -> list[EncodedText]:
    return encode_windows_at(taught.model, planted.document.text, planted.windows.start.tolist(), ASKED.lengths)


def test_the_bound_without_differing_tokens_is_the_verbatim_probability(
    taught: Taught, planted: Extraction, windows: list[EncodedText]
) -> None:
    found = [bound_near_verbatim(taught.forward, window, 0, 20) for window in windows]
    np.testing.assert_allclose(found, planted.windows.log_p_top, atol=1e-3)


@pytest.mark.parametrize("draws", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@torch.inference_mode()
def test_samples_are_near_at_least_as_often_as_the_bound(
    taught: Taught, planted: Extraction, windows: list[EncodedText], draws: int
) -> None:
    window = windows[planted.memorisation.strongest[0]]
    suffix = tuple(window.token_id[window.first_scored :].tolist())
    prefix = [taught.model.start_token_id, *window.token_id[: window.first_scored].tolist()]
    how = GenerationConfig(do_sample=True, top_k=40, pad_token_id=0, max_new_tokens=window.n_scored)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sampled = taught.forward.model.generate(torch.tensor([prefix] * draws), generation_config=how)
    found = Counter(map(tuple, sampled[:, len(prefix) :].tolist()))
    bound = math.exp(bound_near_verbatim(taught.forward, window, 3, 20))
    hits = sum(times for suffix_drawn, times in found.items() if count_differing(suffix_drawn, suffix) <= 3)
    assert hits >= stats.binom.ppf(0.001, draws, bound) > 0.5 * draws
