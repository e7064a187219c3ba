"""The common part of all server dialects: prompts, answers, and the checks of answers.

The module selects the tokens of a window to send and to score. It finds their string for servers that accept only
strings. It declares how detailed an answer must be (``AnswerDetail``) and checks each answer.
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
    """The error for a window without a string that a server would split into the same tokens."""


@dataclass(frozen=True)
class PromptString:
    """A prompt as a string.

    Attributes:
        text: The string.
        starts: Positions of the tokens in the string, one tuple for each way in which servers count characters.
    """

    text: str
    starts: frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class Prompt:
    """The tokens of a window that are sent to an endpoint.

    Attributes:
        sha256: SHA-256 of the text.
        ids: Token ids to send.
        scored: Number of tokens at the end of ``ids`` that are scored.
        spelled: String for a server that accepts no ids, or None.
    """

    sha256: str
    ids: tuple[int, ...]
    scored: int
    spelled: PromptString | None = None

    @property
    def token_count(self) -> int:
        """Return the number of tokens that the server runs.

        It generates one token, and may add a start token to a string.
        """
        return len(self.ids) + 1 + (self.spelled is not None)


def build_prompt(
    model: TokenizedModel, text: EncodedText, window: Window, prefix_ids: Sequence[int] = (), *, as_string: bool = False
) -> Prompt:
    """Return the prompt for a window of a text.

    If the server adds the start token itself, the prompt lacks it.

    Args:
        model: Model with its tokenizer.
        text: Text of the window.
        window: Window to score.
        prefix_ids: Tokens before the window.
        as_string: Add the string for a server that accepts no ids.

    Raises:
        NoStringError: If no string has these tokens. For example, a window may begin within a character, or the ends of
            prefix and text may form one token.
    """
    start: tuple[int, ...] = ()
    if window.has_start_token and text.start_token_id is not None:
        start = (text.start_token_id,)
    ids = (*prefix_ids, *start, *text.token_id[window.begin : window.end].tolist())
    if model.entry.host.server_adds_start_token and (prefix_ids or start):
        # A tokenizer with a start token adds it to each text and to each prefix, so it is the first id.
        adds_start_token = encode(model, ["a"])[0].start_token_id is not None
        ids = ids[1:] if adds_start_token else ids
    string = _build_prompt_string(model, ids) if as_string else None
    return Prompt(text.text_sha256, ids, window.end - window.score_from, string)


def _build_prompt_string(model: TokenizedModel, ids: tuple[int, ...]) -> PromptString:
    string = model.tokenizer.decode(ids)
    [again] = model.tokenizer.encode([string], add_special_tokens=False)
    if tuple(again.ids) != ids:
        raise NoStringError(
            "The server accepts only strings, but it would split the string of one of the text's windows into other "
            "tokens. If the text is longer than window, increase window in the entry of the model."
        )
    starts: list[int] = []
    # llama-cpp-python does not count the characters of special tokens.
    starts_without_special: list[int] = []
    n_special_characters = 0
    for token, (start, end) in zip(ids, again.offsets, strict=True):
        starts.append(start)
        starts_without_special.append(start - n_special_characters)
        if token in model.tokenizer.special_ids:
            n_special_characters += end - start
    # Other servers decode tokens one by one, so that each part of a character counts as a character.
    lengths = [len(model.tokenizer.decode([token])) for token in ids[:-1]]
    starts_by_token = accumulate(lengths, initial=0)
    ways = (tuple(starts), tuple(starts_without_special), tuple(starts_by_token))
    return PromptString(string, frozenset(ways))


WHOLE = -1
"""Value of ``AnswerDetail.best`` for all tokens of the vocabulary. Mean and deviation are then computed here."""
_MASS = 40
_MAX_LOCATION_LENGTH = 80
# Half precision may round the log-probability of a token with probability 1 to a little more than 0.
_ROUNDING = 0.01
# The rounding errors of many tokens add up.
_ROUNDING_OF_MASS = 0.1

LARGEST_ID = int(np.iinfo(np.int32).max)
_LARGEST = float(np.finfo(np.float32).max)
# Log-probabilities up to this limit are placeholders, because no model in use has logits this far apart.
_LEAST = -999.0
# Between these two limits, whole numbers are placeholders (-100). By chance, one in 131,072 real values is whole.
_LEAST_FRACTION = -99.0
_LARGEST_VOCABULARY = 300_000
# Maximum number of bytes per entry of an answer. vLLM writes about 110.
_BYTES_PER_ENTRY = 400
_FIXED_BYTES = 1 << 20
_FLOOR_TIES = 3
_NEXT_VALUES = 5
_LARGEST_FLOOR = math.log(0.5)
_NO_LOGPROBS = "The answer contains impossible log-probabilities: values above 0, or no numbers."

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""A number that fits into the type of its column. The counts and ids below also fit."""


def _replace_placeholder(value: Any) -> Any:
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    is_placeholder = value <= _LEAST or (value <= _LEAST_FRACTION and value == int(value))
    return math.nan if is_placeholder else value


Logprob = Annotated[float, BeforeValidator(_replace_placeholder)]
"""A log-probability in an answer, in nats, or NaN if it is unknown.

JSON has no minus infinity. Servers replace it by null, -9999 (vLLM, OpenAI), -100, -1000, -1e30 or the least float.
Some servers do so for each token that is not among the best tokens. The model's value is then unknown. So null, values
of -999 or less and whole numbers of -99 or less are read as NaN.
"""
Count = Annotated[int, Field(ge=0, le=LARGEST_ID)]
TokenId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Rank = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class AnswerPart(BaseModel):
    """A part of an answer, parsed strictly: strings and booleans are not read as numbers, nor fractions as integers."""

    model_config = ConfigDict(strict=True)


Shape = TypeVar("Shape", bound=BaseModel)
Choice = TypeVar("Choice", bound=AnswerPart)


class Completion(AnswerPart, Generic[Choice]):
    """An answer of OpenAI's completions route to a single prompt."""

    choices: Annotated[list[Choice], Field(min_length=1, max_length=1)]
    system_fingerprint: str | None = None


class BadAnswerError(ModelError):
    """The error for an answer that does not fit the request."""


class OtherTokensError(BadAnswerError):
    """The error for an answer about other tokens than the request, because the server splits the text differently."""


@dataclass(frozen=True)
class AnswerDetail:
    """The statistics that an answer must contain in addition to the log-probabilities of the tokens.

    Attributes:
        best: Number of best tokens per position.
        moments: Whether the answer includes mean and standard deviation of the log-probabilities.
    """

    best: int
    moments: bool = False

    @classmethod
    def for_statistics(cls, endpoint: Endpoint, statistics: Collection[str]) -> AnswerDetail:
        """Return the least detail with which an answer contains the statistics. More detail makes answers slower."""
        needed = max([0, *(_BEST.get(name, 0) for name in statistics)])
        return cls(min(needed, endpoint.top_logprobs), not {"mean", "std"}.isdisjoint(statistics))


_BEST: Mapping[str, int] = {"max_logprob": 1, "argmax_id": 1, "topk": TOPK_ENTRIES, "log_mass_40": _MASS}


@dataclass(frozen=True, eq=False)
class Answer:
    """The statistics in a server's answer, after all checks.

    Attributes:
        values: Arrays by the names of statistics in WindowResult, with one entry per scored token.
        best_given: Maximum number of best tokens that the server returned at a position.
        server: The server's fingerprint of itself, or None.
    """

    values: Mapping[str, npt.NDArray[Any]]
    best_given: int
    server: str | None


@dataclass(frozen=True)
class ServerDialect:
    """The functions that build requests for one kind of server and read its answers.

    Attributes:
        build_request: Function that builds the request for a prompt.
        read_answer: Function that reads the answer. It raises BadAnswerError.
    """

    build_request: Callable[[Endpoint, Prompt, AnswerDetail], ServerRequest]
    read_answer: Callable[[Prompt, AnswerDetail, bytes], Answer]


@dataclass(frozen=True)
class AnswerPosition:
    """The part of an answer about one token of the prompt.

    Attributes:
        own: Log-probability of the token, or NaN if it is unknown.
        best: Log-probabilities of the best tokens, in descending order.
        best_ids: Ids of the best tokens, or None if the server returns no ids.
        rank: Rank of the token, 0 for the best token.
        moments: Mean and standard deviation of the log-probabilities of the vocabulary.
    """

    own: float
    best: Sequence[float] = ()
    best_ids: Sequence[int] | None = None
    rank: int | None = None
    moments: tuple[float, float] | None = None


def parse_answer(shape: type[Shape], body: bytes) -> Shape:
    """Parse a JSON body as an instance of a pydantic model.

    Raises:
        BadAnswerError: If the body has another form.
    """
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        location = to_one_line(".".join(map(str, first["loc"])))[:_MAX_LOCATION_LENGTH]
        raise BadAnswerError(
            f"The answer does not have the expected form ({location or 'JSON'}: {first['msg']}). Check the dialect in "
            "the entry of the model."
        ) from error


def build_url(endpoint: Endpoint, path: str, *, root: bool = False) -> str:
    """Return the address of a route.

    Args:
        endpoint: Endpoint.
        path: Route.
        root: Whether the route is below the server's root, as routes outside OpenAI's interface are.
    """
    base = endpoint.url.rstrip("/")
    return f"{base.removesuffix('/v1') if root else base}/{path}"


def build_request(
    endpoint: Endpoint, path: str, body: Mapping[str, Any], prompt: Prompt, detail: AnswerDetail, *, root: bool = False
) -> ServerRequest:
    """Return a request about a prompt. It allows an answer of several times the usual length."""
    best = _LARGEST_VOCABULARY if detail.best == WHOLE else detail.best
    max_bytes = _FIXED_BYTES + prompt.token_count * (best + 3) * _BYTES_PER_ENTRY
    text = "" if prompt.spelled is None else prompt.spelled.text
    url = build_url(endpoint, path, root=root)
    return ServerRequest(url, body, Usage(prompt.token_count), max_bytes, private=text)


def require_entry_per_token(entries: int, tokens: int) -> None:
    """Raise BadAnswerError unless an answer has one entry per token of the prompt."""
    if entries == tokens:
        return
    problem = f"The answer has {entries} entries for {tokens} tokens."
    if entries <= 1:
        raise BadAnswerError(f"{problem} The server ignores the request for log-probabilities of the prompt.")
    raise OtherTokensError(f"{problem} The server splits the text into other tokens, or shortens it.")


def build_answer(positions: Sequence[AnswerPosition], detail: AnswerDetail, server: str | None = None) -> Answer:
    """Return the statistics of the scored tokens. Unknown values of ``logprob`` are NaN.

    Raises:
        BadAnswerError: If another statistic is missing or impossible.
    """
    own = np.array([position.own for position in positions], dtype=np.float32)
    own[own > _ROUNDING] = np.nan
    values: dict[str, npt.NDArray[Any]] = {"logprob": own}
    if all(position.rank is not None for position in positions):
        values["rank"] = np.array([position.rank for position in positions], dtype=np.int32)
    if detail.moments:
        moments = np.array([position.moments or (np.nan, np.nan) for position in positions], dtype=np.float32).reshape(
            -1, 2
        )
        values |= {"mean": moments[:, 0], "std": moments[:, 1]}
        if (values["mean"] > _ROUNDING).any() or (values["std"] < 0).any():
            raise BadAnswerError("The answer contains a mean above 0 or a standard deviation below 0.")
    if detail.best:
        values |= _compute_best_values(positions)
    if any(np.isnan(array).any() for name, array in values.items() if name != "logprob"):
        raise BadAnswerError(_NO_LOGPROBS)
    return Answer(values, max((len(position.best) for position in positions), default=0), server)


def find_floor(logprobs: npt.NDArray[np.float32]) -> float | None:
    """Return the server's floor, which replaces all smaller log-probabilities, or None without a sign of a floor.

    The least value is a floor if it occurs at least three times. It must also occur more than twice as often as any of
    the next five values. Real log-probabilities are rarest at the lower end, and floats hardly ever tie there. A value
    of log(.5) or more is no floor: rounded values of a memorised text tie. docs/backends.md has the rates of false
    alarms.

    Args:
        logprobs: Array of shape (n_tokens,), in nats.
    """
    values, counts = np.unique(logprobs[~np.isnan(logprobs)], return_counts=True)
    if not len(values) or values[0] >= _LARGEST_FLOOR:
        return None
    is_floor = counts[0] >= _FLOOR_TIES and counts[0] > 2 * counts[1 : 1 + _NEXT_VALUES].max(initial=0)
    return float(values[0]) if is_floor else None


def nan_to_minus_inf(logprob: float) -> float:
    """Return the log-probability, or minus infinity if it is unknown, so that the token is sorted to the end."""
    return -math.inf if math.isnan(logprob) else logprob


def _compute_best_values(positions: Sequence[AnswerPosition]) -> dict[str, npt.NDArray[Any]]:
    if not all(position.best for position in positions):
        raise BadAnswerError("The answer lacks the best tokens at some positions.")
    values: dict[str, npt.NDArray[Any]] = {
        "max_logprob": np.array([position.best[0] for position in positions], dtype=np.float32)
    }
    if any(position.best[0] > _ROUNDING for position in positions):
        raise BadAnswerError(_NO_LOGPROBS)
    if any(position.best[0] < position.own - _ROUNDING for position in positions):
        raise BadAnswerError("The answer contains a token that is more likely than the best token.")
    ids = [position.best_ids for position in positions if position.best_ids is not None]
    if len(ids) < len(positions):
        return values
    values["argmax_id"] = np.array([ids_of_position[0] for ids_of_position in ids], dtype=np.int32)
    counts = {len(ids_of_position) for ids_of_position in ids}
    if max(counts, default=0) > 1 and len(counts) > 1:
        raise BadAnswerError("The answer contains different numbers of best tokens at different positions.")
    best = np.array([position.best for position in positions], dtype=np.float32).reshape(len(positions), -1)
    if best.shape[1] >= TOPK_ENTRIES:
        values["topk_id"] = np.array(
            [ids_of_position[:TOPK_ENTRIES] for ids_of_position in ids], dtype=np.int32
        ).reshape(len(positions), -1)
        values["topk_logprob"] = best[:, :TOPK_ENTRIES]
    if best.shape[1] >= _MASS:
        values["log_mass_40"] = np.logaddexp.reduce(best[:, :_MASS].astype(np.float64), axis=1).astype(np.float32)
    if best.size and np.logaddexp.reduce(best.astype(np.float64), axis=1).max() > _ROUNDING_OF_MASS:
        raise BadAnswerError("The probabilities of the best tokens at a position add up to more than 1.")
    return values
