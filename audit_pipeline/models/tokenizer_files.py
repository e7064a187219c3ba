"""The tokenizer of a folder in the hub's layout: its unchanged tokenizer.json, else a tokenizer by transformers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from audit_pipeline.errors import OtherTokenizerWarning
from audit_pipeline.models.converted_files import TOKENIZER_FILE
from audit_pipeline.models.fingerprint import TEXTS


def read_tokenizer_files(folder: Path, name: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model ``name`` from the files in ``folder``, without padding and truncation.

    If the folder has a tokenizer.json, this file is the tokenizer. transformers rebuilds many classes from vocabulary
    and merges, and drops the file's normaliser and pre-tokenizer. So transformers only provides special tokens, and
    added tokens that the file lacks. A warning is given if the tokenizer that transformers builds splits the probe
    texts into other tokens.

    Raises:
        ValueError: If tokenizer.json cannot be used.
        Exception: If transformers raises it.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    try:
        backend = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        # This class reads the file and adds the tokens of tokenizer_config.json. Without pad_token=None, it would also
        # add a padding token.
        declared = PreTrainedTokenizerFast.from_pretrained(folder, pad_token=None)
        _add_missing_tokens(backend, declared)
        own_ids = _encode_probe_texts(backend)
    except Exception as error:
        # The package tokenizers has no exception classes of its own.
        raise ValueError(f"{TOKENIZER_FILE}: {error}") from error
    try:
        built = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        built_ids = None
        if built.is_fast:
            built_ids = _encode_probe_texts(built.backend_tokenizer)
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise
        # The tokenizer class is unknown, or does not accept this vocabulary.
        built = declared
        built_ids = None
    if built_ids is not None and built_ids != own_ids:
        differing = sum(own != other for own, other in zip(own_ids, built_ids, strict=True))
        warnings.warn(
            OtherTokenizerWarning(
                f"{name}: {TOKENIZER_FILE} is used unchanged; transformers' {type(built).__name__} would read "
                f"{differing} of {len(TEXTS)} probe texts as other tokens"
            ),
            stacklevel=2,
        )
    roles: dict[str, Any] = {}
    for role in declared.SPECIAL_TOKENS_ATTRIBUTES:
        token = getattr(declared, role) or getattr(built, role)
        # PreTrainedTokenizerFast would add a token that the vocabulary lacks, so such a role is left out.
        if token and backend.token_to_id(token) is not None:
            roles[role] = token
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=built.model_max_length, **roles)


def list_special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids of tokens that no text contains: tokens with a role such as bos, and tokens marked as special."""
    ids = set(tokenizer.all_special_ids)
    for number, token in tokenizer.added_tokens_decoder.items():
        if token.special:
            ids.add(number)
    return frozenset(ids)


def _add_missing_tokens(backend: Tokenizer, declared: PreTrainedTokenizerBase) -> None:
    """Add the tokens of tokenizer_config.json that tokenizer.json lacks to ``backend``, in the order of their ids."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing = []
    for _, token in sorted(declared.added_tokens_decoder.items()):
        if token.content not in present:
            missing.append(token)
    backend.add_tokens(missing)
    stated: dict[str, int] = {}
    for number, token in declared.init_kwargs["added_tokens_decoder"].items():
        stated[token.content] = number
    for token in missing:
        number = backend.token_to_id(token.content)
        if stated.get(token.content, number) != number:
            raise ValueError(
                f"tokenizer_config.json gives {token.content} the id {stated[token.content]}, and after the tokens of "
                f"{TOKENIZER_FILE} it would have {number}"
            )


def _encode_probe_texts(backend: Tokenizer) -> list[list[int]]:
    """Return the ids of the probe texts. Afterwards the tokenizer neither pads nor truncates."""
    backend.no_padding()
    backend.no_truncation()
    return [encoding.ids for encoding in backend.encode_batch(list(TEXTS))]
