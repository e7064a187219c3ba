"""A row's text by a template: Jinja2 in its sandbox.

What belongs here: compiling a template and filling it with a row. What does not: which rows (rows_origin.py) and what
becomes of the texts (templated.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from audit_pipeline.errors import ConfigError, one_line

MOST_CHARACTERS = 10_000_000
"""Of one text."""


def _shown(value: object) -> object:
    if value is None:
        raise ValueError("a value is null")
    return value


_OF_THE_ROW = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)


class RowTemplate:
    """A template of a row's text; raises ValueError, saying where, for one that cannot be read.

    Row values are data: they are put into the template and never read as one. Nothing is escaped, for the text goes to
    a model and not into a page. A column that is not there, or null, is an error: no "None" in a text.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=_shown)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, ValueError, RecursionError) as error:
            raise ValueError(f"template: cannot be read: {one_line(error)}") from error

    def fill(self, values: Mapping[str, object]) -> tuple[str, str | None]:
        """The text of a row and None; or an empty text and the reason why there is none.

        Columns stand by their names, and all of them as ``row``, for names that are none in Jinja2: row['a b'].
        Raises ConfigError where the text is longer than any is.
        """
        pieces, characters = [], 0
        try:
            for piece in self._template.generate({**values, "row": values}):
                characters += len(piece)
                if characters > MOST_CHARACTERS:
                    raise ConfigError(
                        f"it makes more than {MOST_CHARACTERS:,} characters for one text: does it repeat something "
                        "too often?"
                    )
                pieces.append(piece)
        except (TemplateError, *_OF_THE_ROW) as error:
            return "", f"the template cannot be filled: {one_line(error) or type(error).__name__}"
        return "".join(pieces), None
