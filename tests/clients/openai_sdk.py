"""OpenAI's SDK against a server with luce-nano: chat, streams, reasoning, tools, the Responses API, forms, errors."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0, timeout=60)
MODEL = "luce-nano"
SUM = [{"role": "user", "content": "What is 2 plus 3?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "translate_text",
            "description": "Translate a text.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "target_language": {"type": "string"}},
                "required": ["text", "target_language"],
            },
        },
    }
]


def models():
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "luce-actors"


def chat():
    answer = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0, reasoning_effort="none")
    assert answer.choices[0].message.content == "5", answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def reasoning():
    answer = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0)
    assert answer.choices[0].message.content == "5", answer
    assert answer.choices[0].message.reasoning_content, answer
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


def stream():
    whole = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=SUM, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    told = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert told == whole.choices[0].message.reasoning_content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(model=MODEL, messages=SUM, temperature=0) as helper:
        for _ in helper:
            pass
        assert helper.get_final_completion().choices[0].message.content == whole.choices[0].message.content


def tools():
    messages = [{"role": "user", "content": 'How do you say "owl" in Dutch?'}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, temperature=0)
    assert answer.choices[0].finish_reason == "tool_calls", answer
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "translate_text"
    assert json.loads(call.function.arguments) == {"text": "owl", "target_language": "Dutch"}
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"translation": "uil"}'})
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, temperature=0)
    assert answer.choices[0].finish_reason == "stop" and "uil" in answer.choices[0].message.content, answer


def responses():
    whole = client.responses.create(model=MODEL, input="What is 2 plus 3?", temperature=0)
    assert whole.status == "completed" and whole.output_text == "5", whole
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    with client.responses.stream(model=MODEL, input="What is 2 plus 3?", temperature=0) as helper:
        kinds = [event.type for event in helper]
        final = helper.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert final.output_text == whole.output_text
    counted = client.responses.input_tokens.count(model=MODEL, input="What is 2 plus 3?")
    assert counted.input_tokens == whole.usage.input_tokens, counted


def form():
    schema = {
        "type": "object",
        "properties": {"animal": {"type": "string", "maxLength": 12}, "legs": {"type": "integer", "minimum": 0, "maximum": 8}},
        "required": ["animal", "legs"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Name an animal and its legs."}],
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}},
        reasoning_effort="none",
        max_tokens=200,
        seed=1,
    )
    assert answer.choices[0].finish_reason == "stop", answer
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"animal", "legs"} and 0 <= value["legs"] <= 8 and len(value["animal"]) <= 12, value


def errors():
    def raised(kind, **more):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": SUM, **more})
        except kind as error:
            return error
        raise AssertionError(f"{more} is no {kind}")

    assert raised(openai.BadRequestError, temperature=9).param == "temperature"
    error = raised(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 6000}])
    assert error.code == "context_length_exceeded" and "maximum context length is 4096" in error.message
    assert error.request_id.startswith("req_")
    try:
        client.models.retrieve("gpt-99")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    else:
        raise AssertionError("gpt-99 is served")
    try:
        client.embeddings.create(model=MODEL, input="x")
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("embeddings are served")


for check in [models, chat, reasoning, stream, tools, responses, form, errors]:
    check()
    print(check.__name__, "ok", flush=True)
