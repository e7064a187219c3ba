"""A row's text by a template: Jinja2 in its sandbox.

What belongs here: compiling a template and filling it with a row. What does not: which rows (rows_origin.py) and what
becomes of the texts (templated.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def _shown(value: object) -> object:
    if value is None:
        raise ValueError("a value is null")
    return value


# Row values are data: they are put into the template and never read as one. Nothing is escaped, for the text goes to
# a model and not into a page. A column that is not there, or null, is an error: no "None" in a text.
_ENVIRONMENT = ImmutableSandboxedEnvironment(autoescape=False, undefined=StrictUndefined, finalize=_shown)
_OF_THE_ROW = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class RowTemplate:
    """A template of a row's text; raises ValueError, saying where, for one that cannot be read."""

    def __init__(self, source: str) -> None:
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except TemplateError as error:
            raise ValueError(f"template: cannot be read: {_one_line(error)}") from error

    def fill(self, values: Mapping[str, object]) -> tuple[str, str | None]:
        """The text of a row and None; or an empty text and the reason why there is none.

        Columns stand by their names, and all of them as ``row``, for names that are none in Jinja2: row['a b'].
        """
        try:
            return self._template.render({**values, "row": values}), None
        except (TemplateError, *_OF_THE_ROW) as error:
            return "", f"the template cannot be filled: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
