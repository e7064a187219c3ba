from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import transformers
from made_proposers import CONTEXT, WORDS, proposer_of, save_bert
from tiny_models import SENTENCES, save_tokenizer

from audit_pipeline.errors import ModelError
from audit_pipeline.scoring.neighbours.masked_model import MaskedModelProposer

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = (*SENTENCES, "数据 harbour 🙂 CAT", "", "...", "harbour", " ".join(WORDS * 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def proposer(folder) -> MaskedModelProposer:
    return proposer_of(folder)


def changed(text: str, neighbour: str) -> tuple[str, str]:
    """The word that was replaced and its replacement."""
    before, after = (re.findall(r"[^\W_]+|[\W_]", one) for one in (text, neighbour))
    assert len(before) == len(after)
    [pair] = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    return pair


@torch.inference_mode()
def twin(folder: Path, text: str) -> dict[tuple[int, str], float]:
    """Every swap of a word of lower-case letters with its score: each word masked alone, no window, in float64."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    words = text.split()
    found = {}
    for place, own in enumerate(words):
        masked = " ".join([*words[:place], "[MASK]", *words[place + 1 :]])
        ids = tokenizer(masked, return_tensors="pt")["input_ids"]
        [at] = (ids[0] == tokenizer.mask_token_id).nonzero().flatten().tolist()
        p = model(input_ids=ids).logits[0, at].double().softmax(-1)
        pieces = tokenizer(own, add_special_tokens=False)["input_ids"]
        p_own = p[pieces[0]].item() if len(pieces) == 1 else 0.0
        for token, probability in sorted(enumerate(p.tolist()), key=lambda pair: -pair[1]):
            candidate = tokenizer.convert_ids_to_tokens(token)
            if candidate.isalpha() and candidate != own:
                found[place, candidate] = probability / (1 - p_own)
    return found


def test_with_every_word_masked_the_best_swaps_come_first(folder, tmp_path):
    text = "the boats came zigzag before the morning"
    scores = twin(folder, text)
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:20]
    words = text.split()
    expected = [" ".join([*words[:place], candidate, *words[place + 1 :]]) for place, candidate in ranked]
    [found] = proposer_of(folder, share=1.0, candidates=40).propose([text], 20, seed=0)
    assert found == expected


def test_each_neighbour_differs_in_one_word(proposer):
    for text, neighbours in zip(TEXTS, proposer.propose(TEXTS, 25, seed=3), strict=True):
        assert len(set(neighbours)) == len(neighbours)
        for one in neighbours:
            old, new = changed(text, one)
            assert old.casefold() != new.casefold()
            assert not (old[0].isupper() and new[0].islower())


def test_a_share_of_the_words_is_masked_and_more_only_where_needed(folder, tmp_path):
    text = " ".join(WORDS[10:30])
    few = proposer_of(folder, share=0.15, candidates=4)
    assert len({changed(text, one)[0] for one in few.propose([text], 12, 0)[0]}) <= 3
    [all_of_them] = few.propose([text], 10_000, 0)
    assert len(all_of_them) == 20 * 4
    assert len({changed(text, one)[0] for one in all_of_them}) == 20


def test_texts_without_words_get_none_and_short_ones_fewer(proposer):
    empty, dots, one_word = proposer.propose(["", "...", "harbour"], 25, 0)
    assert (empty, dots, len(one_word)) == ([], [], 10)


def test_capitals_are_kept(proposer):
    [neighbours] = proposer.propose(["Harbour CAT boats"], 30, 0)
    for one in neighbours:
        first, second, third = one.split()
        # Candidates in a script without capitals stay as they are.
        assert not first[0].islower()
        assert second == second.upper()
        assert third == third.lower()


def test_chinese_words_are_single_characters(proposer):
    [neighbours] = proposer.propose(["数据数"], 30, 0)
    assert neighbours
    assert all(one.endswith("据数") or one.startswith("数据") or re.fullmatch("数.+数", one) for one in neighbours)


def test_long_texts_go_through_in_windows(proposer):
    seen = []
    forward = proposer._model.forward

    def spy(*, input_ids, **rest):
        seen.append(input_ids)
        return forward(input_ids=input_ids, **rest)

    proposer._model.forward = spy
    try:
        [neighbours] = proposer.propose([TEXTS[-1]], 400, 0)
    finally:
        proposer._model.forward = forward
    assert len(neighbours) == 400
    assert all(ids.shape[1] == CONTEXT - 2 for ids in seen)
    assert all(((ids == 4).sum(1) == 1).all() and (ids[:, 0] == 2).all() and (ids[:, -1] == 3).all() for ids in seen)
    half = len(TEXTS[-1]) // 2
    assert any(one[:half] != TEXTS[-1][:half] for one in neighbours)
    assert any(one[-half:] != TEXTS[-1][-half:] for one in neighbours)


def test_cost_counts_the_passes_before_any_weight_is_read(folder, tmp_path):
    fresh = proposer_of(folder, share=0.5, candidates=10)
    text = "the boats came before the morning"
    # 3 of 6 words, each with the whole text of 6 tokens between [CLS] and [SEP]
    assert "24 tokens in 3 passes of bert; scoring up to 20 of them: 60 words" in fresh.describe_cost(
        [text, text, ""], 10
    )
    assert "in 6 passes" in fresh.describe_cost([text], 40)
    assert "_model" not in vars(fresh)


def test_a_byte_level_model_keeps_the_blanks(tmp_path):
    tokenizer = save_tokenizer(tmp_path / "roberta")
    tokenizer.add_special_tokens({"mask_token": "<mask>", "pad_token": "<pad>"})
    tokenizer.save_pretrained(tmp_path / "roberta")
    torch.manual_seed(1)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    transformers.RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    text = SENTENCES[1]
    [neighbours] = proposer_of(tmp_path / "roberta", candidates=20).propose([text], 25, 0)
    assert len(neighbours) == 25
    for one in neighbours:
        assert changed(text, one)
        assert one.count(" ") == text.count(" ")


def test_what_is_no_masked_language_model_is_refused(tiny_folder, tmp_path):
    with pytest.raises(ModelError, match="no mask token"):
        proposer_of(tiny_folder("llama")).propose(["a text"], 1, 0)
    with pytest.raises(ModelError, match="no mask token"):
        proposer_of(save_bert(tmp_path / "unmasked", mask=False)).describe_cost(["a text"], 1)
    with pytest.raises(ModelError, match="no model at"):
        proposer_of(tmp_path / "nowhere").describe_cost(["a text"], 1)
    headless = save_bert(tmp_path / "headless")
    transformers.BertModel.from_pretrained(headless).save_pretrained(headless)
    with pytest.raises(ModelError, match=r"lack \d+ tensors of a masked language model"):
        proposer_of(headless).propose(["the boats"], 1, 0)


def test_weights_in_a_format_that_can_run_code_are_refused(tmp_path):
    pickled = save_bert(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights"):
        proposer_of(pickled).describe_cost(["the boats"], 1)
