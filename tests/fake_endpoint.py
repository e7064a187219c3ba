"""A server of a tiny model's prompt log-probabilities on the loopback interface, in every dialect.

Its answers have the observed forms of vLLM 0.32 and llama-cpp-python 0.3.36, and the documented form of SGLang. A test
can make it mislead as real servers do.

    with FakeEndpoint(model, forward) as server:
        server.next = [fault(429, retry_after=1)]       # answers to the next requests
        server.bend = lambda answer, body: {}           # changes every real answer
        entry = {"url": server.url, "model": "tiny", "dialect": "vllm"}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from bad_server import Answer, BadServer, Request, json_answer
from tiny_models import save_model

from audit_pipeline.models.fingerprint import COUNTING
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.forward import ForwardPass

Json = dict[str, Any]
ROOM = 256


def save_counting_model(folder: Path, *, adds_bos: bool = False) -> Path:
    """Save a tiny model that has learned to count to 40, with and without a start token, and nothing else."""
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


class FakeEndpoint(BadServer):
    """The server; a context manager. It lists the model at /v1/models and answers POST requests.

    Attributes:
        best: The largest number of best tokens that it returns. -1: all tokens of the vocabulary.
        room: The length of its context.
        plugin: Whether it has the two columns of corpus-audit-vllm.
        form: The form of the completions route.
        takes: The types of prompts that it accepts.
        bos: The start token that it puts before strings, as llama-cpp-python does.
        off_by: Number of positions by which log-probabilities are shifted, in OpenAI's form.
        next: Answers to the next requests.
        bend: A function that changes every real answer. It gets the answer and the request.
    """

    def __init__(self, model: TokenizedModel, forward: ForwardPass) -> None:
        super().__init__(otherwise=self._reply)
        self.url = f"{self.url}/v1"
        self.model = model
        self.forward = forward
        self.best = 20
        self.room = ROOM
        self.plugin = False
        self.form: Literal["openai", "llama_cpp"] = "openai"
        self.takes: Sequence[type] = (list, str)
        self.bos: int | None = None
        self.off_by = 0
        self.next: list[Answer] = []
        self.bend: Callable[[Json, Json], Json] = lambda answer, body: answer

    def bodies(self) -> list[Json]:
        """Return the bodies of the requests so far, without the requests for the list of models."""
        return [json.loads(request.body) for request in self.requests if request.body]

    def _reply(self, request: Request) -> Answer:
        if not request.body:
            entry = {"id": "tiny", "object": "model", "max_model_len": self.room}
            return json_answer({"object": "list", "data": [entry]})
        if self.next:
            return self.next.pop(0)
        body = json.loads(request.body)
        made = self._generated(body) if request.path == "/generate" else self._completion(body)
        return made if isinstance(made, Answer) else json_answer(self.bend(made, body))

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
        table = _compute_table(self.forward.model, tuple(ids))
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
        table, best = _compute_table(self.forward.model, tuple(ids)), body["top_logprobs_num"]
        own = [[None, ids[0], None]]
        tops: list[list[list[Any]] | None] = [None]
        for row, token in zip(table, ids[1:], strict=False):
            own.append([row[token], token, None])
            tops.append([[row[one], one, None] for one in np.argsort(-row, kind="stable")[:best].tolist()])
        meta = {"input_token_logprobs": own, "prompt_tokens": len(ids)}
        return {"text": "…", "meta_info": meta | ({"input_top_logprobs": tops} if best else {})}

    def _read(self, body: Json) -> list[int] | Answer:
        """Return the token ids of a prompt, or a refusal."""
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
        table = np.roll(_compute_table(self.forward.model, tuple(ids)), -self.off_by, axis=0)
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
        """Answer as the code of llama-cpp-python does.

        It drops a start token at the beginning, and pairs the rows with the remaining tokens. It removes all other
        start tokens, too. The first entry is null.
        """
        ids = self._read(body)
        if isinstance(ids, Answer):
            return ids
        table = _compute_table(self.forward.model, tuple(ids))
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
def _compute_table(model: torch.nn.Module, ids: tuple[int, ...]) -> np.ndarray:
    """Compute log-probabilities of shape (n_tokens, n_vocabulary). Row t belongs to token t + 1.

    They are cached, because many tests send the same few texts.
    """
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    table = torch.log_softmax(logits, dim=1).numpy()
    table.flags.writeable = False
    return table


def _refused(status: int, message: str) -> Answer:
    return json_answer({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)
