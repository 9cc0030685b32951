"""Prompts: rendered as transformers renders them, counted alike by API and worker, bounded truly, quoted nowhere."""

from __future__ import annotations

import json
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from registry.base_models import DEFAULT_TEMPLATE
from registry.errors import InvalidField, PromptTooLong
from registry.prompts import PromptFormat, check_counts
from tests.tiny_base import make_tiny_base

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INDENTED = """{{ bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- continue %}
    {%- endif %}
[{{ message['role'] }}] {{ message['content'] | trim | tojson }}
{%- endfor %}
{% if add_generation_prompt %}
[assistant]
{% endif %}
"""
PICKY = "{{ raise_exception('Roles must alternate: ' + messages[0]['content']) }}"
CONVERSATION = [
    {"role": "system", "content": "짧게 답하세요."},
    {"role": "user", "content": "고객 문의를 요약해줘: 주문 48213 상품이 파손되었습니다 🙏🏽 <b>&\"'"},
    {"role": "assistant", "content": "네."},
    {"role": "user", "content": "{{ 7 * 7 }} {% if %} {document}"},
]


def with_template(folder: Path, template: Any, **specials: Any) -> PromptFormat:
    base = make_tiny_base(folder)
    config = json.loads((base / "tokenizer_config.json").read_text()) | {"chat_template": template} | specials
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    return PromptFormat(base, DEFAULT_TEMPLATE)


@pytest.fixture(scope="module")
def tiny(tiny_base_dir: Path) -> PromptFormat:
    return PromptFormat(tiny_base_dir, DEFAULT_TEMPLATE)


@pytest.mark.parametrize("template", [SMOLLM2, INDENTED])
@pytest.mark.parametrize("messages", [CONVERSATION, CONVERSATION[1:2], CONVERSATION[:2]])
def test_tokens_equal_those_of_transformers(tmp_path: Path, template: str, messages: list[dict[str, str]]) -> None:
    from transformers import PreTrainedTokenizerFast

    ours = with_template(tmp_path / "base", template, bos_token="<|im_start|>")
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "base")
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert ours.token_ids({"messages": messages}) == list(expected)


def test_a_document_goes_into_the_bases_template_once_and_unread(tiny_base_dir: Path) -> None:
    template = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Text: {document} (end)"}]
    tiny = PromptFormat(tiny_base_dir, template)
    document = "{document} {{ 7*7 }} {% raw %} \\1 고객"
    assert tiny.messages({"document": document}) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Text: {document} (end)"},
    ]


def test_a_bare_prompt_is_not_dressed_up(tiny: PromptFormat) -> None:
    assert len(tiny.token_ids({"prompt": "고객 😀"})) == len("고객 😀".encode())


def test_a_template_in_its_own_file_comes_first(tmp_path: Path) -> None:
    ours = with_template(tmp_path / "base", "config's")
    (tmp_path / "base" / "chat_template.jinja").write_text("file's: {{ messages[0]['content'] }}")
    assert len(ours.token_ids({"messages": CONVERSATION[:1]})) == len(f"file's: {CONVERSATION[0]['content']}".encode())


def test_of_several_templates_the_default_one_is_used(tmp_path: Path) -> None:
    several = [
        {"name": "tool_use", "template": "no"},
        {"name": "default", "template": "<{{ messages[0]['content'] }}>"},
    ]
    ours = with_template(tmp_path / "base", several)
    assert len(ours.token_ids({"messages": [{"role": "user", "content": "abc"}]})) == 5


def test_a_base_without_template_gets_the_plain_texts(tmp_path: Path) -> None:
    base = make_tiny_base(tmp_path / "base", chat_template=None)
    plain = PromptFormat(base, DEFAULT_TEMPLATE)
    messages = [{"role": "user", "content": "ab"}, {"role": "user", "content": "cd"}]
    assert len(plain.token_ids({"messages": messages})) == len("ab\n\ncd\n\n")


TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=120)
# Long when taken apart or put together again: signs whose canonical or compatible form takes more bytes.
EXPANDING = st.text(st.sampled_from("\u0958\u1d160\ufdfa\ufb2c㎯ﬃ각\u0344" + "a "), max_size=60)


@hypothesis_settings(max_examples=150, deadline=None)
@given(text=st.one_of(TEXTS, EXPANDING, st.lists(st.sampled_from(["<|im_start|>", "<", "|"])).map("".join)))
@pytest.mark.parametrize("normalizer", [None, "NFC", "NFKC", "NFD"])
def test_the_byte_bound_is_never_below_the_count(
    formats: dict[str | None, PromptFormat], normalizer: str | None, text: str
) -> None:
    ours = formats[normalizer]
    for body in ({"document": text}, {"prompt": text}, {"messages": [{"role": "user", "content": text}] * 3}):
        assert len(ours.token_ids(body)) <= ours.byte_bound(body)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, PromptFormat]:
    made: dict[str | None, PromptFormat] = {}
    for name in (None, "NFC", "NFKC", "NFD"):
        base = make_tiny_base(tmp_path_factory.mktemp("normal") / "base")
        if name is not None:
            tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
            tokenizer.normalizer = getattr(normalizers, name)()
            tokenizer.save(str(base / "tokenizer.json"))
        made[name] = PromptFormat(base, DEFAULT_TEMPLATE)
    return made


def test_a_text_that_does_not_fit_is_refused_with_both_counts(tiny: PromptFormat) -> None:
    with pytest.raises(PromptTooLong) as caught:
        tiny.check_fits({"prompt": "x" * 500}, 100, 512)
    assert "500 tokens and max_tokens is 100" in str(caught.value)
    assert "512 tokens" in str(caught.value)


@pytest.mark.parametrize(("length", "max_tokens", "fits"), [(412, 100, True), (413, 100, False), (512, 1, False)])
def test_the_limit_is_exact(tiny: PromptFormat, length: int, max_tokens: int, fits: bool) -> None:
    if fits:
        tiny.check_fits({"prompt": "x" * length}, max_tokens, 512)
    else:
        with pytest.raises(PromptTooLong):
            tiny.check_fits({"prompt": "x" * length}, max_tokens, 512)


def test_the_field_to_change_is_named_only_where_changing_it_helps() -> None:
    with pytest.raises(PromptTooLong) as helped:
        check_counts(400, 200, 512)
    with pytest.raises(PromptTooLong) as helpless:
        check_counts(512, 1, 512)
    assert (helped.value.param, helpless.value.param) == ("max_tokens", None)


@pytest.mark.parametrize(("length", "chosen"), [(10, 256), (300, 212), (511, 1)])
def test_max_tokens_is_the_default_or_what_the_prompt_leaves(tiny: PromptFormat, length: int, chosen: int) -> None:
    assert tiny.choose_max_tokens({"prompt": "x" * length}, 256, 512) == chosen


def test_a_prompt_that_leaves_nothing_is_refused(tiny: PromptFormat) -> None:
    with pytest.raises(PromptTooLong):
        tiny.choose_max_tokens({"prompt": "x" * 512}, 256, 512)


def test_a_refusing_template_is_reported_without_the_tenants_words(tmp_path: Path) -> None:
    picky = with_template(tmp_path / "base", PICKY)
    secret = uuid.uuid4().hex  # made here, so that no source line of the traceback has it
    with pytest.raises(InvalidField) as caught:
        picky.token_ids({"messages": [{"role": "user", "content": secret}]})
    assert caught.value.param == "messages"
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_no_text_is_in_the_refusal_of_a_long_prompt(tiny: PromptFormat) -> None:
    secret = uuid.uuid4().hex
    with pytest.raises(PromptTooLong) as caught:
        tiny.check_fits({"document": secret * 50}, 1, 512)
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_a_templates_code_cannot_reach_out(tmp_path: Path) -> None:
    escape = with_template(tmp_path / "base", "{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(InvalidField):
        escape.token_ids({"messages": CONVERSATION[:1]})
