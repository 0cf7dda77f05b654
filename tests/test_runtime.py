"""A loaded package answers like the original: any size, on the CPU and on the simulator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hexport.errors import UsageError
from hexport.runtime.batches import batch_dim
from hexport.runtime.failures import NoBucketFits, SessionClosed
from hexport.runtime.loading import load
from hexport.runtime.session import Session
from runtime_packages import CHIP, answer, attention, decibels, question, rows
from verified_packages import expected

FP16_DB = 45.0
"""What fp16 gives at least; the original itself is compared with exactly 120 dB or more."""
FP32_DB = 120.0


def quietly(package: Any, backend: str, **options: Any) -> Session:
    return load(package, backend, say=lambda line: None, **options)


@pytest.fixture(scope="module")
def simulated() -> Any:
    with quietly(attention(), "simulator") as session:
        yield session


@pytest.fixture(scope="module")
def on_cpu() -> Any:
    with quietly(attention(), "cpu") as session:
        yield session


@pytest.mark.parametrize(("batch", "length"), [(1, 8), (1, 3), (1, 16), (1, 11), (3, 7), (2, 16)])
def test_answers_of_the_simulator_are_the_originals(simulated: Session, batch: int, length: int) -> None:
    """At a bucket's sizes, filled up and cut, and with a batch that is cut into pieces."""
    inputs = question(length, batch, seed=length)
    before = simulated.describe().runs
    got = simulated.run(inputs)
    assert list(got) == ["y"]
    assert decibels(answer(inputs), got["y"]) > FP16_DB
    bucket = "seq-8" if length <= 8 else "seq-16"
    assert simulated.describe().runs[bucket] == before.get(bucket, 0) + batch


def test_the_simulator_computes_as_the_npu_does(simulated: Session) -> None:
    """fp16, and not the CPU in disguise."""
    inputs = question(8)
    assert decibels(answer(inputs), simulated.run(inputs)["y"]) < FP32_DB


@pytest.mark.parametrize(("batch", "length"), [(1, 8), (5, 3), (1, 100)])
def test_answers_of_the_cpu_are_the_originals(on_cpu: Session, batch: int, length: int) -> None:
    inputs = question(length, batch)
    assert decibels(answer(inputs), on_cpu.run(inputs)["y"]) > FP32_DB


def test_inputs_beyond_the_largest_bucket_run_on_the_cpu_and_it_is_said() -> None:
    said: list[str] = []
    with load(attention(), "simulator", say=said.append) as session:
        inputs = question(17)
        for _ in range(2):
            assert decibels(answer(inputs), session.run(inputs)["y"]) > FP32_DB
        assert session.describe().runs == {"cpu": 2}
        assert [line for line in said if "run on the CPU" in line] == list(session.notes)
        assert len(session.notes) == 1
    with quietly(attention(), "simulator", allow_cpu=False) as strict, pytest.raises(NoBucketFits) as caught:
        strict.run(inputs)
    assert "seq-16: ids [1, 16]" in caught.value.why


def test_shared_binaries_are_compiled_apart_for_the_simulator_and_it_is_said(simulated: Session) -> None:
    simulated.run(question(8))
    assert any("seq-8 is compiled by itself" in note for note in simulated.notes)
    places = {place.part: place for place in simulated.describe().places}
    assert places["seq-8"].npu_graphs == 1
    assert places["seq-8"].cpu_nodes == 0
    assert places["cpu"].backend == "cpu"


def test_what_was_compiled_apart_is_kept(simulated: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the store: another session needs no compiler, and says the same."""
    plain = simulated.run(question(8))["y"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("hexport.compiling.verb.compile_models", never)
    with quietly(attention(), "simulator") as another:
        np.testing.assert_array_equal(another.run(question(8))["y"], plain)
        assert any("seq-8 is compiled by itself" in note for note in another.notes)


@pytest.mark.parametrize("backend", ["simulator", "cpu"])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_frozen_input_is_settled(backend: str, isolate: bool) -> None:
    x = np.random.default_rng(1).normal(size=(1, 5, 8)).astype(np.float32)
    with quietly(rows(), backend, isolate=isolate) as session:
        got = session.run({"x": x})["y"]
        again = session.run({"x": x, "gain": np.float32(2)})["y"]
    assert decibels(expected(x), got) > FP16_DB
    np.testing.assert_array_equal(again, got)


def test_padding_does_not_reach_the_outputs() -> None:
    """``rows`` is filled up with sevens."""
    x = np.random.default_rng(2).normal(size=(1, 8, 8)).astype(np.float32)
    with quietly(rows(), "simulator") as session:
        whole = session.run({"x": x})["y"]
        for length in (1, 7):
            np.testing.assert_array_equal(session.run({"x": x[:, :length]})["y"], whole[:, :length])


def test_arrays_of_every_kind(on_cpu: Session, simulated: Session) -> None:
    """Views, read-only ones, other byte orders and tensors of other libraries."""
    inputs = question(8)
    wide = np.repeat(inputs["ids"], 2, axis=1)
    frozen = inputs["ids"].copy()
    frozen.flags.writeable = False

    class Elsewhere:
        def __dlpack__(self, **options: Any) -> Any:
            return inputs["ids"].__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return inputs["ids"].__dlpack_device__()

    for session in (on_cpu, simulated):
        plain = session.run(inputs)["y"]
        for ids in (wide[:, ::2], frozen, inputs["ids"].astype(">i8"), Elsewhere(), inputs["ids"].tolist()):
            np.testing.assert_array_equal(session.run({**inputs, "ids": ids})["y"], plain)


def test_what_is_no_number_stays_none() -> None:
    x = np.ones((1, 8, 8), np.float32)
    x[0, 2, 3] = np.nan
    with quietly(rows(), "cpu") as session:
        got = session.run({"x": x})["y"]
    assert np.isnan(got[0, 2]).all()
    np.testing.assert_allclose(np.delete(got, 2, axis=1), np.delete(expected(x), 2, axis=1), rtol=1e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_the_npu_is_not_given_what_it_misreads(odd: float) -> None:
    """The simulator computes NaN and infinities as large numbers; the original does not."""
    x = np.ones((1, 8, 8), np.float32)
    with quietly(rows(), "simulator") as session, np.errstate(invalid="ignore"):
        session.run({"x": x})
        x[0, 2, 3] = odd
        np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-5)
        x[0, 2, 3] = 3e38  # whose square is infinite, and which is a number
        session.run({"x": x})
        assert session.describe().runs == {"seq8": 2, "cpu": 1}
        assert "NaN" in session.notes[0]


def test_threads_and_futures(simulated: Session) -> None:
    asked = [question(length, seed=length) for length in (3, 8, 11, 16) * 5]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(simulated.run, asked))
    futures = [simulated.run_async(inputs) for inputs in asked]
    for inputs, got, future in zip(asked, answers, futures, strict=True):
        assert decibels(answer(inputs), got["y"]) > FP16_DB
        np.testing.assert_array_equal(future.result(60)["y"], got["y"])


def test_two_packages_and_two_backends_at_once(simulated: Session, on_cpu: Session) -> None:
    x = np.random.default_rng(3).normal(size=(1, 8, 8)).astype(np.float32)
    inputs = question(8)
    with quietly(rows(), "simulator") as other, ThreadPoolExecutor(3) as threads:
        futures = [
            (threads.submit(other.run, {"x": x}), expected(x), FP16_DB),
            (threads.submit(simulated.run, inputs), answer(inputs), FP16_DB),
            (threads.submit(on_cpu.run, inputs), answer(inputs), FP32_DB),
        ] * 5
        for future, wanted, least in futures:
            assert decibels(wanted, future.result(60)["y"]) > least


def test_a_closed_session_says_so() -> None:
    session = quietly(rows(), "cpu")
    session.run_async({"x": np.ones((1, 8, 8), np.float32)}).result(60)
    session.close()
    session.close()
    for call in (session.run, session.run_async):
        with pytest.raises(SessionClosed):
            call({"x": np.ones((1, 8, 8), np.float32)})


def test_auto_without_an_npu_is_the_cpu_and_one_line() -> None:
    said: list[str] = []
    with load(attention(), say=said.append, performance="burst") as session:
        assert session.backend == "cpu"
        assert session.describe().target is None
    assert said == list(session.notes)
    assert "no NPU on this machine" in said[0]
    assert "no effect" in said[1]


def test_options_of_a_session_and_of_a_call(simulated: Session, on_cpu: Session) -> None:
    inputs = question(8)
    plain = simulated.run(inputs)["y"]
    np.testing.assert_array_equal(simulated.run(inputs, performance="burst", rpc_latency=100)["y"], plain)
    with quietly(attention(), "simulator", performance="balanced", priority="high", rpc_latency=50) as tuned:
        np.testing.assert_array_equal(tuned.run(inputs)["y"], plain)
    with pytest.raises(UsageError, match="no meaning on the CPU"):
        on_cpu.run(inputs, performance="burst")
    with pytest.raises(UsageError, match="no meaning on the CPU"):
        quietly(attention(), "cpu", priority="high")
    with pytest.raises(ValueError, match="would not do"):
        simulated.run(inputs, performance="brust")
    with pytest.raises(ValueError, match="would not do"):
        quietly(attention(), "simulator", performance="brust")


def test_bench_measures(on_cpu: Session) -> None:
    on_cpu.run(question(8))
    measured = on_cpu.bench(runs=5, threads=2)
    assert measured.shapes == {"ids": (1, 8), "mask": (1, 8)}
    assert 0 < measured.median_ms <= measured.p90_ms <= measured.p99_ms
    assert measured.first_ms > measured.median_ms
    assert measured.per_second > 0
    assert measured.load_ms > 0
    assert measured.memory_mb is None or measured.memory_mb > 10
    assert on_cpu.bench(question(30), runs=2).shapes["ids"] == (1, 30)
    with pytest.raises(UsageError):
        on_cpu.bench(runs=0)


def test_only_what_is_called_a_batch_is_cut(on_cpu: Session, simulated: Session) -> None:
    assert batch_dim(on_cpu.contract) == "batch"
    with quietly(rows(), "cpu") as session:
        assert batch_dim(session.contract) is None
    assert simulated.describe().target == CHIP
