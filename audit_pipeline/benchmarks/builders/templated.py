"""The templated builder: items of a test set, each formatted by a template, for an audit of contamination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Self

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field, StringConstraints, model_validator

from audit_pipeline.benchmarks import labelled_rows
from audit_pipeline.benchmarks.builder_interface import Builder, BuilderInputs, DrawnExamples, ReadDocuments
from audit_pipeline.benchmarks.conversation_rows import ConversationSettings, build_conversation_fields
from audit_pipeline.benchmarks.labelled_rows import LabelledRows, RowReader
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, LabelColumnSettings
from audit_pipeline.benchmarks.settings import ANY, MEANINGS, BenchmarkSpec, Count, Design, FamilySettings
from audit_pipeline.config.validation import Text
from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.conversations import ASSISTANT, Message, ScoredPart
from audit_pipeline.readers.text_rows import Row, UnusableRowError, explain_unusable_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest


def _require_not_null(value: object) -> object:
    if value is None:
        raise ValueError("a value is null")
    return value


def _replace_null(value: object) -> object:
    return "" if value is None else value


# Template expressions raise these errors if a value of a row has an unsuitable type or content.
_ROW_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class RowTemplate:
    """A template for the text of a row.

    Row values are inserted as data and never parsed as a template. Nothing is escaped, because the text is read by a
    model and is not part of a web page. A missing column is an error. A null is an error, too, so that no text contains
    "None". If ``is_null_empty`` is True, a null becomes an empty text instead.

    Raises:
        ValueError: If the template is not valid. The message contains ``key``, the key of the entry with the template.
    """

    def __init__(self, source: str, *, key: str = "template", is_null_empty: bool = False) -> None:
        finalize = _replace_null if is_null_empty else _require_not_null
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=finalize)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, ValueError) as error:
            raise ValueError(f"{key} is not a valid Jinja2 template: {to_one_line(error)}") from error

    def fill(self, values: Mapping[str, object]) -> str:
        """Return the text of a row.

        Templates use columns by their names. The name ``row`` holds all columns, for names that Jinja2 does not accept:
        row['a b'].

        Raises:
            UnusableRowError: If the template cannot be filled.
        """
        try:
            return self._template.render({**values, "row": values})
        except (TemplateError, *_ROW_ERRORS) as error:
            reason = to_one_line(error) or type(error).__name__
            raise UnusableRowError(f"the template cannot be filled: {reason}") from error


class ItemTemplates:
    """The templates of an item: its question, and its answer if it has one.

    The commands ``overlap`` and ``items`` also use :func:`build_question_context` for the rows of a file. So an item
    has the same question, answer and verdict in a benchmark and in a file.
    """

    def __init__(self, template: str, answer: str | None) -> None:
        self._template = RowTemplate(template)
        self._answer = None if answer is None else RowTemplate(answer, key="answer", is_null_empty=True)

    def fill(self, values: Mapping[str, object]) -> tuple[str | None, str]:
        """Return the context and the text of a row's item.

        The text of an item with an answer is the answer, and its context is the question. Otherwise the text is the
        filled template, and there is no context.

        Raises:
            UnusableRowError: If a template cannot be filled.
        """
        question, answer = self.fill_separately(values)
        if not answer.strip():
            return None, question
        return build_question_context(question), answer

    def fill_separately(self, values: Mapping[str, object]) -> tuple[str, str]:
        """Return the question and the answer of a row's item. The answer may be empty.

        Raises:
            UnusableRowError: If a template cannot be filled.
        """
        question = self._template.fill(values)
        answer = "" if self._answer is None else self._answer.fill(values)
        return question, answer


def build_question_context(question: str) -> str:
    """Return a question as the context of its answer. The answer begins on a new line."""
    return f"{question}\n"


class TemplatedSettings(GroupedRowsSettings, LabelColumnSettings, ConversationSettings):
    """Settings of a benchmark of test-set items, whose texts a template formats.

    If ``label_column`` is None, the membership of the items is unknown.
    """

    added: ClassVar[frozenset[str]] = FamilySettings.added | {"scored_part"}
    may_be_unlabelled: ClassVar[bool] = True

    builder: Literal["templated"]
    template: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Jinja2 template of the text, run in a sandbox; it uses columns by name, or as row['column']"
    )
    answer: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="Jinja2 template of the answer; the answer becomes the text, and the filled template its context, "
        "so that overlap and items search for both; if a row's answer is empty, the filled template is the text",
    )
    max_words: Count | None = Field(
        default=None,
        description="maximum length of a text in words; longer texts are skipped and reported; None: no limit",
    )
    max_texts: Count | None = Field(
        default=None, description="maximum number of texts; if there are more, the seed selects them; None: all texts"
    )
    label_column: Text | None = Field(
        default=None,
        description="column with the label: 1 for items that the model was trained on; None: membership is unknown",
    )
    design: Design = "unlabelled"

    @property
    def requires_exact_length(self) -> bool:
        """Return False: items have any length."""
        return False

    @model_validator(mode="after")
    def _check_template_settings(self) -> Self:
        if self.words is not None:
            raise ValueError(f"words: must be {ANY}, because items have different lengths")
        self.validate_length_placeholder()
        if self.label_column is None and self.design != "unlabelled":
            raise ValueError(f"'design: {self.design}' requires labels. Set label_column, or remove design.")
        if self.label_column is not None and self.design == "unlabelled":
            designs = ", ".join(f"{name} ({means})" for name, means in MEANINGS.items() if name != "unlabelled")
            raise ValueError(
                "key 'design' is missing. An entry with a label_column states how members and non-members were "
                f"obtained: {designs}"
            )
        if self.scored_part is not None and self.answer is None:
            raise ValueError("scored_part requires answer: the filled template is the question. Add answer.")
        ItemTemplates(self.template, self.answer)
        return self


def read_templated_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """Read the items, each formatted by its template. Without a label column their membership is unknown.

    Items with the same first words are different documents, because items often share an instruction.

    Raises:
        DataError: If the rows are unreadable, a column is missing in all rows, or no item is usable.
        SourceError: If the package that holds the rows is unreadable.
    """
    settings = spec.require_settings(TemplatedSettings)
    templates = ItemTemplates(settings.template, settings.answer)
    label_values = dict(settings.label_values)

    def read_item_conversation(row: Row, part: ScoredPart) -> dict[str, Any]:
        question, answer = templates.fill_separately(row.values)
        if not answer.strip():
            raise UnusableRowError("its answer is empty")
        return build_conversation_fields([Message("user", question), Message(ASSISTANT, answer)], part)

    def read_item_text(row: Row) -> str:
        _, text = templates.fill(row.values)
        if settings.scored_part is not None:
            text = read_item_conversation(row, settings.scored_part)["text"]
        problem = explain_unusable_text(text)
        if problem is not None:
            raise UnusableRowError(f"its text {problem}")
        return text

    def read_item_context(row: Row) -> Mapping[str, object]:
        context, _ = templates.fill(row.values)
        problem = None if context is None else explain_unusable_text(context)
        if problem is not None:
            raise UnusableRowError(f"its question {problem}")
        if settings.scored_part is not None:
            return read_item_conversation(row, settings.scored_part)
        return {"context": context}

    reader = RowReader(
        read_text=read_item_text,
        read_label=lambda row: labelled_rows.parse_label_column(row, settings.label_column, label_values),
        read_assignment=None if settings.answer is None else read_item_context,
        columns=(settings.label_column,),
        max_words=settings.max_words,
        beginning=None,
    )
    return labelled_rows.read_rows_inputs(spec, paths, reader)


def draw_templated(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return the usable items as examples. If there are more than max_texts, the seed and the texts select them.

    Raises:
        DataError: If all labelled items have the same label.
    """
    settings = spec.require_settings(TemplatedSettings)
    max_texts = settings.max_texts
    if max_texts is not None and len(rows.texts) > max_texts:
        order = sorted(map(attrgetter("text"), rows.texts))
        order.sort(key=lambda text: digest(settings.seed, spec.family, "turn", text))
        selected = set(order[:max_texts])
        left_out = {**rows.left_out, "beyond the limit max_texts": len(rows.texts) - max_texts}
        rows = replace(rows, texts=tuple(text for text in rows.texts if text.text in selected), left_out=left_out)
    return labelled_rows.build_examples_from_rows(rows, spec, run_id)


BUILDER = Builder(1, TemplatedSettings, read_templated_rows, draw_templated)
