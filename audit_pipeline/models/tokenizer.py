"""A model's tokenizer as the package `tokenizers` runs it.

What belongs here: texts to ids and back, and which ids are special. What does not: which tokens are scored
(token_statistics/encode.py), reading a tokenizer's files (kept.py, convert.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True)
class TextTokenizer:
    """A fast tokenizer that neither pads nor cuts; ``special_ids`` are the tokens that no text is made of."""

    backend: Tokenizer = field(repr=False)
    special_ids: frozenset[int]

    def __len__(self) -> int:
        """How many ids there are, those of added tokens included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def encode(
        self, texts: Sequence[str], *, add_special_tokens: bool, special_as_text: bool = False
    ) -> list[Encoding]:
        """Ids, character offsets and special-token marks of each text.

        ``special_as_text``: a special token that a text spells is read as ordinary characters.
        """
        before = self.backend.encode_special_tokens
        self.backend.encode_special_tokens = special_as_text or before
        try:
            encoded: list[Encoding] = self.backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        finally:
            self.backend.encode_special_tokens = before
        return encoded

    def decode(self, ids: Sequence[int]) -> str:
        """The text that the ids stand for, special tokens included."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))

    def id_of(self, token: str) -> int | None:
        """The id of a token; None where there is no such token."""
        found: int | None = self.backend.token_to_id(token)
        return found

    def token_of(self, number: int) -> str | None:
        """The token of an id as the tokenizer writes it; None for an unused id."""
        found: str | None = self.backend.id_to_token(number)
        return found
