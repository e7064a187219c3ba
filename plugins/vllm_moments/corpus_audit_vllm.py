"""A vLLM server gives the mean and the standard deviation of log p with the log-probabilities of a prompt.

The response to a request with ``"prompt_logprobs": 22`` contains the token and the 20 most likely tokens at each
position of the prompt, and two more entries. The ``logprob`` of the entry ``"-1"`` is mu = E_z~p[log p(z)]. The
``logprob`` of the entry ``"-2"`` is sigma = sd_z~p[log p(z)]. Both use natural logarithms and the whole vocabulary.
Other requests are answered as before. The server needs ``--max-logprobs 22`` or more, and
``VLLM_USE_V2_MODEL_RUNNER=0``.

The replaced functions are no public interface of vLLM, so the plug-in checks the version.
"""

from __future__ import annotations

import os
from typing import Any

import torch

VERSIONS = ("0.32.0",)
"""The versions of vLLM that the two columns were compared with a forward pass on."""
ASKED = 22
MEAN_ID = -1
STD_ID = -2
_NAMES = {MEAN_ID: "mean", STD_ID: "std"}
_ROWS = 256


def register() -> None:
    """Replace functions of vLLM. vLLM calls this function once in each process of a server, at its start.

    Raises:
        RuntimeError: If the version of vLLM is not supported, or if vLLM may use its second model runner. The error
            stops the server.
    """
    import vllm  # type: ignore[import-not-found]  # noqa: PLC0415

    if vllm.__version__ not in VERSIONS:
        raise RuntimeError(
            f"corpus-audit-vllm does not support vLLM {vllm.__version__}. Install vLLM {' or '.join(VERSIONS)}, or "
            "uninstall corpus-audit-vllm. Without it, the server returns no mean and no standard deviation."
        )
    if os.environ.get("VLLM_USE_V2_MODEL_RUNNER") != "0":
        raise RuntimeError("corpus-audit-vllm requires vLLM's first model runner. Set VLLM_USE_V2_MODEL_RUNNER=0.")

    from vllm.v1.engine import logprobs  # type: ignore[import-not-found]  # noqa: PLC0415
    from vllm.v1.sample.sampler import Sampler  # type: ignore[import-not-found]  # noqa: PLC0415

    if getattr(Sampler.gather_logprobs, "gives_moments", False):
        return
    Sampler.gather_logprobs = staticmethod(_gathering(Sampler.gather_logprobs))
    logprobs.convert_ids_list_to_tokens = _naming(logprobs.convert_ids_list_to_tokens)


def _gathering(gather: Any) -> Any:
    def gather_with_moments(logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor) -> Any:
        if num_logprobs != ASKED:
            return gather(logprobs, num_logprobs, token_ids)
        found = gather(logprobs, num_logprobs - 2, token_ids)
        ids, values = found.logprob_token_ids, found.logprobs
        two = torch.tensor([MEAN_ID, STD_ID], dtype=ids.dtype, device=ids.device).expand(len(ids), 2)
        return found._replace(
            logprob_token_ids=torch.cat((ids, two), dim=1),
            logprobs=torch.cat((values, moments(logprobs).to(values.dtype)), dim=1),
        )

    gather_with_moments.gives_moments = True  # type: ignore[attr-defined]
    return gather_with_moments


def moments(logprobs: torch.Tensor) -> torch.Tensor:
    """Compute mean and standard deviation of log p under p, of shape (n_rows, 2).

    A few rows are processed at a time, so that no second tensor of the size of ``logprobs`` is needed. Tokens with
    probability 0 do not count.

    Args:
        logprobs: Log-probabilities of shape (n_rows, vocabulary_size).
    """
    found = []
    for rows in logprobs.split(_ROWS):
        p = rows.exp()
        finite = rows.masked_fill(p == 0, 0.0)
        mean = (p * finite).sum(dim=-1, keepdim=True)
        variance = (p * (finite - mean).square()).sum(dim=-1, keepdim=True)
        found.append(torch.cat((mean, variance.sqrt()), dim=1))
    return torch.cat(found)


def _naming(convert: Any) -> Any:
    """Return ``convert`` with names for the two negative ids, which tokenizers refuse."""

    def convert_with_moments(tokenizer: Any, token_ids: list[int]) -> list[str]:
        if MEAN_ID not in token_ids:
            return list(convert(tokenizer, token_ids))
        pieces = iter(convert(tokenizer, [token_id for token_id in token_ids if token_id not in _NAMES]))
        return [_NAMES[token_id] if token_id in _NAMES else next(pieces) for token_id in token_ids]

    return convert_with_moments
