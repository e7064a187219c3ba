"""Chat templates: where they are read, which tokens of a conversation are answers, and rows that they refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_models import save_model, tokenized

from audit_pipeline.errors import ModelError
from audit_pipeline.models.chat_template import ChatTemplate, build_renderer, render_conversation
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import Message, render_plainly
from audit_pipeline.readers.text_rows import UnusableRowError
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


def test_an_answer_that_also_stands_in_its_prompt_is_found_after_it() -> None:
    messages = [Message("user", "assistant 4"), Message("assistant", "assistant")]
    rendered = render_conversation(ChatTemplate(CHATML, {}), messages)
    assert rendered.answers == ((len(rendered.text) - len("assistant"), len(rendered.text)),)


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        (INST, [Message("system", "Be brief."), *CHAT], "refuses the conversation: Only user and assistant roles"),
        ("{{ messages | length }}" + CHATML, CHAT, "changes the messages before message 2"),
        (
            "{% for message in messages[1:] %}{{ message['content'] }}|{% endfor %}",
            CHAT[:2],
            "drops or changes message 1 (role user)",
        ),
        (CHATML.replace("message['content']", "message['content'] | upper"), CHAT, "drops or changes message 1"),
        ("{{ messages[0]['missing']['deeper'] }}", CHAT, "refuses the conversation"),
        ("{{ ''.__class__.__mro__ }}", CHAT, "refuses the conversation"),
    ],
)
def test_a_template_that_refuses_or_changes_a_text_is_named(
    template: str, messages: list[Message], reason: str
) -> None:
    with pytest.raises(UnusableRowError) as error:
        answers(template, messages)
    assert reason in str(error.value)


def test_the_date_in_a_template_is_the_same_every_day() -> None:
    dated = "{{ strftime_now('%d %b %Y') }} {{ date_string }} " + CHATML
    text, _ = answers(dated, CHAT[:2])
    assert text.startswith("26 Jul 2024 26 Jul 2024 <|im_start|>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "llama")


def set_template(folder: Path, template: object) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))


def load(folder: Path, **changes: str) -> TokenizedModel:
    return tokenized(folder, folder.parent / "data", **changes)


def test_a_template_is_read_from_the_files_of_the_model(folder: Path) -> None:
    assert build_renderer(load(folder)) is render_plainly
    set_template(folder, CHATML)
    assert "<|im_start|>" in build_renderer(load(folder))(CHAT).text
    set_template(folder, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}])
    assert "<|im_start|>" in build_renderer(load(folder))(CHAT).text
    (folder / "chat_template.jinja").write_text(INST)
    assert build_renderer(load(folder))(CHAT).text.startswith("[INST]"), "the start token is added anyway"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"the chat template in .* cannot be read"):
        build_renderer(load(folder))


def test_the_scored_tokens_by_hand(folder: Path) -> None:
    set_template(folder, INST)
    model = load(folder)
    rendered = build_renderer(model)(CHAT[:2])
    [encoded] = encode(model, [rendered.text])
    [(start, end)] = rendered.answers
    ends = encoded.char_end
    scored = [model.tokenizer.decode([token]) for token in encoded.token_id[(ends > start) & (ends <= end)]]
    assert "".join(scored).strip() == "Blue."


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
    rendered = build_renderer(model)(CHAT)
    assert expected == rendered.text + "<|im_end|>\n"
    assert [rendered.text[start:end] for start, end in rendered.answers] == ["Blue.", " 4 "]
