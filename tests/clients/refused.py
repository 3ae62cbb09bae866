"""What SDKs raise when a server with one place and a queue of one is full, and when it wants a key."""

import sys

import anthropic
import openai

URL, KEY = sys.argv[1:]
HELLO = [{"role": "user", "content": "Hello"}]
MODEL = "luce-nano"


def keys():
    for key in ["wrong", "x" + KEY]:
        try:
            openai.OpenAI(base_url=URL + "/v1", api_key=key, max_retries=0).models.list()
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key"
        else:
            raise AssertionError("any key will do")
        try:
            anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0).models.list()
        except anthropic.AuthenticationError as error:
            assert error.body["error"]["type"] == "authentication_error"
        else:
            raise AssertionError("any key will do")


def full():
    chat = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=60)
    messages = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
    endless = {"ignore_eos": True, "temperature": 0}
    begin = lambda: chat.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, max_tokens=4000, extra_body=endless
    )
    running = begin()
    for chunk in running:
        if getattr(chunk.choices[0].delta, "reasoning_content", None):
            break
    waiting = begin()
    try:
        chat.chat.completions.create(model=MODEL, messages=HELLO)
    except openai.RateLimitError as error:
        assert error.code == "rate_limit_exceeded" and int(error.response.headers["retry-after"]) >= 1
    else:
        raise AssertionError("there is always room")
    try:
        messages.messages.create(model=MODEL, max_tokens=10, messages=HELLO)
    except anthropic.RateLimitError as error:
        assert error.body["error"]["type"] == "rate_limit_error"
    else:
        raise AssertionError("there is always room")
    assert messages.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens > 0
    running.close()
    waiting.close()
    # With retries the SDK waits and gets its answer.
    patient = messages.with_options(max_retries=5)
    assert patient.messages.create(model=MODEL, max_tokens=10, messages=HELLO).content


for check in [keys, full]:
    check()
    print(check.__name__, "ok", flush=True)
