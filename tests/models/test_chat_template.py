"""Chat templates: where they are read, which tokens of a conversation are answers, and rows that they refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tiny_models import save_model, tokenized

from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.errors import ModelError
from audit_pipeline.models.chat_template import (
    ChatTemplate,
    build_renderer,
    read_chat_template,
    render_conversation,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import Message, RenderedConversation
from audit_pipeline.readers.text_rows import UnusableRowError
from audit_pipeline.token_statistics.reductions import MEASURED_NAMES
from audit_pipeline.token_statistics.tokens import encode

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] | trim }} [/INST]"
    "{% elif message['role'] == 'assistant' %} {{ message['content'] | trim }}{{ eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
CHAT = [Message("user", "Red?"), Message("assistant", "Blue."), Message("user", "Green?"), Message("assistant", " 4 ")]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def answers(template: str, messages: Sequence[Message], start_token: str | None = None) -> tuple[str, list[str]]:
    rendered = render_conversation(ChatTemplate(template, TOKENS), messages, start_token=start_token)
    return rendered.text, [rendered.text[start:end] for start, end in rendered.answers]


def test_two_templates_by_hand() -> None:
    assert answers(CHATML, CHAT) == (
        "<|im_start|>user\nRed?<|im_end|>\n<|im_start|>assistant\nBlue.<|im_end|>\n"
        "<|im_start|>user\nGreen?<|im_end|>\n<|im_start|>assistant\n 4 ",
        ["Blue.", " 4 "],
    )
    # This template strips blanks, so the scored answer has none.
    assert answers(INST, CHAT) == ("<s>[INST] Red? [/INST] Blue.</s>[INST] Green? [/INST] 4", ["Blue.", "4"])


def test_a_start_token_that_the_model_gets_anyway_is_not_doubled() -> None:
    text, found = answers(INST, CHAT[:2], start_token="<s>")
    assert (text, found) == ("[INST] Red? [/INST] Blue.", ["Blue."])


# A template whose generation prompt differs from the text before an answer, as that of DeepSeek-R1.
REASONING = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|User|>{{ message['content'] }}"
    "{% else %}<|Assistant|>{{ message['content'].split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
# A template that puts an empty thought before the last answer, as that of Qwen3.
EMPTY_THOUGHT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if loop.last %}<think>\n\n</think>\n\n{{ message['content'].lstrip('\n') }}"
    "{% else %}{{ message['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
)
# A template that puts the system message into the last user message, as that of Mistral.
SYSTEM_LAST = (
    "{% set ns = namespace(system='') %}{% if messages[0]['role'] == 'system' %}"
    "{% set ns.system = messages[0]['content'] + '\n\n' %}{% set messages = messages[1:] %}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "[INST]{% if loop.index0 == messages | length - 2 %}{{ ns.system }}{% endif %}{{ message['content'] }}[/INST]"
    "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "answer", "text"),
    [
        (CHATML, "assistant", "<|im_start|>user\nassistant?<|im_end|>\n<|im_start|>assistant\n"),
        (REASONING, "A", "<s><|User|>assistant?<|Assistant|>"),
        (REASONING, "Assistant", "<s><|User|>assistant?<|Assistant|>"),
        (
            EMPTY_THOUGHT,
            "think",
            "<|im_start|>user\nassistant?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        (INST, "INST", "<s>[INST] assistant? [/INST] "),
    ],
)
def test_an_answer_that_also_stands_in_the_markup_is_where_its_mark_is(template: str, answer: str, text: str) -> None:
    assert answers(template, [Message("user", "assistant?"), Message("assistant", answer)]) == (text + answer, [answer])


def test_blanks_and_the_order_of_messages_may_change() -> None:
    messages = [Message("user", "Q ?"), Message("assistant", "Yes "), Message("user", "Yes , why?")]
    assert answers(INST, [*messages, Message("assistant", "ok Q ? ")])[1] == ["Yes", "ok Q ?"]
    text, found = answers(SYSTEM_LAST, [Message("system", "Be brief."), *CHAT])
    assert text == "[INST]Red?[/INST] Blue.</s>[INST]Be brief.\n\nGreen?[/INST]  4 "
    assert found == ["Blue.", " 4 "]
    assert answers(EMPTY_THOUGHT, [*CHAT[:2], Message("assistant", "\nMore.")])[1] == ["Blue.", "More."]
    assert answers(CHATML, [Message("assistant", "Blue.")])[1] == ["Blue."]


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        (INST, [Message("system", "Be brief."), *CHAT], "refuses the conversation: Only user and assistant roles"),
        (
            "{% for message in messages[1:] %}{{ message['content'] }}|{% endfor %}",
            CHAT[:2],
            "drops message 1 (role user)",
        ),
        (CHATML.replace("message['content']", "message['content'] | upper"), CHAT, "changes message 1 (role user)"),
        (
            CHATML.replace("message['content']", "message['content'] | length | string"),
            CHAT,
            "drops message 1 (role user)",
        ),
        (
            REASONING,
            [CHAT[0], Message("assistant", "Hm.</think>Blue."), *CHAT[2:]],
            "changes message 2 (role assistant) or the text before it, probably because it removes or moves reasoning",
        ),
        ("{{ messages[0]['missing']['deeper'] }}", CHAT, "refuses the conversation"),
        ("{{ ''.__class__.__mro__ }}", CHAT, "refuses the conversation"),
        ("{{ 1 / 0 }}", CHAT, "refuses the conversation: division by zero"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", CHAT, "refuses the conversation"),
    ],
)
def test_a_template_that_refuses_or_changes_a_text_is_named(
    template: str, messages: list[Message], reason: str
) -> None:
    with pytest.raises(UnusableRowError) as error:
        answers(template, messages)
    assert reason in str(error.value)


def test_a_template_that_is_not_jinja_ends_the_run() -> None:
    with pytest.raises(ModelError, match="the chat template of the model is not a valid Jinja2 template"):
        answers("{% if %}", CHAT)


def test_the_date_in_a_template_is_the_same_every_day() -> None:
    dated = "\n{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }} {{ date_string }} " + CHATML
    text, _ = answers(dated, CHAT[:2])
    assert text.startswith("\n26 Jul 2024 2024-07-26 26 Jul 2024 <|im_start|>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "llama")


def set_template(folder: Path, template: object) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))


def load(folder: Path) -> TokenizedModel:
    return tokenized(folder, folder.parent / "data")


def render(folder: Path, messages: Sequence[Message]) -> RenderedConversation:
    renderer = build_renderer(load(folder))
    assert renderer is not None
    return renderer(messages)


def test_a_template_is_read_from_the_files_of_the_model(folder: Path) -> None:
    assert build_renderer(load(folder)) is None
    set_template(folder, CHATML)
    assert "<|im_start|>" in render(folder, CHAT).text
    set_template(folder, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}])
    assert "<|im_start|>" in render(folder, CHAT).text
    (folder / "chat_template.jinja").write_text(INST)
    assert render(folder, CHAT).text.startswith("[INST]"), "the start token is added anyway"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"the chat template .* cannot be read"):
        build_renderer(load(folder))


def test_special_tokens_come_from_the_base_if_an_adapter_has_only_a_template(folder: Path) -> None:
    adapter = folder.parent / "adapter"
    adapter.mkdir()
    (adapter / "chat_template.jinja").write_text(INST)
    template = read_chat_template(replace(load(folder).located, adapter=adapter))
    assert template is not None
    assert (template.source, template.tokens["bos_token"], template.tokens["eos_token"]) == (INST, "<s>", "</s>")


def test_the_scored_tokens_by_hand(folder: Path) -> None:
    set_template(folder, INST)
    model = load(folder)
    rendered = render(folder, [Message("user", "was it"), Message("assistant", "quiet it was")])
    [encoded] = encode(model, [rendered.text])
    columns = {name: [np.zeros(len(encoded.token_id), np.float32)] for name in MEASURED_NAMES}
    row = {"text_sha256": [encoded.text_sha256], "token_id": [encoded.token_id], "char_end": [encoded.char_end]}
    found = StatisticsIndex(pa.table({**columns, **row})).find(rendered.text, rendered.answers)
    assert found is not None
    # In this small vocabulary, the blank before the answer is a token that ends before it.
    assert model.tokenizer.decode(found.token_id.tolist()) == "quiet it was"


@pytest.mark.slow
def test_the_embedded_model_renders_what_transformers_renders() -> None:
    import transformers

    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.store.paths import DataPaths

    model = load_tokenized(resolve_model("smollm2-135m", load_models()), DataPaths.from_environment())
    file = model.located.gguf
    assert file is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    messages = [message._asdict() for message in CHAT]
    expected = tokenizer.apply_chat_template(messages, tokenize=False)
    renderer = build_renderer(model)
    assert renderer is not None
    rendered = renderer(CHAT)
    assert expected == rendered.text + "<|im_end|>\n"
    assert [rendered.text[start:end] for start, end in rendered.answers] == ["Blue.", " 4 "]
