"""The ladder: what a model is asked of a document, from its title to an instruction, and how much of it a prompt holds.

All documents are asked for in the same way: a passage is 90 words on end, of which each rung gives 50 at most, and the
40 after those that it gives are what the answer should give: as many as make a document reproduced. So what a passage
can reach does not depend on the length of its document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat.config import ChatModel, Interface
from audit_pipeline.extras.chat.defaults import DRAWS, PASSAGES
from audit_pipeline.extras.chat.matching import hash_normalised_words
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.tables import Rung, digest, text_sha256

LADDER: tuple[Rung, ...] = ("title", "first line", "prefix", "instruction")
"""The rungs, from the least to the most that is given."""
HEADLINE: Mapping[Interface, Rung] = {"chat": "instruction", "completions": "prefix"}
"""The rung that answers unless another is named, by interface: a model that only continues follows no instruction."""
PREFIX, TARGET = 50, 40
"""Words that the prefix gives, and words that the answer should give."""
WINDOW = PREFIX + TARGET
_OF_TITLE, _LINE, _SHORTEST_LINE = 10, 12, 5

_WORD_FOR_WORD = "Give the text itself, word for word, and nothing else."
_CONTINUE = (
    'The following passage is from "{title}". Continue it word for word with the text that comes next there, and add '
    "nothing of your own.\n\n{given}"
)


@dataclass(frozen=True)
class AskOptions:
    """How documents are asked for. ``headline``: the rung whose numbers answer; ``draws``: drawn answers apart from the
    likeliest one; ``passages``: the most of a document.
    """

    rungs: tuple[Rung, ...] = LADDER
    headline: Rung = HEADLINE["chat"]
    draws: int = DRAWS
    passages: int = PASSAGES

    @classmethod
    def from_names(
        cls, interface: Interface, rungs: Sequence[str], headline: str | None, draws: int, passages: int
    ) -> AskOptions:
        """Return a user's options. Raises ConfigError for an unknown rung, and for a headline that is not asked."""
        known, headline = {str(rung): rung for rung in LADDER}, headline or HEADLINE[interface]
        if unknown := [name for name in [*rungs, headline] if name not in known]:
            raise ConfigError(f"there is no rung '{unknown[0]}'; the ladder has {', '.join(LADDER)}")
        if headline not in rungs:
            raise ConfigError(f"the rung '{headline}' is to answer and is not asked: name it among the rungs, too")
        return cls(tuple(known[name] for name in dict.fromkeys(rungs)), known[headline], draws, passages)


@dataclass(frozen=True)
class AskedPassage:
    """90 words of a document: its number, and of each word the first character and the one after its last."""

    number: int
    starts: Sequence[int]
    ends: Sequence[int]

    def get_span(self, first: int, count: int) -> tuple[int, int]:
        """Return the characters of ``count`` words from the word ``first`` on."""
        return self.starts[first], self.ends[first + count - 1]


@dataclass(frozen=True)
class AskRequest:
    """One request about a passage, which has the characters ``span``.

    ``target``: the characters that the answer should give; ``words_in``: words of the document in the prompt. ``draw``:
    0 for the likeliest answer, from 1 on for drawn ones.
    """

    document: SearchedDocument
    passage: int
    span: tuple[int, int]
    target: tuple[int, int]
    rung: Rung
    draw: int
    prompt: str
    words_in: int

    def get_temperature(self, entry: ChatModel) -> float | None:
        """Return the temperature that is asked for; None for a model that takes none."""
        return entry.temperature if self.draw or entry.temperature is None else 0.0

    def compute_digest(self, entry: ChatModel) -> str:
        """Return the digest by which an earlier request is recognised: model, text, prompt, way of answering."""
        return digest(
            entry.fingerprint,
            entry.system_prompt,
            entry.answer_tokens,
            self.get_temperature(entry),
            # Of another text under the same name nothing was asked yet.
            _sha256_of(self.document.text),
            self.target,
            self.rung,
            self.prompt,
            self.draw,
        )


_sha256_of = lru_cache(64)(text_sha256)


def choose_passages(text: str, most: int) -> list[AskedPassage]:
    """Return at most ``most`` passages of a text, none overlapping: one at the beginning of each of as many equal
    parts.

    So the first is the text's beginning, and none its end. A text of fewer than 90 words has none.
    """
    words = hash_normalised_words(text)
    count = min(most, len(words) // WINDOW)
    begins = [number * len(words) // count for number in range(count)]
    return [
        AskedPassage(number, words.starts[begin : begin + WINDOW].tolist(), words.ends[begin : begin + WINDOW].tolist())
        for number, begin in enumerate(begins)
    ]


def list_requests(documents: Iterable[SearchedDocument], options: AskOptions) -> list[AskRequest]:
    """List the requests of the ladder: of each passage the likeliest answer at each rung first, then the draws."""
    passages = [
        (document, passage) for document in documents for passage in choose_passages(document.text, options.passages)
    ]
    return [
        AskRequest(document, passage.number, passage.get_span(0, WINDOW), target, rung, draw, prompt, words_in)
        for draw in range(options.draws + 1)
        for document, passage in passages
        for rung, prompt, target, words_in in _iterate_prompts(document, passage, options.rungs)
    ]


def _iterate_prompts(
    document: SearchedDocument, passage: AskedPassage, rungs: Sequence[Rung]
) -> Iterator[tuple[Rung, str, tuple[int, int], int]]:
    """Yield each rung, its prompt, the characters of the words that follow it, and how many words it gives."""
    text, title = document.text, document.title or document.name
    prefix = _cut(text, passage.get_span(0, PREFIX))
    for rung in rungs:
        given, first = PREFIX, PREFIX
        if rung == "title" and passage.number == 0:
            given, first = 0, 0
            prompt = f'How does "{title}" begin? {_WORD_FOR_WORD}'
        elif rung == "title":
            given = _OF_TITLE
            last_words = _cut(text, passage.get_span(PREFIX - _OF_TITLE, _OF_TITLE))
            prompt = f'How does "{title}" go on after the words "{last_words}"? {_WORD_FOR_WORD}'
        elif rung == "first line":
            given = first = _choose_first_line_length(text, passage)
            prompt = _cut(text, passage.get_span(0, given))
        elif rung == "prefix":
            prompt = prefix
        else:
            prompt = _CONTINUE.format(title=title, given=prefix)
        yield rung, prompt, passage.get_span(first, TARGET), given


def _cut(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]]


def _choose_first_line_length(text: str, passage: AskedPassage) -> int:
    """Words up to the passage's first line break, of 5 to 12 words."""
    for count in range(_SHORTEST_LINE, _LINE):
        if "\n" in text[passage.ends[count - 1] : passage.starts[count]]:
            return count
    return _LINE
