"""Conversion of a model's files into files that load quickly: its tokenizer, and the weights of a .gguf.

The metadata of a .gguf show if it holds a whole model. They also name the rule by which its tokenizer splits texts into
pieces before bytes are merged. Names and patterns of the rules come from llama.cpp (src/llama-vocab.cpp). If a model's
tokenizer.json has an equivalent pattern, its spelling is used. Models with unsupported rules are refused. Unsupported
are rules that are not regular expressions (kimi-k2, afmoe, superbpe), rules without byte-level BPE, and rules with long
lists of letters (deepseek-llm).

The tokenizer of a folder is its unchanged tokenizer.json, or else a tokenizer that transformers builds.
"""

from __future__ import annotations

import functools
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.integrations.gguf import read_gguf_metadata

from audit_pipeline.errors import ModelError, OtherTokenizerWarning
from audit_pipeline.models.converted_files import (
    TOKENIZER_FILE,
    StoredTokenizer,
    TextTokenizer,
    store_folder,
    store_tokenizer,
)
from audit_pipeline.models.fingerprint import TEXTS
from audit_pipeline.models.locate import LocatedModel
from audit_pipeline.models.model_checks import (
    build_read_error,
    require_causal,
    require_known_architecture,
    silence_transformers,
)
from audit_pipeline.store.files import read_json

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _build_cased_pattern(contractions: str, digits: str) -> str:
    cases = (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
    word_patterns = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{case}{contractions}" for case in cases)
    return rf"{word_patterns}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"


@dataclass(frozen=True)
class SplitRule:
    """A rule by which a tokenizer splits texts into pieces before it merges bytes to tokens.

    Attributes:
        patterns: Regular expressions, applied in order. Matches and the text between them become pieces.
        ignore_merges: True if a piece that is in the vocabulary becomes one token without merges.
        adds_start_token: True if the tokenizer adds a start token, unless the .gguf states otherwise.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_start_token: bool = False


_LLAMA3 = SplitRule((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}",))
_QWEN2 = SplitRule((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SIGNS}|{_BLANKS}",))
_QWEN35 = SplitRule(
    (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}",
    )
)
_DEEPSEEK3 = SplitRule(
    (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}",
    )
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

_NAMES: Mapping[SplitRule, str] = {
    SplitRule((_GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
    SplitRule((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    replace(_LLAMA3, ignore_merges=True, adds_start_token=True): (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    _LLAMA3: "dbrx smaug-bpe glm4 chatglm-bpe",
    _QWEN2: "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
    _QWEN35: "qwen35",
    _DEEPSEEK3: "deepseek-v3 hunyuan-dense joyai-llm",
    SplitRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}")): "deepseek-coder",
    SplitRule((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")): "falcon",
    SplitRule((_build_cased_pattern("", r"\p{N}"),), ignore_merges=True, adds_start_token=True): "tekken",
    SplitRule((_build_cased_pattern(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),)): "gpt-4o llama4 kanana2 minimax-m2",
    SplitRule((_BLOOM,)): "bloom poro-chat gpt3-finnish",
    SplitRule((_BLOOM, r"\p{N}")): "viking",
    SplitRule(
        (rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",),
    ): "seed-coder",
}
SPLIT_RULES: Mapping[str, SplitRule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}


def read_whole_model_metadata(file: Path, name: str) -> Mapping[str, Any]:
    """Return the metadata fields of a .gguf, except long lists, if it holds a whole model.

    Raises:
        ModelError: If the file holds no whole model (an adapter, a projector, a part), or if its split rule is unknown.
    """
    fields: Mapping[str, Any] = read_gguf_metadata(str(file))[0]
    kind = fields.get("general.type", "model")
    parts = fields.get("split.count", 1)
    if kind != "model":
        raise ModelError(
            f"{name} is not a model: general.type of {file} is {kind!r}. Use the .gguf file of the model itself."
        )
    if parts > 1:
        raise ModelError(
            f"{name} is part {fields.get('split.no', 0) + 1} of {parts} ({file}). Join the parts with llama-gguf-split "
            "--merge, and use the joined file."
        )
    rule = fields.get("tokenizer.ggml.pre")
    if fields.get("tokenizer.ggml.model") == "gpt2" and rule not in SPLIT_RULES:
        stated = "contains no rule" if rule is None else f"names the unknown rule {rule!r}"
        raise ModelError(
            f"the tokenizer of {name} is not supported: the field tokenizer.ggml.pre of {file} {stated} for splitting "
            "texts. Use a folder of this model with tokenizer.json and safetensors."
        )
    return fields


def read_gguf_tokenizer(file: Path, fields: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a .gguf. ``fields`` come from :func:`read_whole_model_metadata`."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    backend = tokenizer.backend_tokenizer
    if fields["tokenizer.ggml.model"] == "gpt2":
        rule = SPLIT_RULES[fields["tokenizer.ggml.pre"]]
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        backend.model.ignore_merges = rule.ignore_merges
        if rule.adds_start_token and "tokenizer.ggml.add_bos_token" not in fields:
            tokenizer.add_bos_token = True
    elif isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace) and not fields.get(
        "tokenizer.ggml.add_space_prefix", True
    ):
        # transformers adds a blank before every text and ignores this field of the file.
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


READ_ERRORS = (
    *(OSError, ValueError, KeyError, IndexError, RuntimeError, TypeError, AttributeError, ArithmeticError),
    *(struct.error, SafetensorError, StrictDataclassError),
)
"""Exceptions that transformers raises for files that it cannot read."""

FAMILY_START_TOKENS = {
    "gpt_neox": "<|endoftext|>",
    "qwen2": "<|endoftext|>",
    "opt": "<s>",
    "llama": "<s>",
    "baichuan": "</s>",
}


def convert_tokenizer(located: LocatedModel, store_in: Path | None) -> StoredTokenizer:
    """Read tokenizer and configuration with transformers, and store them in ``store_in`` unless it is None.

    Raises:
        ModelError: If they cannot be read, or if the tokenizer is not a fast tokenizer, which character offsets need.
    """
    tokenizer, config = read_with_transformers(located)
    if not tokenizer.is_fast:
        raise ModelError(
            f"{located.entry.name} has no fast tokenizer (tokenizer.json). Without it, the position of a token in the "
            "text is unknown. Use another model."
        )
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    text = config.get_text_config()
    context_length = _read_context_length(text)
    if context_length is None and located.entry.endpoint is None:
        context_length = _UNLIMITED_CONTEXT
    converted = StoredTokenizer(
        TextTokenizer(backend, list_special_ids(tokenizer)),
        default_start_token=_default_start_token(tokenizer, str(config.model_type)),
        context_length=context_length,
        vocab_size=int(text.vocab_size),
    )
    if store_in is not None:
        store_tokenizer(store_in, converted, None if located.gguf is None else config.save_pretrained)
    return converted


def _read_context_length(config: Any) -> int | None:
    length = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not length or length < 1:
        return None
    return int(length)


def read_with_transformers(located: LocatedModel) -> tuple[PreTrainedTokenizerBase, Any]:
    """Return tokenizer and configuration as transformers reads them.

    Raises:
        ModelError: If transformers cannot read them.
    """
    entry = located.entry
    folder = located.folder
    trusted = entry.trust_remote_code
    source = located.gguf or folder
    try:
        with silence_transformers(), cache_gguf_parsing():
            if located.gguf is not None:
                fields = read_whole_model_metadata(located.gguf, entry.name)
                config = AutoConfig.from_pretrained(folder, gguf_file=located.gguf.name)
                require_causal(config, entry.name)
                if located.own_tokenizer is not None:
                    return read_tokenizer_files(located.own_tokenizer, entry.name), config
                return read_gguf_tokenizer(located.gguf, fields), config
            if entry.endpoint is not None:
                tokenizer = read_tokenizer_files(folder, entry.name, trust_remote_code=trusted)
                return tokenizer, _read_endpoint_config(located, len(tokenizer))
            require_known_architecture(read_json(folder / "config.json"), entry.name)
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
            require_causal(config, entry.name)
            tokenizer_folder = located.own_tokenizer or folder
            return read_tokenizer_files(tokenizer_folder, entry.name, trust_remote_code=trusted), config
    except READ_ERRORS as error:
        raise build_read_error(entry.name, source, "tokenizer or config", error) from error


@contextmanager
def cache_gguf_parsing() -> Iterator[None]:
    """Cache what the package gguf parses inside this block, and hide its progress bar.

    transformers parses a .gguf separately for configuration, tokenizer and weights. It also rebuilds the table of
    tensor names for every module. Together this takes more than half of a conversion. The progress bar of converted
    tensors ignores the switch that hides transformers' other progress bars.
    """
    # This import loads torch, which the rest of this module does not need.
    from transformers import modeling_gguf_pytorch_utils  # noqa: PLC0415

    originals = gguf.GGUFReader, gguf.get_tensor_name_map, modeling_gguf_pytorch_utils.tqdm
    gguf.GGUFReader, gguf.get_tensor_name_map = (functools.cache(function) for function in originals[:2])
    modeling_gguf_pytorch_utils.tqdm = lambda tensors, **_: tensors
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map, modeling_gguf_pytorch_utils.tqdm = originals


def store_weights(model: PreTrainedModel, located: LocatedModel, folder: Path) -> None:
    """Write the weights and configuration of a converted .gguf into ``folder``, as safetensors."""
    if hasattr(model.config, "quantization_config"):
        # The saved weights are dequantised.
        del model.config.quantization_config
    store_folder(
        folder, lambda aside: model.save_pretrained(aside, safe_serialization=True), {"made_of": located.resolved_from}
    )


def _read_endpoint_config(located: LocatedModel, vocab_size: int) -> Any:
    """Return the config.json next to an endpoint's tokenizer. Without it, only the vocabulary size is known.

    The file is read without transformers, which may not support the architecture of a model on a server.
    """
    config = read_json(located.folder / "config.json") if located.has_config else {}
    text = SimpleNamespace(**{"vocab_size": vocab_size, **config, **(config.get("text_config") or {})})
    return SimpleNamespace(model_type=config.get("model_type"), get_text_config=lambda: text)


# Context length in tokens of models without a limit, such as state-space models. It bounds their memory.
_UNLIMITED_CONTEXT = 4096


def _default_start_token(tokenizer: PreTrainedTokenizerBase, model_type: str) -> str | None:
    """Return the family's start token (Zhang et al. 2024) if it is special in the vocabulary, else bos, else eos."""
    family = FAMILY_START_TOKENS.get(model_type)
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    if family is not None and family in special:
        return family
    fallback: str | None = tokenizer.bos_token or tokenizer.eos_token
    return fallback


def read_tokenizer_files(folder: Path, name: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model ``name`` from the files in ``folder``, without padding and truncation.

    If the folder has a tokenizer.json, this file is the tokenizer. transformers rebuilds many classes from vocabulary
    and merges, and drops the file's normaliser and pre-tokenizer. So transformers only provides special tokens, and
    added tokens that the file lacks. A warning is given if the tokenizer that transformers builds splits the probe
    texts into other tokens.

    Raises:
        ValueError: If tokenizer.json cannot be used.
        Exception: If transformers raises it.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    try:
        backend = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        # This class reads the file and adds the tokens of tokenizer_config.json. Without pad_token=None, it would also
        # add a padding token.
        declared = PreTrainedTokenizerFast.from_pretrained(folder, pad_token=None)
        _add_missing_tokens(backend, declared)
        own_ids = _encode_probe_texts(backend)
    except Exception as error:
        # The package tokenizers has no exception classes of its own.
        raise ValueError(f"{TOKENIZER_FILE}: {error}") from error
    try:
        built = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        built_ids = None
        if built.is_fast:
            built_ids = _encode_probe_texts(built.backend_tokenizer)
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise
        # The tokenizer class is unknown, or does not accept this vocabulary.
        built = declared
        built_ids = None
    if built_ids is not None and built_ids != own_ids:
        differing = sum(own != other for own, other in zip(own_ids, built_ids, strict=True))
        warnings.warn(
            OtherTokenizerWarning(
                f"{name}: {TOKENIZER_FILE} is used unchanged. The class {type(built).__name__} of transformers would "
                f"split {differing} of {len(TEXTS)} probe texts into other tokens."
            ),
            stacklevel=2,
        )
    roles: dict[str, Any] = {}
    for role in declared.SPECIAL_TOKENS_ATTRIBUTES:
        token = getattr(declared, role) or getattr(built, role)
        # PreTrainedTokenizerFast would add a token that the vocabulary lacks, so such a role is left out.
        if token and backend.token_to_id(token) is not None:
            roles[role] = token
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=built.model_max_length, **roles)


def list_special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids of tokens that no text contains: tokens with a role such as bos, and tokens marked as special."""
    ids = set(tokenizer.all_special_ids)
    for number, token in tokenizer.added_tokens_decoder.items():
        if token.special:
            ids.add(number)
    return frozenset(ids)


def _add_missing_tokens(backend: Tokenizer, declared: PreTrainedTokenizerBase) -> None:
    """Add the tokens of tokenizer_config.json that tokenizer.json lacks to ``backend``, in the order of their ids."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing = []
    for _, token in sorted(declared.added_tokens_decoder.items()):
        if token.content not in present:
            missing.append(token)
    backend.add_tokens(missing)
    stated: dict[str, int] = {}
    for number, token in declared.init_kwargs["added_tokens_decoder"].items():
        stated[token.content] = number
    for token in missing:
        number = backend.token_to_id(token.content)
        if stated.get(token.content, number) != number:
            raise ValueError(
                f"tokenizer_config.json gives {token.content} the id {stated[token.content]}, but after the tokens of "
                f"{TOKENIZER_FILE} its id would be {number}"
            )


def _encode_probe_texts(backend: Tokenizer) -> list[list[int]]:
    """Return the ids of the probe texts. Afterwards the tokenizer neither pads nor truncates."""
    backend.no_padding()
    backend.no_truncation()
    return [encoding.ids for encoding in backend.encode_batch(list(TEXTS))]
