"""The worker's messages: what is written is read, and nothing else is."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.toolchain import protocol
from hexport.toolchain.protocol import Message, ProtocolError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def encode(*messages: Message) -> bytes:
    stream = io.BytesIO()
    for message in messages:
        protocol.write(stream, message)
    return stream.getvalue()


@given(st.lists(st.tuples(st.text(), st.dictionaries(st.text(), json_values)), max_size=4))
def test_round_trip(contents: list[tuple[str, dict[str, Any]]]) -> None:
    messages = [Message(kind, body) for kind, body in contents]
    stream = io.BytesIO(encode(*messages))
    assert [protocol.read(stream) for _ in messages] == messages
    assert protocol.read(stream) is None


@given(st.integers(min_value=1, max_value=200))
def test_truncated(missing: int) -> None:
    data = encode(Message("job", {"text": "x" * 100}))
    stream = io.BytesIO(data[:-missing] if missing < len(data) else data[:1])
    with pytest.raises(ProtocolError, match="ended inside"):
        protocol.read(stream)


@given(st.binary(min_size=8))
def test_garbage_is_refused(data: bytes) -> None:
    if not data.startswith(b"HXW"):
        with pytest.raises(ProtocolError):
            protocol.read(io.BytesIO(data))


@given(st.data())
def test_mutants_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(encode(Message("result", {"a": [1, 2, {"b": "c"}]})))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = protocol.read(io.BytesIO(bytes(whole)))
    except ProtocolError:
        return
    assert isinstance(message, Message)


def test_another_version() -> None:
    data = bytearray(encode(Message("hello", {})))
    data[3] += 1
    with pytest.raises(ProtocolError, match="protocol version 2, this side speaks 1"):
        protocol.read(io.BytesIO(bytes(data)))


def test_oversized_is_refused_before_it_is_read() -> None:
    header = b"HXW\x01" + (protocol.MAX_BODY + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="over the limit"):
        protocol.read(io.BytesIO(header))


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"kind": 1, "body": {}}', b'{"kind": "x", "body": {}, "z": 1}', b"[" * 100_000]
)
def test_wrong_bodies(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.read(io.BytesIO(b"HXW\x01" + len(body).to_bytes(4, "big") + body))
