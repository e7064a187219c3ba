"""Dialects: requests for log-probabilities of a prompt and their answers, for each kind of server."""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.extras.servers.dialect_interface import ServerDialect
from audit_pipeline.extras.servers.dialects import echo, sglang, vllm
from audit_pipeline.models.config import DialectName

DIALECTS: Mapping[DialectName, ServerDialect] = {
    "vllm": ServerDialect(vllm.build_vllm_request, vllm.parse_vllm_answer),
    "sglang": ServerDialect(sglang.build_sglang_request, sglang.parse_sglang_answer),
    "llama_cpp": ServerDialect(echo.build_echo_request, echo.parse_llama_cpp_answer),
    "completions": ServerDialect(echo.build_echo_request, echo.parse_echo_answer),
}
