"""The functions score and evaluate: texts and tables of your own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from audit_pipeline.pipeline.options import ScoreOptions
from audit_pipeline.readers.conversations import ScoredPart
from audit_pipeline.statistics.claims import Design
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.token_statistics.engine_choice import EngineName
from corpus_audit.audits import AuditFindings, progress_on_stderr, read_audit_findings, warn, without_library_bars

if TYPE_CHECKING:
    import pyarrow as pa


def score(
    texts: Iterable[str] | PathLike[str],
    *,
    model: str | PathLike[str],
    detectors: Sequence[str] | None = None,
    grid: bool = False,
    parameters: Mapping[str, Mapping[str, bool | int | float | str]] | None = None,
    text_column: str | None = None,
    scored_part: ScoredPart | None = None,
    label_column: str = "label",
    id_column: str | None = None,
    start_token: Literal["always", "tokenizer"] | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    reference_model: str | None = None,
    frequencies: PathLike[str] | None = None,
    prefix_texts: PathLike[str] | None = None,
    prefix_members: PathLike[str] | None = None,
    seed: int = 0,
    device: str | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    engine: EngineName | None = None,
    workers: int | None = None,
    verbose: bool = False,
) -> pa.Table:
    """Score texts with membership detectors, as the command `corpus-audit score` does.

    The model is run once per text, and its results are cached. If you score the same texts again, or with another
    detector, the model is usually not run again.

    Parameters
    ----------
    texts : Iterable[str] or PathLike[str]
        The texts, or a file or folder of texts as a ``pathlib.Path``. docs/input-files.md lists the formats, such as
        .jsonl, .csv, .parquet and .txt.
    model : str or PathLike[str]
        The model: a name in config/models.yaml, a hub id, or a path.
    detectors : Sequence[str], optional
        Names of detectors. `corpus-audit detectors` lists them. Default: all except those that run on request only.
    grid : bool, default False
        Score with all values of each detector's parameters that `corpus-audit detectors NAME` lists for --grid, not
        only with the default values.
    parameters : Mapping[str, Mapping[str, bool | int | float | str]], optional
        Parameters by detector, as in ``{"min_k": {"k": 0.3}}``. With ``grid``, only the other parameters vary.
    text_column : str, optional
        Column of the text. Default: text, else input, else the only column.
    scored_part : {"response", "last_response", "all"}, optional
        Part of a conversation to score: its answers, the last answer, or all of the text. Conversations are in the
        column messages, in prompt and response (or completion), or in question and answer. The model's chat template
        makes the text. Default: response if the file has such columns and no text column.
    label_column : str, default 'label'
        Column of the label: 1 for members, 0 for non-members, empty if unknown. A file without it is scored without
        labels.
    id_column : str, optional
        Column with your own ids of the texts, which are copied into the result. Default: id, if the column exists.
    start_token : {"always", "tokenizer"}, optional
        Add a start token before each text: always, or only if the tokenizer adds it. Default: start_token_policy in the
        model's entry.
    dtype : {"float32", "bfloat16", "float16"}, optional
        Precision of the forward pass. Default: dtype in the model's entry.
    reference_model : str, optional
        The model that the detectors reference and error_zone compare with. Default: reference_model in the model's
        entry, else the model before fine-tuning: its base, or the first checkpoint of its series.
    frequencies : PathLike[str], optional
        Token frequencies for dc_pdd: a table that `corpus-audit count` wrote.
    prefix_texts : PathLike[str], optional
        A file of known non-members, each from a different document. The first texts are the prefix of recall and
        con_recall. Other texts of these documents get no score. The first 32 words identify a document.
    prefix_members : PathLike[str], optional
        A file of known members, in the format of ``prefix_texts``. They are the second prefix of con_recall.
    seed : int, default 0
        Seed of the neighbours: randomly changed copies of a text that some detectors compare it with.
    device : str, optional
        Device of the model, "cpu" or "cuda". Default: cuda if it is available.
    max_tokens : int, optional
        Maximum number of tokens sent to models on servers, including a reference model. At the limit, the function
        raises an error, and finished work is kept. Default: no limit.
    max_cost : float, optional
        Maximum cost of the tokens sent to servers, in the currency of the prices (price_per_million) in the models'
        entries. Default: no limit.
    engine : {"in_process", "ray"}, optional
        Engine of the model: this process, or workers of a Ray cluster (docs/ray.md). Default: in_process.
    workers : int, optional
        Number of Ray workers. Default: one per GPU, or one per node if the cluster has no GPU.
    verbose : bool, default False
        Print steps and progress on standard error.

    Returns
    -------
    pyarrow.Table
        One row per text, detector and setting. The command writes the same table. Its columns:

        - ``example_index``, the position of the text, from 0,
        - ``detector``, and ``parameters`` as JSON,
        - ``score``, which is higher if the text is more likely a member,
        - ``status`` (``ok``, ``not_applicable`` or ``failed``) with its ``reason``,
        - ``label`` and ``group`` as in the file,
        - ``sha256`` of the text,
        - ``id`` of the text in the file,
        - ``scored_part`` of conversations.

    Raises
    ------
    AuditError
        If you can correct the cause: an unknown model, detector or column, or no usable text.

    Warns
    -----
    UserWarning
        For texts that cannot be used, which get no rows, and for wrong entries of the configuration.

    Examples
    --------
    >>> table = score(["It was the best of times."], model="smollm2-135m", detectors=["loss"])
    >>> table.column("status").to_pylist()
    ['ok']
    """
    if isinstance(texts, str):
        raise TypeError("texts is a single str. Give a list of texts, or the pathlib.Path of a file.")
    options = ScoreOptions(
        model=model,
        detectors=detectors,
        grid=grid,
        parameters=parameters,
        text_column=text_column,
        scored_part=scored_part,
        label_column=label_column,
        id_column=id_column,
        start_token=start_token,
        dtype=dtype,
        reference_model=reference_model,
        frequencies=frequencies,
        prefix_texts=prefix_texts,
        prefix_members=prefix_members,
        seed=seed,
        device=device,
        max_tokens=max_tokens,
        max_cost=max_cost,
        engine=engine,
        workers=workers,
    )
    # Imports stand inside the functions, so that `import corpus_audit` is fast.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415
    from audit_pipeline.pipeline.audit_requests import build_scoring_request, score_texts  # noqa: PLC0415
    from audit_pipeline.pipeline.console import print_step  # noqa: PLC0415
    from audit_pipeline.pipeline.progress import progress_bar  # noqa: PLC0415
    from audit_pipeline.readers.formats import build_text_stream, open_scored_texts  # noqa: PLC0415
    from audit_pipeline.scoring.file import GROUP, ProgressListener  # noqa: PLC0415
    from audit_pipeline.store.paths import DataPaths, require_writable  # noqa: PLC0415

    paths = DataPaths.from_environment()
    require_writable(paths.root)
    models = load_models()
    if isinstance(texts, PathLike):
        stream = open_scored_texts(Path(texts), text_column, scored_part, [GROUP])
    else:
        if scored_part is not None:
            raise TypeError("scored_part requires the pathlib.Path of a file with conversations, not a list of texts.")
        stream = build_text_stream(list(texts))
    request = build_scoring_request(options, stream.rows.file.path)
    with (
        progress_on_stderr(verbose),
        nullcontext() if verbose else without_library_bars(),
        tempfile.TemporaryDirectory() as folder,
        progress_bar(str(model)) as on_progress,
    ):
        out = Path(folder, "scores.parquet")
        listener = ProgressListener(print_step, on_progress)
        result = score_texts(request, resolve_model(str(model), models), stream, out, paths, listener)
        table = pq.read_table(out, memory_map=False)
    warn(models.problems)
    warn(f"skipped {row.location}: {row.reason}" for row in result.skipped.first)
    return table


class ArrowTable(Protocol):
    """A table in memory: a table of pyarrow, or a data frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as Arrow's stream of record batches."""


def evaluate(
    scores: ArrowTable | PathLike[str],
    texts: PathLike[str] | None = None,
    text_column: str | None = None,
    out: PathLike[str] | None = None,
    model: str = "a model",
    benchmark: str | None = None,
    design: Design | None = None,
    headline: str | None = None,
    language: str = "en",
    calibration: float = 0.5,
    seed: int = 0,
    no_text: bool = False,
) -> AuditFindings:
    """Evaluate a table of scores, and write findings and a report, as the command `corpus-audit evaluate` does.

    No model is run.

    Parameters
    ----------
    scores : ArrowTable or PathLike[str]
        The table that ``score`` returned, another ``pyarrow.Table`` or data frame, or the path of a file. Its columns
        are score and label. The columns group, detector and text are used if present. A table in memory is stored in
        the folder of the findings.
    texts : PathLike[str], optional
        The file that was scored. The blind control needs its texts, which a table of ``score`` does not contain. Texts
        are matched by their sha256.
    text_column : str, optional
        Column of the text in ``texts``. Default: text, else input, else the only column.
    out : PathLike[str], optional
        The folder for warehouse and report. Default: FILE_findings.
    model : str, default 'a model'
        Model name written to the findings.
    benchmark : str, optional
        Benchmark name written to the findings. Default: the file's name, or "scores" for a table in memory.
    design : {"temporal", "exchangeable", "randomised", "selected", "unstated", "unlabelled"}, optional
        How members and non-members were chosen. Default: unstated, or unlabelled if no text is a member.
    headline : str, optional
        The headline detector, named before any result is seen. Default: the first of min_k_plus_plus,
        min_k and loss that has scores, otherwise the only detector. With several other detectors, there is no headline.
    language : str, default 'en'
        Language of the texts, as ISO 639-1.
    calibration : float, default 0.5
        Share of the labelled groups that is used to choose thresholds.
    seed : int, default 0
        Seed for choosing the calibration groups.
    no_text : bool, default False
        Quote no audited text in the report and the warehouse.

    Returns
    -------
    AuditFindings
        The findings, the answer in words, and the path of the report.

    Raises
    ------
    AuditError
        If you can correct the cause: an unusable table, or a table with nothing to compare.

    Warns
    -----
    UserWarning
        For skipped rows, and for assumptions about the table.

    Examples
    --------
    >>> texts = Path("texts.jsonl")
    >>> findings = evaluate(score(texts, model="smollm2-135m"), texts=texts, headline="min_k_plus_plus")
    >>> findings.comparisons.to_pandas()
    """
    # Imports stand inside the functions, so that `import corpus_audit` is fast.
    from audit_pipeline.pipeline.evaluate_file import evaluate_file, write_scores_file  # noqa: PLC0415
    from audit_pipeline.store.paths import to_path_segment  # noqa: PLC0415

    options = EvaluateOptions(
        scores=Path(),
        texts=_to_path(texts),
        text_column=text_column,
        out=_to_path(out),
        model=model,
        benchmark=benchmark,
        design=design,
        headline=headline,
        language=language,
        calibration=calibration,
        seed=seed,
        no_text=no_text,
    )
    if isinstance(scores, str | PathLike):
        options = replace(options, scores=Path(scores))
    else:
        table = _to_arrow(scores)
        name = benchmark or "scores"
        folder = options.out or Path(f"{to_path_segment(name)}_findings")
        options = replace(options, benchmark=name, out=folder, scores=folder / "scores.parquet")
        options = replace(options, scores=write_scores_file(table, options))
    result = evaluate_file(options)
    warn(f"skipped {row.location}: {row.reason}" for row in result.external_scores.skipped)
    warn(result.external_scores.notes)
    return read_audit_findings(
        result.pair.model, [result.pair.model], (result.pair.benchmark,), result.paths.warehouse, result.report
    )


def _to_path(path: PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


def _to_arrow(scores: ArrowTable) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(scores, pa.Table):
        return scores
    if hasattr(scores, "__arrow_c_stream__"):
        return pa.table(scores)
    raise TypeError(f"scores is a {type(scores).__name__}. Give a table, or the path of a file.")
