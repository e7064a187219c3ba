"""Log-probabilities of prompts by vLLM, for the comparison in bench_token_statistics.py.

    PYTHON bench/vllm_prompts.py MODEL_FOLDER IDS.json DTYPE

PYTHON must have vLLM and need not have this project. The script prints "ready" after the model is loaded and a first
run is done. For every line on the standard input, it then scores all prompts with their 20 most likely tokens and
prints the time in seconds.
"""

from __future__ import annotations

import json
import sys
import time

from vllm import LLM, SamplingParams  # type: ignore[import-not-found]
from vllm.inputs import TokensPrompt  # type: ignore[import-not-found]


def main() -> None:
    folder, ids, dtype = sys.argv[1:]
    with open(ids, encoding="utf-8") as file:
        prompts = [TokensPrompt(prompt_token_ids=one) for one in json.load(file)]
    longest = max(len(prompt["prompt_token_ids"]) for prompt in prompts)
    engine = LLM(
        folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=longest + 1,
        enable_prefix_caching=False,
    )
    asked = SamplingParams(prompt_logprobs=20, flat_logprobs=True, detokenize=False, max_tokens=1)

    def time_run() -> float:
        started = time.perf_counter()
        answers = engine.generate(prompts, asked, use_tqdm=False)
        seconds = time.perf_counter() - started
        assert all(len(one.prompt_logprobs) == len(one.prompt_token_ids) for one in answers)
        return seconds

    time_run()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(time_run(), flush=True)


if __name__ == "__main__":
    main()
