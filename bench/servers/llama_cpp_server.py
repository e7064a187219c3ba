"""The embedded default behind llama-cpp-python's server, through the project's client, against the project's own pass.

    python bench/servers/llama_cpp_server.py --python ENVIRONMENT/bin/python

ENVIRONMENT is a virtual environment with the server, which is built from source (a C++ compiler; of llama.cpp's parts
only the library is, 7 minutes on two busy cores):

    CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF
                -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DGGML_NATIVE=OFF"
    pip install --no-binary llama-cpp-python "llama-cpp-python[server]==0.3.36"

The server gets a float32 GGUF file made of the package's, and a key-value cache in float32 (``--type_k 0 --type_v 0``;
in the default's float16 the same texts are up to .012 off). Its start token must be the project's, and be put in front
of every text, else its answers are off by one. Log-probabilities have to be within .01 of the project's own; a text's
first token has none there.
What belongs here: the command line of llama-cpp-python's server. What does not: running and comparing (comparison.py),
the file (float32_gguf.py).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from comparison import NAME, SERVED, compared, own_entry, run, running, served_entry, texts
from float32_gguf import write_float32

from audit_pipeline.models.locate import locate
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.paths import DataPaths

TOLERANCE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="Python of the server's environment.")
    parser.add_argument("--port", type=int, default=8011)
    given = parser.parse_args()
    models, all_texts = DataPaths.from_environment(), texts()
    own = run(own_entry(), all_texts, models)
    start = load_tokenized(own_entry(), models).start_token_id
    source = locate(own_entry()).gguf
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
        with running(command, url, {}, Path(tempfile.gettempdir()) / "llama_cpp_server.log"):
            served = run(served_entry(endpoint), all_texts)
    if not compared(own, served, all_texts, {"logprob": TOLERANCE}):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
