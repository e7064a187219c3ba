"""What is sent to an endpoint and what is read from its answer, as far as all dialects have it in common.

Which tokens of a window are sent and scored, the string of these tokens for servers that take strings alone, what is
wanted of an answer, and what each answer is checked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from audit_pipeline.errors import ModelError, to_one_line
from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.usage_budget import Usage
from audit_pipeline.tables import TOPK_ENTRIES
from audit_pipeline.token_statistics.tokens import EncodedText, Window, encode


class NoStringError(ModelError):
    """A window of a text that cannot be sent to a server that takes strings alone."""


@dataclass(frozen=True)
class PromptString:
    """A prompt as a string, and where each of its tokens begins in it, in every way that servers count characters."""

    text: str
    starts: frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class Prompt:
    """The tokens ``ids`` that are sent, of which the last ``scored`` ones are scored; ``sha256`` names the text.

    ``spelled`` is the string that means these tokens, where the server takes no ids.
    """

    sha256: str
    ids: tuple[int, ...]
    scored: int
    spelled: PromptString | None = None

    @property
    def token_count(self) -> int:
        """Tokens that the server runs: these, the one that it generates, and a start token that it may put in front."""
        return len(self.ids) + 1 + (self.spelled is not None)


def build_prompt(
    model: TokenizedModel, text: EncodedText, window: Window, prefix_ids: Sequence[int] = (), *, as_string: bool = False
) -> Prompt:
    """Return what is sent of ``window`` of ``text`` after the tokens ``prefix_ids``.

    A server that adds the start token itself is not sent it. With ``as_string``, raises NoStringError where no string
    means these tokens: a window that begins within a character, a prefix whose last characters would form a token with
    the text's first.
    """
    start = (text.start_token_id,) if window.has_start_token and text.start_token_id is not None else ()
    ids = (*prefix_ids, *start, *text.token_id[window.begin : window.end].tolist())
    if model.entry.host.server_adds_start_token and (prefix_ids or start):
        # Where the tokenizer puts a start token in front of every text, and of every prefix, it is left to the server.
        adds_start_token = encode(model, ["a"])[0].start_token_id is not None
        ids = ids[1:] if adds_start_token else ids
    string = _build_prompt_string(model, ids, text.text_sha256) if as_string else None
    return Prompt(text.text_sha256, ids, window.end - window.score_from, string)


def _build_prompt_string(model: TokenizedModel, ids: tuple[int, ...], sha256: str) -> PromptString:
    string = model.tokenizer.decode(ids)
    [again] = model.tokenizer.encode([string], add_special_tokens=False)
    if tuple(again.ids) != ids:
        raise NoStringError(
            f"no string means the tokens of a window of the text with sha256 {sha256}, and the server takes strings "
            "alone: raise window where the text is longer than it"
        )
    special = [
        (end - start) * (token in model.tokenizer.special_ids)
        for token, (start, end) in zip(ids, again.offsets, strict=True)
    ]
    starts = [start for start, _ in again.offsets]
    ways = (
        starts,
        # llama-cpp-python does not count the characters of special tokens.
        [start - left_out for start, left_out in zip(starts, accumulate(special[:-1], initial=0), strict=True)],
        # Elsewhere tokens are decoded one by one: each part of a character counts as one.
        accumulate((len(model.tokenizer.decode([token])) for token in ids[:-1]), initial=0),
    )
    return PromptString(string, frozenset(map(tuple, ways)))


WHOLE = -1
"""As many best tokens as there are, where a server gives that; mean and deviation are then computed of them here."""
_MASS = 40
_WORDS = 80
# Half precision rounds a certain token's log-probability to a little more than 0.
_ROUNDING = 0.01
# The same of many tokens' probabilities together.
_ROUNDING_OF_MASS = 0.1

LARGEST_ID = int(np.iinfo(np.int32).max)
_LARGEST = float(np.finfo(np.float32).max)
# No model in use has logits that lie so far apart.
_LEAST = -999.0
# Between the two, placeholders are whole numbers (-100). A float32 that is as low is one by chance in 131,072.
_LEAST_FRACTION = -99.0
_LARGEST_VOCABULARY = 300_000
# vLLM writes about 110.
_BYTES_PER_ENTRY = 400
_FIXED_BYTES = 1 << 20
_FLOOR_TIES, _NEXT_VALUES = 3, 5
_LARGEST_FLOOR = math.log(0.5)
_NO_LOGPROBS = "its answer has log-probabilities that are none"

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""A number of an answer that its column can hold, as the counts and ids below are."""


def _replace_placeholder(value: Any) -> Any:
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    is_placeholder = value <= _LEAST or (value <= _LEAST_FRACTION and value == int(value))
    return math.nan if is_placeholder else value


Logprob = Annotated[float, BeforeValidator(_replace_placeholder)]
"""A log-probability in an answer (nats); NaN where the server does not say it.

JSON has no minus infinity. Servers write null, -9999 (vLLM, OpenAI), -100, -1000, -1e30 or the least float in its
place, some for every token that is not among their best ones: what the model gave is not known. So null, -999 and less,
and whole numbers of -99 and less are read as NaN.
"""
Count = Annotated[int, Field(ge=0, le=LARGEST_ID)]
TokenId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Rank = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class AnswerPart(BaseModel):
    """A part of an answer: a number is no string, a truth value no number, and a whole number no fraction."""

    model_config = ConfigDict(strict=True)


Shape = TypeVar("Shape", bound=BaseModel)
Choice = TypeVar("Choice", bound=AnswerPart)


class Completion(AnswerPart, Generic[Choice]):
    """An answer of OpenAI's completions route to a single prompt."""

    choices: Annotated[list[Choice], Field(min_length=1, max_length=1)]
    system_fingerprint: str | None = None


class BadAnswerError(ModelError):
    """An answer that cannot be what was asked for."""


class OtherTokensError(BadAnswerError):
    """An answer that is about other tokens than those that were asked about: the server cuts the text otherwise."""


@dataclass(frozen=True)
class AnswerDetail:
    """How many of the best tokens are wanted at every place, and whether mean and deviation are."""

    best: int
    moments: bool = False

    @classmethod
    def for_statistics(cls, endpoint: Endpoint, statistics: Collection[str]) -> AnswerDetail:
        """As little as ``statistics`` (token_statistics/cached_texts.py) need: answers grow with it, and take time."""
        needed = max([0, *(_BEST.get(name, 0) for name in statistics)])
        return cls(min(needed, endpoint.top_logprobs), not {"mean", "std"}.isdisjoint(statistics))


_BEST: Mapping[str, int] = {"max_logprob": 1, "argmax_id": 1, "topk": TOPK_ENTRIES, "log_mass_40": _MASS}


@dataclass(frozen=True, eq=False)
class Answer:
    """What is read from an answer: ``values`` by the names that WindowResult has, one a scored token.

    ``best_given`` is the largest number of best tokens at a place. ``server`` is what the server says of itself.
    """

    values: Mapping[str, npt.NDArray[Any]]
    best_given: int
    server: str | None


@dataclass(frozen=True)
class ServerDialect:
    """How a kind of server is asked about a prompt, and how its answer to it is read (raises BadAnswerError)."""

    ask: Callable[[Endpoint, Prompt, AnswerDetail], ServerRequest]
    read: Callable[[Prompt, AnswerDetail, bytes], Answer]


@dataclass(frozen=True)
class AnswerPosition:
    """What an answer holds of one token of the prompt: its own log-probability, the ``best`` ones, best first.

    ``own`` is NaN where it is not known.
    ``best_ids`` go with ``best`` where the server names ids. ``rank`` is 0 for the best token.
    """

    own: float
    best: Sequence[float] = ()
    best_ids: Sequence[int] | None = None
    rank: int | None = None
    moments: tuple[float, float] | None = None


def parse_answer(shape: type[Shape], body: bytes) -> Shape:
    """Return the JSON ``body`` in a shape; raises BadAnswerError where it has another."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        location = to_one_line(".".join(map(str, first["loc"])))[:_WORDS]
        raise BadAnswerError(f"its answer has not the expected form ({location or 'JSON'}: {first['msg']})") from error


def build_url(endpoint: Endpoint, path: str, *, root: bool = False) -> str:
    """Return where a route is; ``root``: below the server's root, for routes that are not among OpenAI's."""
    base = endpoint.url.rstrip("/")
    return f"{base.removesuffix('/v1') if root else base}/{path}"


def build_request(
    endpoint: Endpoint, path: str, body: Mapping[str, Any], prompt: Prompt, detail: AnswerDetail, *, root: bool = False
) -> ServerRequest:
    """Return a request about a prompt; its answer may be several times as long as what servers write a place."""
    best = _LARGEST_VOCABULARY if detail.best == WHOLE else detail.best
    most_bytes = _FIXED_BYTES + prompt.token_count * (best + 3) * _BYTES_PER_ENTRY
    text = "" if prompt.spelled is None else prompt.spelled.text
    url, usage = build_url(endpoint, path, root=root), Usage(prompt.token_count)
    return ServerRequest(url, body, usage, most_bytes, private=text)


def require_entry_per_token(entries: int, tokens: int) -> None:
    """Raise BadAnswerError where an answer has not one entry for each token that was sent."""
    if entries == tokens:
        return
    words = f"its answer has {entries} entries for {tokens} tokens"
    if entries <= 1:
        raise BadAnswerError(f"{words}: it ignores what is asked of the prompt")
    raise OtherTokensError(f"{words}: it cuts the text otherwise, or shortens it")


def build_answer(places: Sequence[AnswerPosition], detail: AnswerDetail, server: str | None = None) -> Answer:
    """Return the statistics of the scored tokens; ``logprob`` is NaN where it is not known.

    Raises BadAnswerError where the others cannot be what was asked for.
    """
    own = np.array([place.own for place in places], dtype=np.float32)
    own[own > _ROUNDING] = np.nan
    values: dict[str, npt.NDArray[Any]] = {"logprob": own}
    if all(place.rank is not None for place in places):
        values["rank"] = np.array([place.rank for place in places], dtype=np.int32)
    if detail.moments:
        moments = np.array([place.moments or (np.nan, np.nan) for place in places], dtype=np.float32).reshape(-1, 2)
        values |= {"mean": moments[:, 0], "std": moments[:, 1]}
        if (values["mean"] > _ROUNDING).any() or (values["std"] < 0).any():
            raise BadAnswerError("its answer has a mean above 0 or a deviation below 0")
    if detail.best:
        values |= _best_values_from_places(places)
    if any(np.isnan(array).any() for name, array in values.items() if name != "logprob"):
        raise BadAnswerError(_NO_LOGPROBS)
    return Answer(values, max((len(place.best) for place in places), default=0), server)


def find_floor(logprobs: npt.NDArray[np.float32]) -> float | None:
    """Return the value that a server gives all tokens of a text [n] that are less likely; None where it does not look
    so.

    A floor is the least value where it is there at least three times, and more than twice as often as any of the next
    five: of real log-probabilities there are the fewest at the least ones, and floats hardly ever tie there. Values
    from log(.5) on are none: rounded, those of a memorised text tie. docs/backends.md has the rates of false alarms.
    """
    values, counts = np.unique(logprobs[~np.isnan(logprobs)], return_counts=True)
    if not len(values) or values[0] >= _LARGEST_FLOOR:
        return None
    is_floor = counts[0] >= _FLOOR_TIES and counts[0] > 2 * counts[1 : 1 + _NEXT_VALUES].max(initial=0)
    return float(values[0]) if is_floor else None


def nan_to_minus_inf(logprob: float) -> float:
    """Return a best token's log-probability: minus infinity where it is not known, so that it comes last."""
    return -math.inf if math.isnan(logprob) else logprob


def _best_values_from_places(places: Sequence[AnswerPosition]) -> dict[str, npt.NDArray[Any]]:
    if not all(place.best for place in places):
        raise BadAnswerError("its answer lacks the best tokens of some place")
    values: dict[str, npt.NDArray[Any]] = {
        "max_logprob": np.array([place.best[0] for place in places], dtype=np.float32)
    }
    if any(place.best[0] > _ROUNDING for place in places):
        raise BadAnswerError(_NO_LOGPROBS)
    if any(place.best[0] < place.own - _ROUNDING for place in places):
        raise BadAnswerError("its answer has a token that is more likely than the best token")
    ids = [place.best_ids for place in places if place.best_ids is not None]
    if len(ids) < len(places):
        return values
    values["argmax_id"] = np.array([ids_of_place[0] for ids_of_place in ids], dtype=np.int32)
    counts = {len(ids_of_place) for ids_of_place in ids}
    if max(counts, default=0) > 1 and len(counts) > 1:
        raise BadAnswerError("its answer has not as many of the best tokens at one place as at another")
    best = np.array([place.best for place in places], dtype=np.float32).reshape(len(places), -1)
    if best.shape[1] >= TOPK_ENTRIES:
        values["topk_id"] = np.array([ids_of_place[:TOPK_ENTRIES] for ids_of_place in ids], dtype=np.int32).reshape(
            len(places), -1
        )
        values["topk_logprob"] = best[:, :TOPK_ENTRIES]
    if best.shape[1] >= _MASS:
        values["log_mass_40"] = np.logaddexp.reduce(best[:, :_MASS].astype(np.float64), axis=1).astype(np.float32)
    if best.size and np.logaddexp.reduce(best.astype(np.float64), axis=1).max() > _ROUNDING_OF_MASS:
        raise BadAnswerError("its answer has best tokens of a place whose probabilities add up to more than 1")
    return values
