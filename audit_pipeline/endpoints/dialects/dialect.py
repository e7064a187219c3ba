"""What all dialects have in common: what is wanted of an answer, what is read from it, and refusing what is no answer.

What belongs here: the shape of a dialect and what each of its answers is checked for. What does not: any one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit_pipeline.catalogue.contracts import TOPK_ENTRIES
from audit_pipeline.endpoints.client import ServerRequest
from audit_pipeline.endpoints.prompt import Prompt
from audit_pipeline.errors import ModelError, one_line
from audit_pipeline.models.config import Endpoint

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
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""A number of an answer that its column can hold, as the next three are."""
Count = Annotated[int, Field(ge=0, le=LARGEST_ID)]
TokenId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Rank = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class AnswerPart(BaseModel):
    """A part of an answer: a number is no string, a truth value no number, and a whole number no fraction."""

    model_config = ConfigDict(strict=True)


Shape = TypeVar("Shape", bound=BaseModel)


class BadAnswerError(ModelError):
    """An answer that cannot be what was asked for."""


class OtherTokensError(BadAnswerError):
    """An answer that is about other tokens than those that were asked about: the server cuts the text otherwise."""


@dataclass(frozen=True)
class Wanted:
    """How many of the best tokens are wanted at every place, and whether mean and deviation are."""

    best: int
    moments: bool = False

    @classmethod
    def of(cls, endpoint: Endpoint, statistics: Collection[str]) -> Wanted:
        """As little as ``statistics`` (names of token_statistics/kept.py) need: answers grow with it, and take time."""
        needed = max([0, *(_BEST.get(name, 0) for name in statistics)])
        return cls(min(needed, endpoint.top_logprobs), not {"mean", "std"}.isdisjoint(statistics))


_BEST: Mapping[str, int] = {"max_logprob": 1, "argmax_id": 1, "topk": TOPK_ENTRIES, "log_mass_40": _MASS}


@dataclass(frozen=True, eq=False)
class Answer:
    """What is read from an answer: ``values`` by the names that WindowStatistics has, one a scored token.

    ``best_given`` is the largest number of best tokens at a place. ``server`` is what the server says of itself.
    """

    values: Mapping[str, npt.NDArray[Any]]
    best_given: int
    server: str | None


@dataclass(frozen=True)
class Dialect:
    """How a kind of server is asked about a prompt, and how its answer to it is read (raises BadAnswerError)."""

    ask: Callable[[Endpoint, Prompt, Wanted], ServerRequest]
    read: Callable[[Prompt, Wanted, bytes], Answer]


@dataclass(frozen=True)
class Place:
    """What an answer holds of one token of the prompt: its own log-probability, the ``best`` ones, best first.

    ``best_ids`` go with ``best`` where the server names ids. ``rank`` is 0 for the best token.
    """

    own: float
    best: Sequence[float] = ()
    best_ids: Sequence[int] | None = None
    rank: int | None = None
    moments: tuple[float, float] | None = None


def parsed(shape: type[Shape], body: bytes) -> Shape:
    """The JSON ``body`` in a shape; raises BadAnswerError where it has another."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = one_line(".".join(map(str, first["loc"])))[:_WORDS]
        raise BadAnswerError(f"its answer has not the expected form ({where or 'JSON'}: {first['msg']})") from error


def require_as_many(entries: int, sent: int) -> None:
    """Raise BadAnswerError where an answer has not one entry for each token that was sent."""
    if entries == sent:
        return
    words = f"its answer has {entries} entries for {sent} tokens"
    if entries <= 1:
        raise BadAnswerError(f"{words}: it ignores what is asked of the prompt")
    raise OtherTokensError(f"{words}: it cuts the text otherwise, or shortens it")


def values_of(places: Sequence[Place], wanted: Wanted) -> dict[str, npt.NDArray[Any]]:
    """The statistics of the scored tokens. Raises BadAnswerError where they cannot be log-probabilities."""
    own = np.array([place.own for place in places], dtype=np.float32)
    values: dict[str, npt.NDArray[Any]] = {"logprob": own}
    if all(place.rank is not None for place in places):
        values["rank"] = np.array([place.rank for place in places], dtype=np.int32)
    if wanted.moments:
        moments = np.array([place.moments or (np.nan, np.nan) for place in places], dtype=np.float32).reshape(-1, 2)
        values |= {"mean": moments[:, 0], "std": moments[:, 1]}
        if (values["mean"] > _ROUNDING).any() or (values["std"] < 0).any():
            raise BadAnswerError("its answer has a mean above 0 or a deviation below 0")
    if wanted.best:
        values |= _of_the_best(places)
    if any(np.isnan(array).any() for array in values.values()) or (own > _ROUNDING).any():
        raise _no_log_probabilities()
    return values


def _no_log_probabilities() -> BadAnswerError:
    return BadAnswerError("its answer has log-probabilities that are none")


def _of_the_best(places: Sequence[Place]) -> dict[str, npt.NDArray[Any]]:
    if not all(place.best for place in places):
        raise BadAnswerError("its answer lacks the best tokens of some place")
    values: dict[str, npt.NDArray[Any]] = {"max_logprob": np.array([one.best[0] for one in places], dtype=np.float32)}
    if any(place.best[0] > _ROUNDING for place in places):
        raise _no_log_probabilities()
    if any(place.best[0] < place.own - _ROUNDING for place in places):
        raise BadAnswerError("its answer has a token that is more likely than the best one")
    ids = [place.best_ids for place in places if place.best_ids is not None]
    if len(ids) < len(places):
        return values
    values["argmax_id"] = np.array([one[0] for one in ids], dtype=np.int32)
    counts = {len(one) for one in ids}
    if max(counts, default=0) > 1 and len(counts) > 1:
        raise BadAnswerError("its answer has not as many of the best tokens at one place as at another")
    best = np.array([place.best for place in places], dtype=np.float32).reshape(len(places), -1)
    if best.shape[1] >= TOPK_ENTRIES:
        values["topk_id"] = np.array([one[:TOPK_ENTRIES] for one in ids], dtype=np.int32).reshape(len(places), -1)
        values["topk_logprob"] = best[:, :TOPK_ENTRIES]
    if best.shape[1] >= _MASS:
        values["log_mass_40"] = np.logaddexp.reduce(best[:, :_MASS].astype(np.float64), axis=1).astype(np.float32)
    if best.size and np.logaddexp.reduce(best.astype(np.float64), axis=1).max() > _ROUNDING_OF_MASS:
        raise BadAnswerError("its answer has best tokens of a place whose probabilities add up to more than 1")
    return values
