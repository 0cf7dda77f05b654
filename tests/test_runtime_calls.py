"""One call of a session: its own options, arrays of every kind, batches, and closing in the middle of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from hexport.errors import UsageError
from hexport.packaging import manifest as m
from hexport.runtime.batches import join_batch, split_batch
from hexport.runtime.failures import SessionClosed
from hexport.runtime.loading import load
from hexport.runtime.requests import Reception, Request
from hexport.runtime.session import Session
from runtime_packages import answer, attention, decibels, question, rows

X = np.random.default_rng(5).normal(size=(1, 8, 8)).astype(np.float32)


def quietly(package: Any, backend: str, **options: Any) -> Session:
    return load(package, backend, say=lambda line: None, **options)


# ---------------------------------------------------------------- options of one call


@pytest.mark.parametrize("isolate", [False, True])
def test_what_qnn_settles_for_a_session_can_be_asked_of_one_call(isolate: bool, tmp_path: Path) -> None:
    profile = tmp_path / "profile.csv"
    with quietly(rows(), "simulator", isolate=isolate) as session:
        plain = session.run({"x": X})["y"]
        assert not profile.exists()
        for _ in range(2):
            got = session.run({"x": X}, profiling="basic", profiling_file=profile)["y"]
            np.testing.assert_array_equal(got, plain)
        first = profile.read_text("utf-8")
        assert "EXECUTE" in first
        got = session.run({"x": X}, priority="high", performance="burst", rpc_latency=100)["y"]
        np.testing.assert_array_equal(got, plain)
        assert profile.read_text("utf-8") == first, "a call that asked for no profile is in it"
        assert session.describe().runs == {"seq8": 4}
        assert [note for note in session.notes if "further sessions" in note] == list(session.notes)
        assert len(session.notes) == 1


def test_options_of_a_call_are_checked_as_those_of_a_session_are(tmp_path: Path) -> None:
    with quietly(rows(), "simulator") as session:
        for options in (
            {"priority": "hihg"},
            {"profiling": "all"},
            {"profiling_file": tmp_path / "p.csv"},  # without a level nothing is measured
            {"performance": "brust"},
            {"rpc_latency": -1},
        ):
            with pytest.raises(ValueError, match="would not do"):
                session.run({"x": X}, **options)
        assert session.describe().runs == {}
    with quietly(rows(), "cpu") as session, pytest.raises(UsageError, match="no meaning on the CPU"):
        session.run({"x": X}, priority="high")


def test_closing_ends_the_sessions_of_single_calls() -> None:
    session = quietly(rows(), "simulator", isolate=True)
    session.run({"x": X}, priority="low")
    (sibling,) = session._siblings.all()
    (pid,) = sibling.worker_pids()
    session.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(SessionClosed):
        session.run({"x": X}, priority="low")
    with pytest.raises(SessionClosed):
        sibling.run({"x": X})


# ---------------------------------------------------------------- futures


def test_futures_take_the_options_of_a_call() -> None:
    with quietly(rows(), "simulator") as session:
        future = session.run_async({"x": X}, performance="burst")
        np.testing.assert_array_equal(future.result(60)["y"], session.run({"x": X})["y"])
        with pytest.raises(ValueError, match="would not do"):
            session.run_async({"x": X}, performance="brust").result(60)


def test_requests_in_the_queue_of_a_closed_session_have_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is lost, and none is cancelled without a reason."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    session = quietly(rows(), "cpu")
    begun, go_on = threading.Event(), threading.Event()
    run = session._engine.run

    def held(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return run(*arguments)

    monkeypatch.setattr(session._engine, "run", held)
    first, *others = [session.run_async({"x": X}) for _ in range(4)]
    assert begun.wait(60)
    closing = threading.Thread(target=session.close)
    closing.start()
    while not session._closed:
        time.sleep(0.001)
    go_on.set()
    closing.join(60)
    assert first.result(60)["y"].shape == (1, 8, 4)
    for other in others:
        assert isinstance(other.exception(60), SessionClosed)


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("backend", ["cpu", "simulator"])
@pytest.mark.parametrize("isolate", [False, True])
def test_arrays_of_every_kind_in_process_and_in_a_worker(backend: str, isolate: bool) -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    kinds: dict[str, Any] = {
        "a view": np.repeat(X, 2, axis=1)[:, ::2],
        "backwards": X[:, ::-1][:, ::-1],
        "Fortran's order": np.asfortranarray(X),
        "read-only": frozen,
        "another byte order": X.astype(">f4"),
        "another start": np.concatenate([np.zeros(1, np.float32), X.ravel()])[1:].reshape(X.shape),
        "not aligned": np.frombuffer(b"\0" + X.tobytes(), np.float32, offset=1).reshape(X.shape),
        "a subclass": X.view(np.ma.MaskedArray),
        "ONNX Runtime's own, by DLPack": onnxruntime.OrtValue.ortvalue_from_numpy(X),
    }
    with quietly(rows(), backend, isolate=isolate) as session:
        plain = session.run({"x": X})["y"]
        for name, array in kinds.items():
            np.testing.assert_array_equal(session.run({"x": array})["y"], plain, err_msg=name)
        assert session.describe().rebuilt == 0


def test_a_tensor_that_dlpack_does_not_give_is_an_error() -> None:
    class Elsewhere:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it is on another device")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with quietly(rows(), "cpu") as session, pytest.raises(ValueError, match="through DLPack") as caught:
        session.run({"x": Elsewhere()})
    assert "another device" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_no_number_is_seen_in_every_float(dtype: str) -> None:
    """In fp16 by its bits: every one of its values."""
    reception = Reception(m.Contract((m.Tensor("x", dtype, ("n",)),), ()))
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        values = every.astype(dtype)
    for value in (*values[:: 1 if dtype == "float16" else 97], *np.array([np.nan, np.inf, -np.inf], dtype)):
        array = np.array([0, value, 1], dtype)
        assert bool(reception.without_number({"x": array})) is not bool(np.isfinite(value)), value
    finite = values[np.isfinite(values)]
    assert reception.without_number({"x": finite}) == ""
    assert reception.without_number({"x": finite.reshape(2, -1)[:, :0]}) == ""


# ---------------------------------------------------------------- batches


def _contract() -> m.Contract:
    return m.Contract(
        (m.Tensor("a", "float32", ("batch", 3)), m.Tensor("b", "int64", ("batch",))),
        (m.Tensor("y", "float32", ("batch", 3)),),
    )


def _bucket(size: int) -> m.Bucket:
    return m.Bucket(f"b{size}", {"batch": size}, {"a": (size, 3), "b": (size,)}, {"y": (size, 3)})


@pytest.mark.parametrize("total", [1, 3, 4, 5, 8, 11])
def test_batches_are_cut_by_the_largest_bucket_and_the_last_piece_is_filled_up(total: int) -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(total * 3, dtype=np.float32).reshape(total, 3),
        "b": np.arange(total),
    }
    request = Request(arrays, {"batch": total})
    pieces = split_batch(request, [_bucket(2), _bucket(4)], _contract())
    assert pieces is not None
    assert [piece.rows for piece in pieces] == [4] * (total // 4) + [total % 4] * bool(total % 4)
    for piece in pieces:
        assert piece.bucket.name == "b4"
        assert piece.request.shapes == {"a": (4, 3), "b": (4,)}
    answers = [{"y": p.request.arrays["a"] + p.request.arrays["b"][:, None]} for p in pieces]
    np.testing.assert_array_equal(join_batch(pieces, answers)["y"], arrays["a"] + arrays["b"][:, None])


def test_a_batch_is_cut_in_a_worker_and_with_options_too() -> None:
    inputs = question(7, 3, seed=4)
    with quietly(attention(), "simulator", isolate=True) as session:
        got = session.run(inputs, performance="burst")["y"]
        assert decibels(answer(inputs), got) > 45
        assert session.describe().runs == {"seq-8": 3}
