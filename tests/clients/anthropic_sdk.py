"""Anthropic's SDK against a server with luce-nano: messages, streams, thinking, tools, counts, errors."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0, timeout=60)
MODEL = "luce-nano"
SUM = [{"role": "user", "content": "What is 2 plus 3?"}]
# The SDK's typed arguments have no temperature.
GREEDY = {"temperature": 0}
OFF = {"type": "disabled"}


def models():
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).display_name == MODEL


def messages():
    answer = client.messages.create(model=MODEL, max_tokens=100, messages=SUM, thinking=OFF, extra_body=GREEDY)
    (block,) = answer.content
    assert (block.type, block.text, answer.stop_reason) == ("text", "5", "end_turn"), answer
    answer = client.messages.create(model=MODEL, max_tokens=1, messages=SUM, extra_body=GREEDY)
    assert answer.stop_reason == "max_tokens", answer
    answer = client.messages.create(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Count from 5 to 25 in steps of 5"}],
        stop_sequences=["15"], thinking=OFF, extra_body=GREEDY,
    )
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "15"), answer
    assert answer.content[0].text == "5, 10, ", answer


def thinking():
    answer = client.messages.create(
        model=MODEL, max_tokens=500, messages=SUM, thinking={"type": "adaptive"}, extra_body=GREEDY
    )
    assert [block.type for block in answer.content] == ["thinking", "text"], answer
    assert answer.content[0].thinking and answer.content[0].signature and answer.content[1].text == "5"
    hidden = client.messages.create(
        model=MODEL, max_tokens=500, messages=SUM, thinking={"type": "adaptive", "display": "omitted"}, extra_body=GREEDY
    )
    assert hidden.content[0].thinking == "" and hidden.content[0].signature == answer.content[0].signature
    # What was hidden comes back in its signature: the next prompt is as long as with the text.
    turn = lambda content: [*SUM, {"role": "assistant", "content": content}, {"role": "user", "content": "Sure?"}]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    counts = [
        client.messages.count_tokens(model=MODEL, messages=turn(blocks), tools=tools, thinking={"type": "adaptive"})
        for blocks in ([b.model_dump() for b in answer.content], [b.model_dump() for b in hidden.content])
    ]
    assert counts[0].input_tokens == counts[1].input_tokens, counts


def stream():
    whole = client.messages.create(model=MODEL, max_tokens=500, messages=SUM, extra_body=GREEDY)
    with client.messages.stream(model=MODEL, max_tokens=500, messages=SUM, extra_body=GREEDY) as helper:
        kinds = [event.type for event in helper]
        final = helper.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    assert [block.model_dump() for block in final.content] == [block.model_dump() for block in whole.content]
    assert final.usage.output_tokens == whole.usage.output_tokens and final.stop_reason == "end_turn"


def count():
    counted = client.messages.count_tokens(model=MODEL, messages=SUM)
    answer = client.messages.create(model=MODEL, max_tokens=1, messages=SUM)
    usage = answer.usage
    total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert counted.input_tokens == total, (counted, usage)


def tools():
    asked = []

    @anthropic.beta_tool
    def translate_text(text: str, target_language: str) -> str:
        """Translate a text."""
        asked.append((text, target_language))
        return '{"translation": "uil"}'

    # It asks the server to keep the conversation first; refused, it sends the whole history.
    runner = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=500,
        tools=[translate_text],
        messages=[{"role": "user", "content": 'How do you say "owl" in Dutch?'}],
        extra_body=GREEDY,
    )
    final = runner.until_done()
    assert asked == [("owl", "Dutch")], asked
    assert final.stop_reason == "end_turn" and "uil" in final.content[-1].text, final


def errors():
    def raised(kind, **more):
        try:
            client.messages.create(**{"model": MODEL, "max_tokens": 10, "messages": SUM, **more})
        except kind as error:
            assert error.request_id.startswith("req_")
            return error.body["error"]
        raise AssertionError(f"{more} is no {kind}")

    assert raised(anthropic.BadRequestError, max_tokens=0)["type"] == "invalid_request_error"
    long = [{"role": "user", "content": "word " * 6000}]
    error = raised(anthropic.BadRequestError, messages=long)
    assert error["message"] == f"prompt is too long: {error['n_prompt_tokens']} tokens > 4096 maximum", error
    for call in [lambda: client.models.retrieve("claude-99"), lambda: client.messages.batches.retrieve("x")]:
        try:
            call()
        except anthropic.NotFoundError as error:
            assert error.body["error"]["type"] == "not_found_error"
        else:
            raise AssertionError("that is served")


for check in [models, messages, thinking, stream, count, tools, errors]:
    check()
    print(check.__name__, "ok", flush=True)
