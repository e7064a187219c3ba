"""Bounds on what a template of the configuration may take: a slip of the hand must not take the machine with it.

What belongs here: the sandbox that counts what a template does. What does not: what a template is filled with
(row_template.py).

Jinja2's own sandbox bounds what a template can reach, and single ranges; not how often it loops, how large a text it
makes out of small ones, or how long it takes. Here, for every text anew: each step of a loop and each call counts, what
an operation could make of its operands is worked out before it is done, and what it made counts as well.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2 import Environment, StrictUndefined, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from audit_pipeline.errors import ConfigError

MOST_STEPS = 200_000
MOST_CHARACTERS = 50_000_000
"""Of all that is made on the way to one text."""
MOST_SECONDS = 2.0
"""Of the processor's time, for one text."""

# Of a number, or of a list itself, in characters: about the memory that it takes.
_WEIGHT = 64

_CONCATENATE, _COUNTED = "concatenate operands", "count steps"
# A width of many digits, or one that is a value: what it makes is not told by what it is given.
_WIDE = re.compile(r"[0-9]{5,}|\*|:[^{}]*\{")
_FORMATS = ("format", "format_map")
_OF_JINJA = (Context, Environment, nodes.EvalContext)
_REFUSED = (
    nodes.Macro,
    nodes.CallBlock,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.Block,
)


class TemplateLimitError(ConfigError):
    """A template that would do more than any text needs."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for one template; :meth:`begin` before every text that it makes."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, finalize: Callable[[object], object]) -> None:
        def bounded(value: object) -> object:
            self.count(_size(value))
            return finalize(value)

        super().__init__(autoescape=False, undefined=StrictUndefined, finalize=bounded)
        self.begin()
        self.filters = {name: self._bounded(name, one) for name, one in self.filters.items()}
        self.filters[_CONCATENATE] = self._concatenated
        self.filters[_COUNTED] = self._counted

    def begin(self) -> None:
        """Nothing has been done yet."""
        self._steps, self._made, self._until = 0, 0, time.thread_time() + MOST_SECONDS

    def step(self) -> None:
        """Count one step; raises TemplateLimitError where there were too many, or they took too long."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TemplateLimitError(f"it takes more than {MOST_STEPS:,} steps for one text: does it loop too often?")
        if time.thread_time() > self._until:
            raise TemplateLimitError(f"it takes more than {MOST_SECONDS:.0f} seconds for one text")

    def count(self, characters: int) -> None:
        """Count what was made; raises TemplateLimitError where it came to be too much."""
        self._made += characters
        if self._made > MOST_CHARACTERS:
            raise _too_large()

    def parsed(self, source: str) -> nodes.Template:
        """The template with its loops counted and its ~ bounded; raises ValueError for a part that could call itself.

        Raises TemplateError where it cannot be read.
        """
        template = self.parse(source)
        for node in template.find_all(_REFUSED):
            raise ValueError(f"line {node.lineno}: a row's template has no macros, blocks, imports or includes")
        for loop in template.find_all(nodes.For):
            if loop.recursive:
                raise ValueError(f"line {loop.lineno}: a row's template has no recursive loops")
            loop.iter = _filtered(cast(nodes.Expr, loop.iter), _COUNTED)
        return _with_concatenations_bounded(template)

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.step()
        # The sandbox wraps a text's format.
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", "")
        if getattr(function, "__name__", "") in _FORMATS:
            _require_narrow(owner)
        self._require_small(owner, *args, *kwargs.values())
        try:
            made = super().call(context, function, *args, **kwargs)
        except OverflowError as error:
            raise TemplateLimitError(f"{error}") from error
        self.count(_size(made))
        return made

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.step()
        if operator == "+":
            self.count(_size(left) + _size(right))
        elif operator == "%" and isinstance(left, str):
            _require_narrow(left)
            self.count(_size(left) + _size(right))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._require_small(left.bit_length() * max(right, 1))
        else:
            self._require_small(left, right)
        return super().call_binop(context, operator, left, right)

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self.step()
            given = [one for one in (*args, *kwargs.values()) if not isinstance(one, _OF_JINJA)]
            if name in _FORMATS:
                _require_narrow(given[0])
            self._require_small(*given)
            made = function(*args, **kwargs)
            self.count(_size(made))
            return made

        return bounded

    def _concatenated(self, operands: list[object]) -> str:
        self.step()
        self.count(sum(map(_size, operands)))
        return "".join(map(str, operands))

    def _counted(self, values: Iterable[object]) -> Iterator[object]:
        for value in values:
            self.step()
            yield value

    def _require_small(self, *operands: object) -> None:
        """Raise TemplateLimitError unless all that could be made of these, each times each, is small."""
        if math.prod(max(1, one if isinstance(one, int) else _size(one)) for one in operands) > MOST_CHARACTERS:
            raise _too_large()


def _require_narrow(text: object) -> None:
    """Raise TemplateLimitError where a text to be formatted pads what it is given to any width."""
    if isinstance(text, str) and _WIDE.search(text):
        raise TemplateLimitError("a format with a width of five digits or more, or one that is a value, is too wide")


def _too_large() -> TemplateLimitError:
    return TemplateLimitError(
        f"it may make more than {MOST_CHARACTERS:,} characters for one text: does it repeat or pad something too often?"
    )


def _size(value: object) -> int:
    """Characters in ``value`` with all that it holds, other values at their weight; counting stops where there are too
    many."""
    size, waiting = 0, [value]
    while waiting and size <= MOST_CHARACTERS:
        one = waiting.pop()
        size += len(one) if isinstance(one, str | bytes | range) else _WEIGHT
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
    return size


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _with_concatenations_bounded(template: nodes.Template) -> nodes.Template:
    waiting: list[nodes.Node] = [template]
    while waiting:
        node = waiting.pop()
        for name, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, name, [_bounded_concat(one) for one in value])
            else:
                setattr(node, name, _bounded_concat(value))
        waiting += node.iter_child_nodes()
    return template


def _bounded_concat(node: Any) -> Any:
    if not isinstance(node, nodes.Concat):
        return node
    return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCATENATE)
