"""Prompt styles: the ways in which a chat model is asked for a passage of a document.

A passage has 90 words. A prompt contains at most 50 of them. The expected answer is the next 40 words. That is the
minimum length of a near stretch (matching.py). All passages have the same length, so that the possible result does not
depend on the length of a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat import DRAWS, PASSAGES
from audit_pipeline.extras.chat.config import ChatModel, Interface
from audit_pipeline.extras.chat.matching import hash_normalised_words
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.tables import PromptStyle, digest, text_sha256

PROMPT_STYLES: tuple[PromptStyle, ...] = ("title", "first line", "prefix", "instruction")
"""The prompt styles. A later style gives the model more of the document."""
DEFAULT_HEADLINES: Mapping[Interface, PromptStyle] = {"chat": "instruction", "completions": "prefix"}
"""The default headline style per interface. A model that only continues a text does not follow instructions."""
PREFIX_WORDS = 50
TARGET_WORDS = 40
PASSAGE_WORDS = PREFIX_WORDS + TARGET_WORDS
# Number of words that the style "title" quotes before a later passage.
_WORDS_WITH_TITLE = 10
_MIN_LINE_WORDS = 5
_MAX_LINE_WORDS = 12

_WORD_FOR_WORD = "Give the text itself, word for word, and nothing else."
_CONTINUE = (
    'The following passage is from "{title}". Continue it word for word with the text that comes next there, and add '
    "nothing of your own.\n\n{prefix}"
)


@dataclass(frozen=True)
class AskOptions:
    """Options of the requests. The lineage stores the fields under these names.

    Attributes:
        rungs: The prompt styles in which the model is asked.
        headline: The style whose results decide the conclusion. It is chosen before the first request.
        draws: Number of randomly drawn answers in addition to the answer at temperature 0.
        passages: Maximum number of passages of a document.
    """

    rungs: tuple[PromptStyle, ...] = PROMPT_STYLES
    headline: PromptStyle = DEFAULT_HEADLINES["chat"]
    draws: int = DRAWS
    passages: int = PASSAGES

    @classmethod
    def from_names(
        cls, interface: Interface, rungs: Sequence[str], headline: str | None, draws: int, passages: int
    ) -> AskOptions:
        """Build the options from the names that a user chose, and check the names.

        Raises:
            ConfigError: If a prompt style is unknown, or the headline style is not among ``rungs``.
        """
        style_by_name = {str(style): style for style in PROMPT_STYLES}
        if headline is None:
            headline = DEFAULT_HEADLINES[interface]
        for name in [*rungs, headline]:
            if name not in style_by_name:
                raise ConfigError(f"Unknown prompt style '{name}'. Choose from: {', '.join(PROMPT_STYLES)}.")
        if headline not in rungs:
            raise ConfigError(
                f"The headline style '{headline}' is not among the prompt styles of --rungs. Add '{headline}' to "
                "--rungs, or choose another --headline."
            )
        styles = tuple(style_by_name[name] for name in dict.fromkeys(rungs))
        return cls(styles, style_by_name[headline], draws, passages)


@dataclass(frozen=True)
class AskedPassage:
    """A passage of 90 words of a document.

    Attributes:
        number: Number of the passage in the document, from 0.
        starts: Start of each word in the document, in characters.
        ends: End of each word in the document, in characters.
    """

    number: int
    starts: Sequence[int]
    ends: Sequence[int]

    def get_span(self, first_word: int, n_words: int) -> tuple[int, int]:
        """Return the start and end of consecutive words of the passage, in characters of the document."""
        return self.starts[first_word], self.ends[first_word + n_words - 1]


@dataclass(frozen=True)
class AskRequest:
    """A request for a passage.

    Attributes:
        document: The document.
        passage: Number of the passage.
        span: Start and end of the passage in the document, in characters.
        target: Start and end of the expected answer in the document, in characters.
        style: The prompt style.
        draw: 0 for the likeliest answer, from 1 on for drawn answers.
        prompt: The prompt without the system prompt.
        words_in: Number of words of the document in the prompt.
    """

    document: SearchedDocument
    passage: int
    span: tuple[int, int]
    target: tuple[int, int]
    style: PromptStyle
    draw: int
    prompt: str
    words_in: int

    def get_temperature(self, entry: ChatModel) -> float | None:
        """Return the temperature of the request, or None if the model accepts none."""
        if self.draw or entry.temperature is None:
            return entry.temperature
        return 0.0

    def compute_digest(self, entry: ChatModel) -> str:
        """Return the digest of model, text, prompt and sampling. It identifies a request that was sent before."""
        return digest(
            entry.fingerprint,
            entry.system_prompt,
            entry.answer_tokens,
            self.get_temperature(entry),
            # A document may get a new text under its old name. Requests for the old text do not count.
            _hash_text(self.document.text),
            self.target,
            self.style,
            self.prompt,
            self.draw,
        )


_hash_text = lru_cache(64)(text_sha256)


def choose_passages(text: str, max_passages: int) -> list[AskedPassage]:
    """Return passages that do not overlap, spread evenly over the text.

    The text is divided into equal parts. Each part begins with a passage, so the first passage is the beginning of the
    text. A text of fewer than 90 words has no passage.
    """
    words = hash_normalised_words(text)
    n_passages = min(max_passages, len(words) // PASSAGE_WORDS)
    passages: list[AskedPassage] = []
    for number in range(n_passages):
        start = number * len(words) // n_passages
        end = start + PASSAGE_WORDS
        passages.append(AskedPassage(number, words.starts[start:end].tolist(), words.ends[start:end].tolist()))
    return passages


def list_requests(documents: Iterable[SearchedDocument], options: AskOptions) -> list[AskRequest]:
    """List all requests. The requests for likeliest answers precede the requests for drawn answers."""
    passages: list[tuple[SearchedDocument, AskedPassage]] = []
    for document in documents:
        passages += [(document, passage) for passage in choose_passages(document.text, options.passages)]
    requests: list[AskRequest] = []
    for draw in range(options.draws + 1):
        for document, passage in passages:
            requests += [_build_request(document, passage, style, draw) for style in options.rungs]
    return requests


def _build_request(document: SearchedDocument, passage: AskedPassage, style: PromptStyle, draw: int) -> AskRequest:
    title = document.title or document.name
    prefix = _cut(document.text, passage.get_span(0, PREFIX_WORDS))
    # The number of words of the document in the prompt, and the first word of the expected answer.
    words_in = PREFIX_WORDS
    first_target = PREFIX_WORDS
    if style == "title" and passage.number == 0:
        words_in = 0
        first_target = 0
        prompt = f'How does "{title}" begin? {_WORD_FOR_WORD}'
    elif style == "title":
        words_in = _WORDS_WITH_TITLE
        last_words = _cut(document.text, passage.get_span(PREFIX_WORDS - words_in, words_in))
        prompt = f'How does "{title}" go on after the words "{last_words}"? {_WORD_FOR_WORD}'
    elif style == "first line":
        words_in = _choose_line_length(document.text, passage)
        first_target = words_in
        prompt = _cut(document.text, passage.get_span(0, words_in))
    elif style == "prefix":
        prompt = prefix
    else:
        prompt = _CONTINUE.format(title=title, prefix=prefix)
    span = passage.get_span(0, PASSAGE_WORDS)
    target = passage.get_span(first_target, TARGET_WORDS)
    return AskRequest(document, passage.number, span, target, style, draw, prompt, words_in)


def _cut(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]]


def _choose_line_length(text: str, passage: AskedPassage) -> int:
    """Return the number of words before the passage's first line break, between 5 and 12."""
    for n_words in range(_MIN_LINE_WORDS, _MAX_LINE_WORDS):
        if "\n" in text[passage.ends[n_words - 1] : passage.starts[n_words]]:
            return n_words
    return _MAX_LINE_WORDS
