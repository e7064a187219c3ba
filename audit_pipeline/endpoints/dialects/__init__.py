"""How each kind of server is asked for log-probabilities of a prompt, and what its answers look like.

What belongs here: one module a kind of answer. What does not: sending (client.py), what is sent of a text
(exchange.py), which dialect an entry may name and what it gives (models/config.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.endpoints.dialects import echo, sglang, vllm
from audit_pipeline.endpoints.exchange import Dialect
from audit_pipeline.models.config import Dialect as Name

DIALECTS: Mapping[Name, Dialect] = {
    "vllm": Dialect(vllm.ask, vllm.read),
    "sglang": Dialect(sglang.ask, sglang.read),
    "llama_cpp": Dialect(echo.ask, echo.read_llama_cpp),
    "completions": Dialect(echo.ask, echo.read),
}
