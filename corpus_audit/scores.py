"""Scores of texts of one's own.

What belongs here: the function score. What does not: scoring (audit_pipeline/scoring).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from corpus_audit.telling import heard, warn

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
    start_token: Literal["always", "tokenizer"] | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    device: str | None = None,
    reference_model: str | None = None,
    frequencies: PathLike[str] | None = None,
    verbose: bool = False,
) -> pa.Table:
    """Score texts by detectors of membership; as the command `corpus-audit score`.

    The model is run once per text. What was run is cached: the same texts again, or another detector, run no model.

    Parameters
    ----------
    texts : iterable of str, or path
        The texts; or a file or folder of them, as a ``pathlib.Path``: .jsonl, .csv, .parquet, .txt and what else
        docs/input-files.md lists.
    model : str or path
        A name in config/models.yaml, a hub id, a folder with the model's files, or a .gguf file.
    detectors : sequence of str, optional
        Names of detectors. Default: all but those that are computed on request alone.
    grid : bool, default False
        Every setting of each detector's grid, and not only the default.
    parameters : mapping of str to mapping, optional
        Parameters by detector, as in ``{"min_k": {"k": 0.3}}``; with ``grid``, the others are swept.
    text_column : str, optional
        Of a file: the column of the text. Default: ``text``, else ``input``, else the only column.
    start_token : {"always", "tokenizer"}, optional
        Which tokens are scored. Default: as the model's entry says.
    dtype : {"float32", "bfloat16", "float16"}, optional
        Precision of the pass. Default: as the model's entry says.
    device : str, optional
        Where the model runs, ``"cpu"`` or ``"cuda"``. Default: a GPU where there is one.
    reference_model : str, optional
        The second model of the detector ``reference``. Default: as the model's entry says.
    frequencies : path, optional
        Token frequencies for ``dc_pdd``: a table that `corpus-audit count` wrote.
    verbose : bool, default False
        Tell steps and progress on standard error.

    Returns
    -------
    pyarrow.Table
        A row per text, detector and setting, with the columns ``example_index`` (the text's place, from 0),
        ``detector``, ``parameters`` (JSON), ``score`` (higher: more likely a member), ``status`` (``ok``,
        ``not_applicable`` or ``failed``), ``reason``, ``label`` and ``group`` as the file has them, and the text's
        ``sha256``. It holds what the command writes, and fits into memory.

    Raises
    ------
    AuditError
        Where something is wrong that the caller can mend: no such model, detector or column, no usable text.

    Warns
    -----
    UserWarning
        For texts that cannot be used, which have no rows, and for entries of the configuration that are wrong.

    Examples
    --------
    >>> table = score(["It was the best of times."], model="smollm2-135m", detectors=["loss"])
    >>> table.column("status").to_pylist()
    ['ok']
    """
    if isinstance(texts, str):
        raise TypeError("texts is a list of texts, or the pathlib.Path of a file; this is one str")
    # Here and below: `import corpus_audit` answers at once.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from audit_pipeline.catalogue.data_folder import require_writable  # noqa: PLC0415
    from audit_pipeline.catalogue.paths import DataPaths  # noqa: PLC0415
    from audit_pipeline.detectors.registry import select  # noqa: PLC0415
    from audit_pipeline.fetch.read import given_texts, open_texts  # noqa: PLC0415
    from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415
    from audit_pipeline.operate.console import tell_progress, tell_step  # noqa: PLC0415
    from audit_pipeline.operate.progress import file_bar  # noqa: PLC0415
    from audit_pipeline.scoring.asked import ScoringRequest, score_as_asked  # noqa: PLC0415
    from audit_pipeline.scoring.file import ProgressListener  # noqa: PLC0415
    from audit_pipeline.scoring.labelled import GROUP  # noqa: PLC0415

    paths, overrides = DataPaths.from_environment(), parameters or {}
    require_writable(paths.root)
    models = load_models()
    asked = ScoringRequest(
        select(detectors, grid=grid, overrides=overrides),
        named=detectors or (),
        overrides=overrides,
        start_token_policy=start_token,
        dtype=dtype,
        device=device,
        reference_model=reference_model,
        frequencies=None if frequencies is None else Path(frequencies),
    )
    stream = (
        open_texts(Path(texts), text_column, ["label", GROUP])
        if isinstance(texts, PathLike)
        else given_texts(list(texts))
    )
    with heard(verbose), tempfile.TemporaryDirectory() as folder, file_bar(str(model)) as on_progress:
        out = Path(folder, "scores.parquet")
        listener = ProgressListener(tell_step, tell_progress, on_progress)
        done = score_as_asked(asked, resolve_model(str(model), models), stream, out, paths, listener)
        table = pq.read_table(out, memory_map=False)
    warn(models.problems)
    warn(f"skipped {row.location}: {row.reason}" for row in done.skipped.first)
    return table
