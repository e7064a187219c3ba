"""The conversations of a benchmark as the chat templates of models rendered them, for the command forget."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa

from audit_pipeline.benchmarks.model_inputs import build_example_inputs, build_template_name
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.scoring.needs.provider import list_derived_texts
from audit_pipeline.store.files import read_parquet
from audit_pipeline.store.ledger_records import Ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions
from audit_pipeline.tables import EXAMPLES, TOKEN_STATISTICS, parse_pair, text_sha256


class RenderedConversations(NamedTuple):
    """The rendered conversations of a benchmark.

    Attributes:
        digests: The digests of the rendered texts, and of the texts that detectors derive from them.
        problems: One message per model that may have rows of texts that are not among them.
    """

    digests: set[str]
    problems: list[str]


def render_conversations(
    benchmark: str, known_models: Collection[str], ledger: Ledger, paths: DataPaths
) -> RenderedConversations:
    """Render the conversations of a benchmark that no other benchmark contains.

    Args:
        benchmark: The name of the benchmark.
        known_models: The names of the models that were loaded before. Each may have read the conversations.
        ledger: The ledger. It contains the models that finished a pass, and the versions of their chat templates.
        paths: The data folder.

    Raises:
        OSError: If the examples of a benchmark are unreadable.
    """
    rendered = RenderedConversations(set(), [])
    shared: set[str] = set()
    conversations = EXAMPLES.empty_table()
    for partition, folder in iterate_partitions(paths, EXAMPLES):
        for file in folder.glob("*.parquet"):
            examples = read_parquet(file)
            if "messages" not in examples.column_names:
                # An earlier version of the program wrote these examples, and they contain no conversations.
                continue
            examples = examples.filter(examples["messages"].is_valid())
            if partition == benchmark:
                conversations = examples
            else:
                shared.update(examples["messages"].to_pylist())
    is_shared = [messages in shared for messages in conversations["messages"].to_pylist()]
    conversations = conversations.filter(pa.array([not value for value in is_shared], pa.bool_()))
    if not conversations.num_rows:
        return rendered
    versions_by_model: dict[str, set[str]] = {name: set() for name in known_models}
    for entry in ledger.entries:
        if entry.table == TOKEN_STATISTICS.name and parse_pair(entry.partition).benchmark == benchmark:
            model = parse_pair(entry.partition).model
            version = entry.upstream.get(build_template_name(model), "")
            versions_by_model.setdefault(model, set()).add(version)
    for name, versions in sorted(versions_by_model.items()):
        problem = _add_rendered_texts(rendered.digests, name, versions, conversations, paths)
        if problem is not None:
            rendered.problems.append(
                f"token statistics of {name} on the conversations of {benchmark}, because {problem}. To remove them: "
                f"corpus-audit forget --model {name}"
            )
    return rendered


def _add_rendered_texts(
    digests: set[str], name: str, versions: Collection[str], conversations: pa.Table, paths: DataPaths
) -> str | None:
    """Add the digests of the conversations for one model, or return the reason why some may be missing."""
    try:
        model = load_tokenized(resolve_model(name, load_models()), paths)
        inputs = build_example_inputs(conversations, model)
    except AuditError as error:
        return f"the chat template of the model cannot be read ({error})"
    texts = inputs.distinct_texts
    digests.update(map(text_sha256, [*texts, *list_derived_texts(texts)]))
    # A search of answers caches rows of the conversation up to each answer.
    for text, spans in zip(inputs.texts, inputs.spans, strict=True):
        digests.update(text_sha256(text[:end]) for _, end in spans or ())
    if len(versions) > 1:
        return "the chat template of the model has changed since the first audit"
    return None
