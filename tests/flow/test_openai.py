"""The real openai client against baton-engines behind the proxy."""
import openai
import pytest

import cluster as c


@pytest.fixture(scope="module")
def pair(module_clusters):
    return module_clusters()


@pytest.fixture(scope="module")
def client(pair):
    with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % pair.proxy.port, api_key="none", max_retries=0, timeout=30 * c.PATIENCE) as one:
        yield one


MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]


def test_models_are_the_engines_models_once(client):
    assert [m.id for m in client.models.list().data] == ["baton"]


def test_chat_streams_the_same_text_as_a_whole_answer(client):
    whole = client.chat.completions.create(model="baton", messages=MESSAGES, max_tokens=24)
    pieces, usage = [], None
    for chunk in client.chat.completions.create(model="baton", messages=MESSAGES, max_tokens=24, stream=True, stream_options={"include_usage": True}):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(pieces) == whole.choices[0].message.content
    assert len(pieces) > 4 and usage.completion_tokens == whole.usage.completion_tokens == 24
    assert whole.choices[0].finish_reason == "length"


def test_completions_and_max_completion_tokens(client):
    done = client.completions.create(model="baton", prompt="one two three", max_tokens=3)
    assert done.usage.completion_tokens == 3 and done.choices[0].text
    chat = client.chat.completions.create(model="baton", messages=MESSAGES, max_completion_tokens=5)
    assert chat.usage.completion_tokens == 5


def test_several_choices_go_to_decode_alone(client, pair):
    many = client.chat.completions.with_raw_response.create(model="baton", messages=MESSAGES, max_tokens=4, n=3)
    assert many.headers["x-baton-route"] and len(many.parse().choices) == 3


def test_errors_are_openai_errors(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert caught.value.body["message"]
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="baton", messages=MESSAGES, max_tokens=-1)


def test_a_closed_stream_frees_both_engines(client, pair):
    stream = client.chat.completions.create(model="baton", messages=MESSAGES, max_tokens=500, stream=True)
    next(iter(stream))
    stream.close()
    pair.wait_unheld(3)
