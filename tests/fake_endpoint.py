"""A server of a tiny model's prompt log-probabilities on the loopback interface, in every dialect, that lies on cue.

What belongs here: the model, the answers as the real servers give them (the forms are those that vLLM 0.32 and
llama-cpp-python 0.3.36 were seen to give, and SGLang's documentation), and answers that mislead as real ones do. What
does not: tests.

    with FakeEndpoint(model, forward) as server:
        server.next = [fault(429, retry_after=1)]       # for the requests to come, one each; then real answers
        server.bend = lambda answer, body: {}           # of every answer from now on
        entry = {"url": server.url, "model": "tiny", "dialect": "vllm"}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch
import transformers
from bad_server import Answer, BadServer, Request
from tiny_models import save_model

from audit_pipeline.models.fingerprint import COUNTING
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.forward import ForwardPass

Json = dict[str, Any]
ROOM = 256


def save_counting_model(folder: Path, *, adds_bos: bool = False) -> Path:
    """A tiny model that has learned to count to 40, behind a start token and without, and nothing else."""
    save_model(folder, adds_bos=adds_bos, max_position_embeddings=ROOM)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    own = tokenizer(COUNTING, add_special_tokens=False)["input_ids"]
    texts = [torch.tensor([start + own]) for start in ([], [tokenizer.bos_token_id])]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(60):
        ids = texts[step % 2]
        optimiser.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    return folder


class FakeEndpoint:
    """The server; a context manager.

    ``best`` is the largest number of best tokens that it gives, ``room`` the length of its context, ``plugin`` whether
    it has the two columns of corpus-audit-vllm. ``takes``: what prompts may be. ``bos``: the start token that it puts
    in front of strings, as llama-cpp-python's does. ``off_by``: how many places later the log-probabilities of a token
    are taken from, in OpenAI's form. ``next`` are answers for the next requests, ``bend`` changes every
    real one.
    """

    def __init__(self, model: TokenizedModel, forward: ForwardPass) -> None:
        self.model, self.forward = model, forward
        self.best = 20
        self.room = ROOM
        self.plugin = False
        self.form: Literal["openai", "llama_cpp"] = "openai"
        self.takes: Sequence[type] = (list, str)
        self.bos: int | None = None
        self.off_by = 0
        self.next: list[Answer] = []
        self.bend: Callable[[Json, Json], Json] = lambda answer, body: answer
        self._server = BadServer()
        self._server.serve_by("/v1/completions", lambda request: self._answer(request, self._completion))
        self._server.serve_by("/generate", lambda request: self._answer(request, self._generated))
        self._server.serve_by("/v1/models", lambda request: _json(self._models()))

    @property
    def url(self) -> str:
        return f"{self._server.url}/v1"

    @property
    def requests(self) -> list[Request]:
        """What has been asked for, but for the list of models."""
        return [one for one in self._server.requests if one.body]

    def bodies(self) -> list[Json]:
        return [json.loads(one.body) for one in self.requests]

    def forget(self) -> None:
        """What has been asked for so far."""
        self._server.requests.clear()

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answer(self, request: Request, make: Callable[[Json], Json | Answer]) -> Answer:
        body = json.loads(request.body)
        if self.next:
            return self.next.pop(0)
        made = make(body)
        return made if isinstance(made, Answer) else _json(self.bend(made, body))

    def _models(self) -> Json:
        return {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": self.room}]}

    def _logprobs(self, ids: Sequence[int]) -> np.ndarray:
        return _table(self.forward.model, tuple(ids))

    def _completion(self, body: Json) -> Json | Answer:
        if body["model"] != "tiny":
            return _refused(404, f"The model `{body['model']}` does not exist.")
        if "prompt_logprobs" in body:
            return self._vllm(body)
        return self._llama_cpp(body) if self.form == "llama_cpp" else self._echo(body)

    def _vllm(self, body: Json) -> Json | Answer:
        [ids], asked = body["prompt"], body["prompt_logprobs"]
        most = len(self.model.tokenizer) if self.best < 0 else self.best
        if asked > most or (asked < 0 <= self.best):
            shown = asked if asked >= 0 else len(self.model.tokenizer)
            return _refused(
                400, f"Requested prompt logprobs of {shown}, which is greater than max allowed: {most} (parameter=…)"
            )
        if len(ids) >= self.room:
            return _refused(
                400,
                f"This model's maximum context length is {self.room} tokens. However, your prompt contains {len(ids)} "
                "input tokens.",
            )
        table = self._logprobs(ids)
        with_moments = self.plugin and asked == 22
        best = 20 if with_moments else table.shape[1] if asked < 0 else asked
        entries: list[Json | None] = [None]
        for row, token in zip(table, ids[1:], strict=False):
            found = {str(token): {"logprob": row[token], "rank": int((row >= row[token]).sum()), "decoded_token": "…"}}
            order = np.argsort(-row, kind="stable")[:best]
            found |= {
                str(one): {"logprob": row[one], "rank": place, "decoded_token": "…"}
                for place, one in enumerate(order.tolist(), 1)
            }
            if with_moments:
                mean = float((np.exp(row) * row).sum())
                std = float(np.sqrt((np.exp(row) * (row - mean) ** 2).sum()))
                found |= {"-1": {"logprob": mean, "rank": 21}, "-2": {"logprob": std, "rank": 22}}
            entries.append(found)
        choice = {"index": 0, "text": "…", "logprobs": None, "prompt_logprobs": entries, "prompt_token_ids": ids}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        return {"choices": [choice], "system_fingerprint": "vllm-0.32.0-0", "usage": usage}

    def _generated(self, body: Json) -> Json:
        ids = body["input_ids"]
        table, best = self._logprobs(ids), body["top_logprobs_num"]
        own = [[None, ids[0], None]]
        tops: list[list[list[Any]] | None] = [None]
        for row, token in zip(table, ids[1:], strict=False):
            own.append([row[token], token, None])
            tops.append([[row[one], one, None] for one in np.argsort(-row, kind="stable")[:best].tolist()])
        meta = {"input_token_logprobs": own, "prompt_tokens": len(ids)}
        return {"text": "…", "meta_info": meta | ({"input_top_logprobs": tops} if best else {})}

    def _read(self, body: Json) -> list[int] | Answer:
        """The ids of a prompt, those of a list given as they are."""
        prompt = body["prompt"]
        if type(prompt) not in self.takes:
            return _refused(500, "2 validation errors")
        if isinstance(prompt, str):
            [one] = self.model.tokenizer.encode([prompt], add_special_tokens=False)
            return [*([] if self.bos is None else [self.bos]), *one.ids]
        return list(prompt[0])

    def _echo(self, body: Json) -> Json | Answer:
        ids = self._read(body)
        if isinstance(ids, Answer):
            return ids
        if body["logprobs"] > self.best:
            return _refused(400, f"logprobs must be less than or equal to {self.best}, and is {body['logprobs']}.")
        table = np.roll(self._logprobs(ids), -self.off_by, axis=0)
        texts = [self.model.tokenizer.decode([one]) for one in [*ids, int(table[-1].argmax())]]
        offsets = np.cumsum([0, *map(len, texts[:-1])]).tolist()
        tops = [None, *(self._by_text(row, one, body) for row, one in zip(table, ids[1:], strict=False)), {}]
        own = [None, *(row[one] for row, one in zip(table, ids[1:], strict=False)), table[-1].max()]
        logprobs = {"tokens": texts, "token_logprobs": own, "top_logprobs": tops, "text_offset": offsets}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        return {"choices": [{"text": "…", "index": 0, "logprobs": logprobs}], "usage": usage}

    def _by_text(self, row: np.ndarray, own: int, body: Json) -> Json:
        best = [*np.argsort(-row, kind="stable")[: body["logprobs"]].tolist(), own]
        return {self.model.tokenizer.decode([one]): row[one] for one in best}

    def _llama_cpp(self, body: Json) -> Json | Answer:
        """As its own code has it: the first token is dropped where it is the start token, and rows are paired with the
        tokens that are left; a start token anywhere is left out; the first entry is null."""
        ids = self._read(body)
        if isinstance(ids, Answer):
            return ids
        table = self._logprobs(ids)
        generated = int(table[-1].argmax())
        start = self.model.start_token_id
        [prompt] = self.model.tokenizer.encode([body["prompt"]], add_special_tokens=False)
        places = [] if self.bos is None else [0]
        places += [begin for begin, _ in prompt.offsets]
        shown = ids[1:] if ids[0] == start else ids
        shown_places = places[1:] if ids[0] == start else places
        if len(shown) < len(ids):
            shown, shown_places = [*shown, generated], [*shown_places, len(body["prompt"])]
        kept = [at for at, one in enumerate(shown) if one != start]
        own = [table[at][shown[at]] for at in kept]
        tops = [self._by_text(table[at], shown[at], body) for at in kept]
        logprobs = {
            "tokens": [self.model.tokenizer.decode([shown[at]]) for at in kept],
            "token_logprobs": [None, *own[1:]],
            "top_logprobs": [None, *tops[1:]],
            "text_offset": [shown_places[at] for at in kept],
        }
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        return {"choices": [{"text": "…", "index": 0, "logprobs": logprobs}], "usage": usage}


@lru_cache(maxsize=128)
def _table(model: torch.nn.Module, ids: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities [tokens, vocabulary]: row t is what is expected of token t + 1. The same few texts are asked
    for by test after test."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    table = torch.log_softmax(logits, dim=1).numpy()
    table.flags.writeable = False
    return table


def _json(content: Json) -> Answer:
    return Answer(json.dumps(content).encode(), media_type="application/json")


def _refused(status: int, message: str) -> Answer:
    content = {"error": {"message": message, "type": "BadRequestError", "code": status}}
    return Answer(json.dumps(content).encode(), media_type="application/json", status=status)
