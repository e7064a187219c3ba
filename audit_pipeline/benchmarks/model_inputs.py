"""The texts that a model reads for the examples of a benchmark.

A plain text is read after its context. A conversation is read as the model's chat template renders it, or in its plain
form if the model has no template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.benchmarks.conversation_rows import parse_messages
from audit_pipeline.detectors.detector_inputs import Spans
from audit_pipeline.errors import DataError
from audit_pipeline.models.chat_template import build_renderer, compute_template_version
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import Render, ScoredPart, render_plainly, select_scored_spans
from audit_pipeline.readers.text_rows import UnusableRowError
from audit_pipeline.tables import build_model_inputs, locate_scored_spans

TEMPLATE = "chat_template"
"""The kind of input for chat templates in the ledger."""


def build_template_name(model: str) -> str:
    """Return the name of a model's chat template among the inputs in the ledger."""
    return f"{TEMPLATE}/{model}"


def build_template_upstream(benchmark: BuiltBenchmark, model: TokenizedModel) -> dict[str, str]:
    """Return the version of the model's chat template by name. It is empty if no example is a conversation.

    Raises:
        ModelError: If the chat template cannot be read.
    """
    if benchmark.scored_part is None:
        return {}
    return {build_template_name(model.entry.name): compute_template_version(model.located)}


@dataclass(frozen=True)
class ModelInputs:
    """The texts that a model reads for n examples.

    Attributes:
        example_ids: The n ids of the examples.
        texts: The n texts. The text of a refused conversation is empty.
        spans: The scored parts of each text, in characters. None means the whole text.
        refusals: The reason for each conversation that the chat template refuses, drops or changes, by example id.
    """

    example_ids: Sequence[str]
    texts: Sequence[str]
    spans: Sequence[Spans | None]
    refusals: Mapping[str, str]

    @property
    def distinct_texts(self) -> list[str]:
        """Return the distinct texts in order, without refused conversations."""
        return [text for text in dict.fromkeys(self.texts) if text]

    def describe_refusals(self) -> str | None:
        """Return the number of refused conversations and the first reason, or None if there are none."""
        if not self.refusals:
            return None
        first_id, reason = next(iter(self.refusals.items()))
        return f"{len(self.refusals):,} of {len(self.texts):,} texts have no score. The first is {first_id}: {reason}"


def build_benchmark_inputs(benchmark: BuiltBenchmark, model: TokenizedModel) -> ModelInputs:
    """Return the texts that a model reads for the examples of a benchmark, in order.

    Raises:
        DataError: If the template accepts no conversation.
        ModelError: If the chat template cannot be read or is not valid.
    """
    inputs = build_example_inputs(benchmark.examples, model)
    if not inputs.distinct_texts:
        raise DataError(
            f"{model.entry.name} cannot be audited on {benchmark.name}: {inputs.describe_refusals()}. Audit a model "
            "with another chat template, or change the conversations."
        )
    return inputs


def build_example_inputs(examples: pa.Table, model: TokenizedModel) -> ModelInputs:
    """Return the texts that a model reads for examples, in order.

    Args:
        examples: The n examples (schema EXAMPLES).
        model: The model, whose chat template renders conversations.

    Raises:
        ModelError: If the chat template cannot be read or is not valid.
    """
    example_ids: list[str] = examples["example_id"].to_pylist()
    texts = build_model_inputs(examples)
    spans: list[Spans | None] = list(locate_scored_spans(examples))
    refusals: dict[str, str] = {}
    conversations: list[str | None] = examples["messages"].to_pylist()
    if any(conversations):
        render = build_renderer(model) or render_plainly
        parts: list[ScoredPart] = examples["scored_part"].to_pylist()
        for index, (messages, part) in enumerate(zip(conversations, parts, strict=True)):
            if messages is None:
                continue
            try:
                texts[index], spans[index] = _render(messages, part, render)
            except UnusableRowError as error:
                texts[index] = ""
                spans[index] = None
                refusals[example_ids[index]] = str(error)
    return ModelInputs(example_ids, texts, spans, refusals)


def _render(messages: str, part: ScoredPart, render: Render) -> tuple[str, Spans | None]:
    rendered = render(parse_messages(messages))
    return rendered.text, select_scored_spans(rendered, part)
