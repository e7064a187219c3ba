"""Items of a test set as texts: each row formatted by a template, to be audited for contamination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field, StringConstraints, model_validator

from audit_pipeline.benchmarks.builder_interface import Builder, BuilderInputs, DrawnExamples, ReadDocuments
from audit_pipeline.benchmarks.labelled_rows import (
    LabelledRows,
    Reading,
    examples_from_rows,
    parse_label_column,
    read_rows_inputs,
)
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, LabelColumnSettings
from audit_pipeline.benchmarks.settings import ANY, MEANINGS, BenchmarkSpec, Count, Design
from audit_pipeline.config.validation import Text
from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.text_rows import Row, UnusableRowError, explain_unusable_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest


def _require_not_null(value: object) -> object:
    if value is None:
        raise ValueError("a value is null")
    return value


def _replace_null(value: object) -> object:
    return "" if value is None else value


_OF_THE_ROW = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class RowTemplate:
    """A template of a row's text; raises ValueError, saying where, for one that cannot be read.

    Row values are data: they are put into the template and never read as one. Nothing is escaped, for the text goes to
    a model and not into a page. A missing column is an error, and so is a null, unless ``is_null_empty``: no "None" in
    a text.
    """

    def __init__(self, source: str, *, is_null_empty: bool = False) -> None:
        finalize = _replace_null if is_null_empty else _require_not_null
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=finalize)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, ValueError) as error:
            raise ValueError(f"template: cannot be read: {to_one_line(error)}") from error

    def fill(self, values: Mapping[str, object]) -> str:
        """The text of a row; raises UnusableRowError where the template cannot be filled.

        Columns are available by their names, and all of them as ``row``, for names that are none in Jinja2: row['a b'].
        """
        try:
            return self._template.render({**values, "row": values})
        except (TemplateError, *_OF_THE_ROW) as error:
            why = to_one_line(error) or type(error).__name__
            raise UnusableRowError(f"the template cannot be filled: {why}") from error


class ItemTemplates:
    """The templates of an item: its question, and its answer if it has one.

    ``corpus-audit overlap`` and ``items`` use :func:`build_question_context` for the rows of a file, too. So a row has
    the same question and answer, and the same verdict, as an item of a benchmark and as a row of a file.
    """

    def __init__(self, template: str, answer: str | None) -> None:
        self._template = RowTemplate(template)
        self._answer = None if answer is None else RowTemplate(answer, is_null_empty=True)

    def fill(self, values: Mapping[str, object]) -> tuple[str | None, str]:
        """Return the context and the text of a row's item.

        The text of an item with an answer is the answer, and its context is the question. Otherwise the text is what
        the template makes of the row, and there is no context.

        Raises:
            UnusableRowError: If a template cannot be filled.
        """
        question = self._template.fill(values)
        answer = "" if self._answer is None else self._answer.fill(values)
        if not answer.strip():
            return None, question
        return build_question_context(question), answer


def build_question_context(question: str) -> str:
    """Return a question as the context of its answer, which begins on a line of its own."""
    return f"{question}\n"


class TemplatedSettings(GroupedRowsSettings, LabelColumnSettings):
    """Items of a test set, formatted by a template; a column says whether they are members, or it is unknown."""

    may_be_unlabelled: ClassVar[bool] = True

    builder: Literal["templated"]
    template: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Jinja2, in a sandbox; a row's columns by their names, and all of them as row"
    )
    answer: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="Jinja2 for the answer: it becomes the text, and what template makes becomes its context, so that "
        "overlap and items look for question and answer; a row whose answer is empty or null is an item without one",
    )
    max_words: Count | None = Field(default=None, description="longer texts are left out and named")
    max_texts: Count | None = Field(default=None, description="at most so many, chosen by the seed")
    label_column: Text | None = Field(
        default=None, description="the column that says which items the model was trained on; None: unknown"
    )
    design: Design = "unlabelled"

    @property
    def every_length_exact(self) -> bool:
        return False

    @model_validator(mode="after")
    def _check_template_settings(self) -> Self:
        if self.words is not None:
            raise ValueError(f"words: must be {ANY}, for an item is as long as it is")
        self.require_words_place()
        if self.label_column is None and self.design != "unlabelled":
            raise ValueError(
                f"design: {self.design} is for rows with labels: name their label_column, or take design out"
            )
        if self.label_column is not None and self.design == "unlabelled":
            designs = ", ".join(f"{name} ({means})" for name, means in MEANINGS.items() if name != "unlabelled")
            raise ValueError(
                f"key 'design' is missing: with a label_column, it says how the sides came about: {designs}"
            )
        ItemTemplates(self.template, self.answer)
        return self


def read_templated_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """The items of ``spec``, each formatted by its template; without a label column their membership is unknown.

    Items that begin alike are not taken for one document: they often share an instruction. Raises DataError
    (SourceError) where they cannot be read, where a column is missing altogether, and where no item can be used.
    """
    settings = spec.require_settings(TemplatedSettings)
    templates = ItemTemplates(settings.template, settings.answer)
    meanings = dict(settings.label_values)

    def text(row: Row) -> str:
        _, filled = templates.fill(row.values)
        if (problem := explain_unusable_text(filled)) is not None:
            raise UnusableRowError(f"its text {problem}")
        return filled

    def place(row: Row) -> Mapping[str, object]:
        context, _ = templates.fill(row.values)
        if context is not None and (problem := explain_unusable_text(context)) is not None:
            raise UnusableRowError(f"its question {problem}")
        return {"context": context}

    reading = Reading(
        text=text,
        label=lambda row: parse_label_column(row, settings.label_column, meanings),
        place=None if settings.answer is None else place,
        columns=(settings.label_column,),
        most_words=settings.max_words,
        beginning=None,
    )
    return read_rows_inputs(spec, paths, reading)


def draw_templated(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """The examples of ``spec``: every usable item, or of more than max_texts so many, in an order of the seed's.

    Which are taken depends on the seed and their texts alone. Raises DataError where all labelled ones have one label.
    """
    settings = spec.require_settings(TemplatedSettings)
    most = settings.max_texts
    if most is not None and len(rows.texts) > most:
        turns = sorted(text.text for text in rows.texts)
        turns.sort(key=lambda text: digest(settings.seed, spec.family, "turn", text))
        taken = set(turns[:most])
        left_out = {**rows.left_out, "over max_texts": len(rows.texts) - most}
        rows = replace(rows, texts=tuple(text for text in rows.texts if text.text in taken), left_out=left_out)
    return examples_from_rows(rows, spec, run_id)


BUILDER = Builder(1, TemplatedSettings, read_templated_rows, draw_templated)
