"""The tokenizer of a folder in the hub's layout: its tokenizer.json as it is, else what transformers builds."""

from __future__ import annotations

import warnings
from pathlib import Path

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from audit_pipeline.errors import OtherTokenizerWarning
from audit_pipeline.models.converted_files import TOKENIZER_FILE
from audit_pipeline.models.fingerprint import TEXTS


def read_tokenizer_files(folder: Path, name: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model ``name``, whose files are in ``folder``; it neither pads nor cuts.

    Where there is a tokenizer.json, that file is the tokenizer. transformers builds many classes anew out of vocabulary
    and merges, and drops the file's normaliser and pre-tokenizer; it is asked for special tokens alone, and for added
    tokens that the file lacks. A warning says where its own tokenizer would read the probe texts otherwise.
    Raises what transformers raises, and ValueError where the file cannot be used.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    try:
        backend = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        # This class reads the file, and adds what tokenizer_config.json declares. Padding would add a token, too.
        declared = PreTrainedTokenizerFast.from_pretrained(folder, pad_token=None)
        _add_missing_tokens(backend, declared)
        own_ids = _encode_probe_texts(backend)
    except Exception as error:
        # The package tokenizers raises nothing more special.
        raise ValueError(f"{TOKENIZER_FILE}: {error}") from error
    try:
        built = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        built_ids = _encode_probe_texts(built.backend_tokenizer) if built.is_fast else None
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise
        # A class that is not there, or that cannot be built of this vocabulary.
        built, built_ids = declared, None
    if built_ids is not None and built_ids != own_ids:
        differing = sum(own != other for own, other in zip(own_ids, built_ids, strict=True))
        warnings.warn(
            OtherTokenizerWarning(
                f"{name}: {TOKENIZER_FILE} is used as it is; transformers' {type(built).__name__} would read "
                f"{differing} of {len(TEXTS)} probe texts as other tokens"
            ),
            stacklevel=2,
        )
    roles = {role: getattr(declared, role) or getattr(built, role) for role in declared.SPECIAL_TOKENS_ATTRIBUTES}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=built.model_max_length,
        # A class has tokens of its own, and would add those that this vocabulary has not.
        **{role: token for role, token in roles.items() if token and backend.token_to_id(token) is not None},
    )


def list_special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that no text is made of: those with a role, and those that the tokenizer calls special."""
    added = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    return frozenset({*tokenizer.all_special_ids, *added})


def _add_missing_tokens(backend: Tokenizer, declared: PreTrainedTokenizerBase) -> None:
    """Add the tokens that tokenizer_config.json declares and the file has not, in the order of their ids."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing = [token for _, token in sorted(declared.added_tokens_decoder.items()) if token.content not in present]
    backend.add_tokens(missing)
    stated = {token.content: number for number, token in declared.init_kwargs["added_tokens_decoder"].items()}
    for token in missing:
        number = backend.token_to_id(token.content)
        if stated.get(token.content, number) != number:
            raise ValueError(
                f"tokenizer_config.json gives {token.content} the id {stated[token.content]}, and after the tokens of "
                f"{TOKENIZER_FILE} it would have {number}"
            )


def _encode_probe_texts(backend: Tokenizer) -> list[list[int]]:
    """Return the ids of the probe texts; the tokenizer neither pads nor cuts from now on."""
    backend.no_padding()
    backend.no_truncation()
    return [encoding.ids for encoding in backend.encode_batch(list(TEXTS))]
