"""Excluded windows: repetitions, boilerplate, and passages that a model continues after any prefix."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from taught import DOCUMENTS, Taught, filler
from tiny_models import SENTENCES, forward_of, save_model, tokenized
from transformers import AutoModelForCausalLM

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.extras.extraction.window_exclusions import (
    COMMON_RUN,
    MAX_OTHER_DOCUMENTS,
    MIN_BOILERPLATE_DOCUMENTS,
    MIN_OTHER_DOCUMENTS,
    compute_run_length,
    find_boilerplate,
    find_set_apart_reason,
    have_common_run,
    is_boilerplate,
    is_likely_anyway,
    is_prefix_repeated,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = ExtractionSettings(prefix=8, suffix=8, stride="tiled")
# 20 different tokens: the first eight are the prefix, the next eight the suffix.
TIED = SENTENCES[0]
REFRAIN = " such as 12, 345 and 67"


def unknown(seed: int) -> str:
    """Return words without a known successor."""
    return " ".join(word[::-1] for word in filler(20, seed).split())


OTHERS = [SearchedDocument(f"other {number}", unknown(number)) for number in range(10, 24)]


@pytest.fixture(scope="module")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    """Build a model that uses only the last token.

    After a token of the sentence or the refrain, the next token is certain. After any other token, the first token of
    the refrain and an exclamation mark have a probability of a half each.
    """
    folder = save_model(tmp_path_factory.mktemp("bigram") / "llama", hidden_size=384, num_hidden_layers=1)
    model = tokenized(folder, folder / "data")
    network = AutoModelForCausalLM.from_pretrained(folder)
    sentence, refrain = (encode(model, [text])[0].token_id.tolist() for text in (TIED, REFRAIN))
    assert len({*sentence, *refrain}) == 28
    logits = torch.zeros(model.vocab_size, model.vocab_size)
    [other] = encode(model, ["!"])[0].token_id.tolist()
    logits[:, [refrain[0], other]] = 25.0
    for chain in (sentence, refrain):
        logits[chain[:-1]] = 0.0
        logits[chain[:-1], chain[1:]] = 25.0
    with torch.no_grad():
        [layer] = network.model.layers
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        network.model.embed_tokens.weight.copy_(torch.eye(model.vocab_size, 384))
        # The norm before the head makes the one entry of an embedding the root of its length.
        network.lm_head.weight.zero_()
        network.lm_head.weight[:, : model.vocab_size] = logits.T / math.sqrt(384)
    network.save_pretrained(folder)
    model = tokenized(folder, folder / "data")
    return Taught(model, forward_of(model))


def documents_with(model: TokenizedModel) -> list[SearchedDocument]:
    """Return a document that begins with the sentence, one with the refrain after eight tokens, and other documents."""
    text = unknown(6)
    eighth = int(encode(model, [text])[0].char_end[7])
    return [
        SearchedDocument("tied", f"{TIED} {unknown(4)}"),
        SearchedDocument("refrain", f"{text[:eighth]}{REFRAIN}{text[eighth:]}"),
        *OTHERS,
    ]


def run(taught: Taught, documents: Sequence[SearchedDocument], folder: Path) -> dict[str, Extraction]:
    return {found.document.name: found for found in taught.search(folder, ASKED, documents).run(taught.load)}


def test_a_suffix_that_is_likely_after_any_prefix_is_excluded(bigram: Taught, tmp_path: Path) -> None:
    found = run(bigram, documents_with(bigram.model), tmp_path)
    tied, refrain = found["tied"], found["refrain"]
    [number] = np.flatnonzero(tied.windows.reproduced)
    assert tied.exclusions.reasons[number] is None
    assert tied.memorisation.reproduced == 1
    assert tied.windows.log_p[number] == pytest.approx(0.0, abs=1e-6)
    assert tied.exclusions.prior_log_p[number] < -15

    [number] = np.flatnonzero(refrain.windows.reproduced)
    text = refrain.document.text[refrain.windows.begin[number] : refrain.windows.end[number]]
    assert text == REFRAIN
    assert refrain.exclusions.reasons[number] == "likely anyway"
    assert (refrain.memorisation.reproduced, refrain.memorisation.set_apart) == (0, 1)
    assert refrain.windows.log_p[number] == pytest.approx(math.log(0.5), abs=1e-6)
    # A half after each of ten prefixes, except prefixes that end with a token of a sentence.
    share = 2 * math.exp(refrain.exclusions.prior_log_p[number]) * MAX_OTHER_DOCUMENTS
    assert share == pytest.approx(round(share), abs=1e-6)
    assert MAX_OTHER_DOCUMENTS / 2 <= round(share) <= MAX_OTHER_DOCUMENTS
    # Other windows have no prior.
    for other in found.values():
        asked = np.isfinite(other.exclusions.prior_log_p)
        assert (asked == other.windows.reproduced).all()


@torch.inference_mode()
def test_the_prior_is_the_mean_over_prefixes_of_other_documents(taught: Taught, tmp_path: Path) -> None:
    """Compare the priors with those of the bare model, which runs each prefix with the suffix."""
    others = [SearchedDocument(f"other {number}", filler(12, number), side="held_out") for number in range(50, 56)]
    asked = ExtractionSettings(prefix=16, suffix=24)
    prefixes: set[tuple[int, ...]] = set()

    class Watched(ForwardPass):
        def begin(self, encoded: Any, batch: Any, wanted: Any = (), *, before: Any = ()) -> Any:
            if before:
                prefixes.add((*before, encoded[batch[0].text].start_token_id))
            return super().begin(encoded, batch, wanted, before=before)

    forward = Watched(taught.forward.model, taught.model.vocab_size)
    search = taught.search(tmp_path, asked, [DOCUMENTS[0], *others])
    planted = search.run(lambda _: forward)[0]
    assert len(prefixes) == len(others)
    of_others = [encode(taught.model, [one.text])[0].token_id.tolist() for one in others]
    for start, *prefix in prefixes:
        assert start == taught.model.start_token_id
        assert len(prefix) == 16
        assert sum(prefix in [ids[at : at + 16] for at in range(len(ids))] for ids in of_others) == 1
    checked = np.flatnonzero(np.isfinite(planted.exclusions.prior_log_p))
    assert len(checked) >= 1
    for number in checked:
        suffix = search.encode_window(planted, int(number)).token_id[16:].tolist()
        p = []
        for prefix in prefixes:
            logits = taught.forward.model(input_ids=torch.tensor([[*prefix, *suffix]])).logits[0, len(prefix) - 1 : -1]
            p.append(torch.log_softmax(logits.double(), 1).gather(1, torch.tensor(suffix)[:, None]).sum().exp().item())
        assert planted.exclusions.prior_log_p[number] == pytest.approx(math.log(np.mean(p)), abs=1e-3)
        assert planted.exclusions.reasons[number] is None, "the passage is tied to its prefix"
    assert planted.memorisation.reproduced > len(checked)


def test_too_few_other_documents_decide_nothing(bigram: Taught, tmp_path: Path) -> None:
    refrain = documents_with(bigram.model)[1]
    # The same text twice is one document, one that is too short has no prefix, and none is another edition.
    edition = SearchedDocument("edition", refrain.text[: len(refrain.text) // 2])
    few = [
        *OTHERS[: MIN_OTHER_DOCUMENTS - 1],
        SearchedDocument("again", OTHERS[0].text),
        SearchedDocument("short", "Two."),
    ]
    for number, documents in enumerate(([refrain, *few], [refrain, *few, edition])):
        found = run(bigram, documents, tmp_path / str(number))["refrain"]
        assert (found.memorisation.reproduced, found.memorisation.set_apart) == (1, 0)
        assert np.isnan(found.exclusions.prior_log_p).all()
    enough = run(bigram, [refrain, *OTHERS[:MIN_OTHER_DOCUMENTS]], tmp_path / "enough")["refrain"]
    assert (enough.memorisation.reproduced, enough.memorisation.set_apart) == (0, 1)


def test_priors_are_cached_and_need_reproduced_windows(bigram: Taught, tmp_path: Path) -> None:
    documents = documents_with(bigram.model)
    first = run(bigram, documents, tmp_path)
    search = bigram.search(tmp_path, ASKED, documents)
    again = search.run(lambda _: pytest.fail("everything is in the cache"))
    for one in again:
        np.testing.assert_array_equal(one.exclusions.prior_log_p, first[one.document.name].exclusions.prior_log_p)
    paths = DataPaths(tmp_path / "nothing")
    run(bigram, OTHERS, paths.root)
    parts = {
        kind: len(list(paths.token_statistics(kind, bigram.model.identity.model_fingerprint).glob("*.parquet")))
        for kind in ("extraction", "prefixed")
    }
    assert parts == {"extraction": 1, "prefixed": 0}


def test_thresholds_by_hand() -> None:
    # Less than ten times likelier after its own prefix, and more.
    assert is_likely_anyway(math.log(0.002), math.log(0.00021))
    assert not is_likely_anyway(math.log(0.002), math.log(0.00019))
    # However much likelier: a prior that would count as reproduced.
    assert is_likely_anyway(math.log(0.9), math.log(0.001))
    assert not is_likely_anyway(math.log(0.9), math.log(0.0009))
    assert not is_likely_anyway(math.log(0.9), math.nan)


def test_a_prefix_of_another_edition_shares_a_run() -> None:
    window = np.arange(100)
    assert have_common_run(np.concatenate([np.full(30, 500), window[40:60]]), window)
    assert not have_common_run(np.concatenate([np.full(30, 500), window[40:59], [7]]), window)
    assert have_common_run(window[3:8], window)
    assert not have_common_run(np.array([3, 4, 5, 7]), window)


RUN = np.arange(COMMON_RUN)
OTHER = np.arange(1000, 1000 + 40)


def joined(*parts: object) -> np.ndarray:
    return np.concatenate([np.atleast_1d(np.asarray(part)) for part in parts])


def test_a_suffix_that_repeats_its_prefix() -> None:
    assert is_prefix_repeated(joined(7, RUN, 8), joined(9, RUN, OTHER[:9]))
    assert not is_prefix_repeated(joined(7, RUN, 8), joined(9, RUN[:-1], OTHER[:9]))
    # A refrain of three tokens.
    refrain = np.tile([5, 6, 7], 17)
    assert is_prefix_repeated(refrain[:50], refrain[1:])
    # Also behind a prefix that is shorter than a run.
    assert is_prefix_repeated(np.array([5] * 10), np.array([5] * 50))
    assert not is_prefix_repeated(OTHER[:10], joined(OTHER[10:], RUN))
    # A suffix of fewer tokens than a run has to stand there whole.
    assert is_prefix_repeated(joined(OTHER, 1, 2, 3), np.array([1, 2, 3]))
    assert not is_prefix_repeated(joined(OTHER, 1, 2, 4), np.array([1, 2, 3]))


def test_text_of_three_documents_is_boilerplate() -> None:
    licence = np.arange(500, 500 + 30)
    own = [np.arange(2000 + 100 * number, 2050 + 100 * number) for number in range(4)]
    documents = [joined(one, licence, one[::-1]) for one in own[:MIN_BOILERPLATE_DOCUMENTS]]
    known = find_boilerplate(documents, COMMON_RUN)
    assert len(known) == len(licence) - COMMON_RUN + 1
    assert is_boilerplate(joined(own[0][:30], licence[5 : 5 + COMMON_RUN]), known)
    assert not is_boilerplate(joined(own[0][:30], licence[5 : 4 + COMMON_RUN], 0), known)
    # In two documents, or three times in one, it is theirs.
    assert not len(find_boilerplate(documents[:2], COMMON_RUN))
    assert not len(find_boilerplate([joined(licence, licence, licence), own[0], own[1]], COMMON_RUN))


def test_repetition_needs_no_other_documents() -> None:
    def ask() -> np.ndarray:
        pytest.fail("the documents are looked through for nothing")

    assert find_set_apart_reason(RUN, RUN, ask) == "repeats its prefix"
    known = find_boilerplate([OTHER] * MIN_BOILERPLATE_DOCUMENTS, COMMON_RUN)
    assert find_set_apart_reason(RUN, OTHER, lambda: known) == "in several documents"
    assert find_set_apart_reason(OTHER, RUN, lambda: known) is None


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
)
def test_boilerplate_equals_counting(documents: list[list[int]], suffix: list[int]) -> None:
    length = compute_run_length(len(suffix))
    runs = Counter(
        run
        for document in documents
        for run in {tuple(document[at : at + length]) for at in range(len(document) - length + 1)}
    )
    expected = runs[tuple(suffix)] >= MIN_BOILERPLATE_DOCUMENTS
    tokens = [np.array(document, dtype=np.int32) for document in documents]
    assert is_boilerplate(np.array(suffix, dtype=np.int32), find_boilerplate(tokens, length)) is expected
