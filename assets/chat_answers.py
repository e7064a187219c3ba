"""The asset ``chat_answers``: how much of a benchmark's documents chat models reproduce."""

from __future__ import annotations

from collections import Counter

from audit_pipeline.extras.chat.asking import AskRunOptions, ask_pair, plan_from_options, read_texts_of_benchmark
from audit_pipeline.extras.chat.chat_client import open_budget
from audit_pipeline.extras.chat.config import load_chat_models
from audit_pipeline.pipeline import stage
from audit_pipeline.store.paths import is_text_output_allowed
from audit_pipeline.tables import CHAT_ANSWERS, CHAT_DOCUMENTS


@stage.audit_asset(
    partitions=("benchmark", "chat_model"),
    deps=["benchmark"],
    tables=[CHAT_DOCUMENTS, CHAT_ANSWERS],
    group="4_findings",
    job=stage.StageJob(
        "ask", "Ask chat models to reproduce passages of the documents of benchmarks.", "chat models asked"
    ),
    checks={
        "every_request_measured": stage.StageCheck(
            "No request was refused, filtered or cut, so every passage has a result."
        )
    },
    options=AskRunOptions,
    lock="chat",
)
def chat_answers(run: stage.StageRun) -> stage.StageResult:
    """Ask a chat model to reproduce passages of a benchmark's documents and of held-out documents.

    Chat models are declared in config/chat_models.yaml. The result is how much of each document the model reproduces.
    Requests can cost money, so they are sent only if you launch the job ask. Answered requests are not repeated.
    """
    benchmark, name = run.partition_names
    options = run.options
    entry = load_chat_models().get_entry(name)
    run.log.info(f"{name}: {entry.recipient_notice}")
    budget = open_budget(entry, options.limits)
    plan = plan_from_options(read_texts_of_benchmark(benchmark, run.paths), entry, run.paths, options)
    keeps_text = is_text_output_allowed()
    report = ask_pair(plan, entry, run.paths, run.run_id, budget, keeps_text=keeps_text, notify=run.log.info)
    if report.fault is not None:
        raise report.fault
    unmeasured = {"requests without a measure": report.unmeasured}
    headlines = [row for row in report.documents if row["is_headline"]]
    reproduced = Counter(row["side"] for row in headlines if row["claim"] == "reproduced")
    values = {
        "new answers": report.new_answer_count,
        **unmeasured,
        "audited documents reproduced in part": reproduced["audited"],
        "held-out documents reproduced in part": reproduced["held_out"],
        "data_version": report.data_version,
    }
    # The report page has the results per document.
    metadata = stage.UiMetadata(len(report.documents), values, page=run.paths.report)
    measured = stage.CheckResult(not report.unmeasured, metadata=stage.UiMetadata(values=unmeasured))
    return stage.StageResult(report.data_version, metadata, {"every_request_measured": measured})
