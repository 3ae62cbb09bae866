"""Many streams at once, and clients that go away, through both SDKs."""

import sys
import threading
import time
import urllib.request

import anthropic
import openai

URL = sys.argv[1]
chat = openai.OpenAI(base_url=URL + "/v1", api_key="unused", max_retries=0, timeout=120)
messages = anthropic.Anthropic(base_url=URL, api_key="unused", max_retries=0, timeout=120)
MODEL = "luce-nano"
PROMPTS = [f"Count from {i} to {i + 20} in steps of 5" for i in range(8)]


def by_chat(prompt):
    chunks = chat.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], stream=True, temperature=0, reasoning_effort="none"
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def by_messages(prompt):
    stream = messages.messages.stream(
        model=MODEL,
        max_tokens=1000,
        messages=[{"role": "user", "content": prompt}],
        thinking={"type": "disabled"},
        extra_body={"temperature": 0},
    )
    with stream as events:
        return events.get_final_text()


def together():
    alone = {prompt: by_chat(prompt) for prompt in PROMPTS}
    jobs = [(ask, prompt) for ask in (by_chat, by_messages) for prompt in PROMPTS] * 2
    assert len(jobs) == 32
    answers = [None] * len(jobs)

    def work(i):
        ask, prompt = jobs[i]
        answers[i] = ask(prompt)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (_, prompt), answer in zip(jobs, answers):
        assert answer == alone[prompt], (prompt, answer, alone[prompt])


def metric(name):
    text = urllib.request.urlopen(URL + "/metrics", timeout=10).read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(line.split(" ")[1])


def cut():
    """Answers that ran into their limit."""
    text = urllib.request.urlopen(URL + "/metrics", timeout=10).read().decode()
    return [line for line in text.splitlines() if line.startswith('luce_answers_total{finish="length"}')]


def until(what, holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def going_away():
    gone, cut_before = metric("luce_disconnects_total"), cut()
    endless = {"ignore_eos": True, "temperature": 0}
    stream = chat.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], stream=True, max_tokens=4000, extra_body=endless
    )
    next(iter(stream))
    stream.close()
    with messages.messages.stream(
        model=MODEL, max_tokens=4000, messages=[{"role": "user", "content": "Hello"}], extra_body=endless
    ) as events:
        next(iter(events))
    until("both are noticed", lambda: metric("luce_disconnects_total") == gone + 2)
    until("both places are free", lambda: metric("luce_running") == 0)
    assert cut() == cut_before, "an answer came to its end although nobody waited for it"


for check in [together, going_away]:
    check()
    print(check.__name__, "ok", flush=True)
