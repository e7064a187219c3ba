"""Conversion of a GGUF file to a GGUF file with weights in float32, and the same metadata and tokenizer.

llama.cpp then computes with the same numbers as the project's own pass. llama_cpp_server.py runs the server that reads
the file.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

ARCHITECTURE, FILE_TYPE = gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE


def write_float32(source: Path, target: Path) -> None:
    """Dequantise ``source`` into ``target``. Only one tensor at a time is in memory."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch=reader.fields[ARCHITECTURE].contents())
    for field in reader.fields.values():
        if field.name != ARCHITECTURE and not field.name.startswith("GGUF."):
            kind = field.types[0]
            value = int(gguf.LlamaFileType.ALL_F32) if field.name == FILE_TYPE else field.contents()
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), int(np.prod(shape)) * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        writer.write_tensor_data(np.ascontiguousarray(values))
    writer.close()
