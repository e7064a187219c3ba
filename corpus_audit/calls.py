"""How a public function is called: its parameters, its progress, and its warnings."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.console import end_step, quietly
from audit_pipeline.pipeline.options import Option

VERBOSE = "Print steps and progress on standard error."
P = ParamSpec("P")
R = TypeVar("R")
Request = TypeVar("Request")


def takes(declared: Callable[P, Request]) -> Callable[[Callable[[Request], R]], Callable[P, R]]:
    """Make a function of one argument, the dataclass ``declared``, one of the dataclass's fields.

    The line ``{parameters}`` of its docstring becomes a list of them. A value that no command would take raises
    ConfigError.
    """

    def decorate(function: Callable[[Request], R]) -> Callable[P, R]:
        hints = get_type_hints(declared, include_extras=True)
        of_users = [each for each in fields(declared) if _get_help_text(hints[each.name])]  # type: ignore[arg-type]

        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            checked = {name: _convert_value(name, value, hints.get(name)) for name, value in options.items()}
            return function(declared(*arguments, **checked))

        signature = inspect.signature(declared)
        order = sorted(of_users, key=lambda each: (each.kw_only, _is_optional(each), each.name == "verbose"))
        shown = [signature.parameters[each.name].replace(annotation=_get_bare_type(hints[each.name])) for each in order]
        returned = inspect.signature(function).return_annotation
        call.__signature__ = inspect.Signature(shown, return_annotation=returned)  # type: ignore[attr-defined]
        words = "\n    ".join(line for each in order for line in _iterate_docstring_lines(each, hints[each.name]))
        call.__doc__ = (function.__doc__ or "").replace("{parameters}", words)
        return call

    return decorate


@contextmanager
def progress_on_stderr(verbose: bool) -> Iterator[None]:
    """Print steps and progress on standard error within the block, or nothing if not ``verbose``."""
    if verbose:
        try:
            yield
        finally:
            end_step()
    else:
        with quietly():
            yield


@contextmanager
def without_library_bars() -> Iterator[None]:
    """Keep the progress bars of transformers and huggingface_hub off standard error within the block."""
    # Only functions that run models need this block. They import both packages anyway.
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    had_bars, hub_had_bars = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            transformers_logging.enable_progress_bar()
        if hub_had_bars:
            enable_progress_bars()


def warn(messages: Iterable[object]) -> None:
    """Raise a UserWarning each, at the line that called the public function, which :func:`takes` made."""
    for message in messages:
        warnings.warn(str(message), UserWarning, stacklevel=4)


def _get_help_text(hint: Any) -> str | None:
    """What is said of a field to users; None of one that is not theirs."""
    [found] = getattr(hint, "__metadata__", (None,))
    return found.help if isinstance(found, Option) else found


def _get_bare_type(hint: Any) -> Any:
    return get_args(hint)[0]


def _is_optional(option_field: Field[Any]) -> bool:
    return not (option_field.default is MISSING and option_field.default_factory is MISSING)


def _iterate_docstring_lines(option_field: Field[Any], hint: Any) -> Iterator[str]:
    kind = _format_type(_get_bare_type(hint))
    default = "" if option_field.default in (None, MISSING) else f", default {option_field.default!r}"
    optional = ", optional" if _is_optional(option_field) and not default else ""
    yield f"{option_field.name} : {kind}{default}{optional}"
    # Other options are parameters here.
    words = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda found: found[1].replace("-", "_"), _get_help_text(hint) or "")
    yield from (f"    {line}" for line in textwrap.wrap(words, 110))


def _format_type(hint: Any) -> str:
    """A type as numpydoc has it."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_format_type(member) for member in get_args(hint) if member is not types.NoneType)
    if get_origin(hint) is Literal:
        return "{" + ", ".join(f'"{value}"' for value in get_args(hint)) + "}"
    return re.sub(r"\b[a-z_]+\.", "", inspect.formatannotation(hint))


def _convert_value(name: str, value: Any, hint: Any) -> Any:
    """The value as the command's option takes it."""
    option = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)), None)
    if value is None or option is None or option.type is None or isinstance(option.type, click.Choice):
        return value
    try:
        return option.type.convert(value, None, None)
    except click.BadParameter as error:
        raise ConfigError(f"{name}: {error.message}") from error
