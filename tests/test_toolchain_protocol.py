"""Messages that are cut short, too large, of another version or garbage: a typed answer on both sides."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexport.toolchain import Interpreter, Limits, Worker, WorkerError, WorkerProtocolError, protocol
from hexport.toolchain.protocol import Message, ProtocolError
from hexport.toolchain.serving import converse

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
kinds = st.sampled_from(["hello", "job", "result", "error", "refused", ""]) | st.text()
bodies = st.dictionaries(
    st.sampled_from(["number", "job", "arguments", "result", "kind", "text", "pid"]) | st.text(), values
)
messages = st.builds(Message, kinds, bodies)


def job(number: int, name: str, arguments: dict[str, Any]) -> bytes:
    return protocol.encode(Message("job", {"number": number, "job": name, "arguments": arguments}))


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Bytes that a broken, older, newer or hostile other side could send."""
    data = protocol.encode(draw(messages))
    match draw(st.sampled_from(["whole", "short", "version", "length", "flipped", "random"])):
        case "short":
            return data[: draw(st.integers(0, len(data) - 1))]
        case "version":
            return data[:3] + bytes([draw(st.integers(0, 255))]) + data[4:]
        case "length":
            return data[:4] + draw(st.integers(0, 2**32 - 1)).to_bytes(4, "big") + data[8:]
        case "flipped":
            place = draw(st.integers(0, len(data) - 1))
            return data[:place] + bytes([data[place] ^ draw(st.integers(1, 255))]) + data[place + 1 :]
        case "random":
            return draw(st.binary(max_size=200))
    return data


def answers(data: bytes) -> tuple[bool, list[Message]]:
    """What a worker says to these bytes, and whether it took the end for a clean one."""
    replies = io.BytesIO()
    clean = converse({"echo": lambda arguments: arguments}, io.BytesIO(data), replies)
    replies.seek(0)
    said = []
    while (message := protocol.read(replies)) is not None:
        said.append(message)
    return clean, said


@given(st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=3), spoiled())
def test_the_worker_answers_what_it_understands_then_refuses(
    arguments: list[dict[str, Any]], rest: bytes
) -> None:
    clean, said = answers(b"".join(job(n, "echo", one) for n, one in enumerate(arguments)) + rest)
    expected = [Message("result", {"number": n, "result": one}) for n, one in enumerate(arguments)]
    assert said[: len(expected)] == expected
    beyond = said[len(expected) :]
    assert clean == all(message.kind in ("result", "error") for message in beyond)
    if not clean:
        assert beyond[-1].kind == "refused"
        assert beyond[-1].body["text"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (job(1, "echo", {})[:5], "ended inside a header"),
        (job(1, "echo", {"a": 1})[:-1], "ended inside a message"),
        (b"HXW\x02" + job(1, "echo", {})[4:], "protocol version 2, this side speaks 1"),
        (b"HXW\x01\xff\xff\xff\xff", "over the limit"),
        (b"GET / HTTP/1.1\r\n", "not a hexport message"),
        (protocol.encode(Message("hello", {})), "not a job"),
        (
            protocol.encode(Message("job", {"number": 1, "job": "echo", "arguments": [], "more": 1})),
            "not a job",
        ),
    ],
)
def test_the_worker_says_what_was_wrong(data: bytes, said: str) -> None:
    clean, (refusal,) = answers(data)
    assert not clean
    assert said in refusal.body["text"]


def test_results_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_BODY", 1000)
    loop: list[object] = []
    loop.append(loop)
    results: dict[str, Any] = {
        "large": {"text": "x" * 1000},
        "set": {"values": {1, 2}},
        "loop": {"values": loop},
        "good": {"a": 1},
    }
    jobs = {name: lambda _, result=result: result for name, result in results.items()}
    replies = io.BytesIO()
    data = b"".join(job(number, name, {}) for number, name in enumerate(results))
    assert converse(jobs, io.BytesIO(data), replies)
    replies.seek(0)
    for number in range(3):
        reply = protocol.read(replies)
        assert reply is not None
        assert (reply.kind, reply.body["number"], reply.body["kind"]) == ("error", number, "ResultUnsendable")
    assert protocol.read(replies) == Message("result", {"number": 3, "result": {"a": 1}})


def test_names_of_files_that_are_no_text_pass() -> None:
    name = os.fsdecode(b"m\xf6del.onnx")
    stream = io.BytesIO(protocol.encode(Message("job", {"path": name})))
    assert protocol.read(stream) == Message("job", {"path": name})


def ended(data: bytes) -> tuple[int, list[Message], str]:
    """How a real worker ends that is sent these bytes, what it said, and what it complained about."""
    command = [sys.executable, "-m", "hexport.environments.jobs"]
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=120)
    stream, said = io.BytesIO(done.stdout), []
    while (message := protocol.read(stream)) is not None:
        said.append(message)
    return done.returncode, said, done.stderr.decode()


@settings(max_examples=12)
@given(spoiled())
def test_a_worker_that_is_sent_nonsense_says_so_and_ends(rest: bytes) -> None:
    """Without a traceback, and with an exit code of its own."""
    code, (hello, first, *others), complaints = ended(job(0, "look", {}) + rest)
    assert (hello.kind, first.kind, complaints) == ("hello", "result", "")
    assert code == (3 if others and others[-1].kind == "refused" else 0)
    clean, expected = answers(rest)
    assert clean == (code == 0)
    assert [other.kind for other in others] == [message.kind for message in expected]


def test_a_worker_that_is_sent_nothing_ends_well() -> None:
    code, said, complaints = ended(b"")
    assert (code, [message.kind for message in said], complaints) == (0, ["hello"], "")


HELLO = protocol.encode(Message("hello", {"python": "3.11.0", "pid": 1}))


def ask_impostor(said: bytes, *, stays: bool, folder: Path) -> dict[str, Any]:
    """The answer to a job of a process that says ``said``, whatever it is asked."""
    (folder / "said").write_bytes(said)
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat '{folder}/said'\n" + ("exec sleep 60\n" if stays else ""))
    script.chmod(0o755)
    impostor = Interpreter("impostor", str(script), "linux-x86_64")
    with Worker("hexport.any", folder / "log", limits=Limits(seconds=0.3), python=impostor) as worker:
        try:
            return worker.call("job", {})
        finally:
            worker.close()
            assert worker._child.process.poll() is not None


@pytest.mark.skipif(sys.platform == "win32", reason="the impostor is a shell script")
@settings(max_examples=40)
@given(spoiled(), st.booleans(), st.booleans())
def test_the_parent_has_the_result_or_a_typed_error(said: bytes, greets: bool, stays: bool) -> None:
    stream = HELLO + said if greets else said
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(WorkerError):
        result = ask_impostor(stream, stays=stays and greets, folder=Path(folder))
        right = protocol.read(io.BytesIO(stream[len(HELLO) :]))
        assert stream.startswith(HELLO)
        assert right == Message("result", {**right.body, "number": 1, "result": result})


RESULT = protocol.encode(Message("result", {"number": 1, "result": {"a": 1}}))


@pytest.mark.skipif(sys.platform == "win32", reason="the impostor is a shell script")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (HELLO + b"HXW\x02" + RESULT[4:], "protocol version 2, this side speaks 1"),
        (HELLO + b"HXW\x01\xff\xff\xff\xff", "over the limit"),
        (HELLO + b"Segmentation fault, or so", "not a hexport message"),
        (HELLO + RESULT.replace(b'"number": 1', b'"number": 7'), "no answer to job number 1"),
        (HELLO + protocol.encode(Message("refused", {"text": "what?"})), "did not understand"),
        (HELLO + HELLO, "no answer to job number 1"),
        (RESULT, "not with a hello"),
        (protocol.encode(Message("hello", {"pid": "many"})), "not with a hello"),
    ],
)
def test_the_parent_says_what_was_wrong(tmp_path: Path, said: bytes, why: str) -> None:
    with pytest.raises(WorkerProtocolError) as caught:
        ask_impostor(said, stays=True, folder=tmp_path)
    assert why in caught.value.why
    assert ask_impostor(HELLO + RESULT, stays=True, folder=tmp_path) == {"a": 1}


@pytest.mark.skipif(sys.platform == "win32", reason="the impostor is a shell script")
def test_a_worker_that_talks_without_end_is_not_listened_to(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(HELLO)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nwhile cat '{tmp_path}/said'; do :; done\n")
    script.chmod(0o755)
    chatty = Interpreter("chatty", str(script), "linux-x86_64")
    with Worker("hexport.any", tmp_path / "log", python=chatty) as worker:
        deadline = time.monotonic() + 60
        while worker._replies.qsize() < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert worker._replies.qsize() == 4  # two too many, that it was so, and the end
        with pytest.raises(WorkerProtocolError):
            worker.call("job", {})


def test_a_job_that_is_too_large_is_never_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker("hexport.environments.jobs", tmp_path / "log") as worker:
        monkeypatch.setattr(protocol, "MAX_BODY", 1000)
        with pytest.raises(WorkerProtocolError, match="cannot be sent") as caught:
            worker.call("look", {"text": "x" * 1000})
    assert "over the limit of 1000" in caught.value.why
    with pytest.raises(ProtocolError):
        protocol.encode(Message("job", {"what": object()}))
