"""A byte-level BPE tokenizer for a model that is trained from nothing.

What belongs here: training it. What does not: the tokenizers of models that are trained on from a base
(models/load.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

START = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most ``vocabulary`` tokens, learnt on ``texts``; ``START`` begins and ends a text.

    Members and held-out texts must both be in ``texts``: a tokenizer that knew one side's words better would tell the
    sides apart by itself.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[START],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # In one order whatever the order of the texts: merges that are equally frequent are taken as they come.
    tokenizer.train_from_iterator(sorted(texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=START, pad_token=START, model_max_length=context
    )
