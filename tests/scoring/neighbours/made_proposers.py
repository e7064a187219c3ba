"""A random masked language model, and proposers of neighbours that tests share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import SENTENCES
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from audit_pipeline.models.config import ModelEntry
from audit_pipeline.scoring.neighbours.masked_model import MaskedModelProposer

CONTEXT = 40
WORDS = sorted({word.lower() for sentence in SENTENCES for word in re.findall(r"[^\W\d_]+", sentence)})


def save_bert(folder: Path, *, mask: bool = True) -> Path:
    """A random BERT that knows no capitals, over the sentences' words and the letters."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "##ing", "数", "据"]
    tokens += [*letters, *(f"##{letter}" for letter in letters), *(word for word in WORDS if len(word) > 1)]
    core = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, **names, **({"mask_token": "[MASK]"} if mask else {})
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=CONTEXT,
        initializer_range=0.5,
        pad_token_id=0,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


def proposer_of(folder: Path, **options: Any) -> MaskedModelProposer:
    return MaskedModelProposer(ModelEntry(name="bert", path=folder), device="cpu", **options)
