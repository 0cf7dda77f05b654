"""Every way a worker can end, seen from the parent; and that no worker outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hexport.toolchain import (
    JobFailed,
    Limits,
    Worker,
    WorkerCrashed,
    WorkerExited,
    WorkerNotStarted,
    WorkerOutOfMemory,
    WorkerProtocolError,
    WorkerTimeout,
)

MODULE = "misbehaving_worker"
HERE = str(Path(__file__).parent)

Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Worker] = []

    def make(**limits: float) -> Worker:
        worker = Worker(
            MODULE,
            tmp_path / "native.log",
            limits=Limits(**limits),  # type: ignore[arg-type]
            environment={"PYTHONPATH": HERE},
        )
        started.append(worker)
        return worker

    yield make
    for worker in started:
        worker.close()


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be collected."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_answers_jobs_one_after_the_other(start: Start) -> None:
    worker = start()
    for content in ({"a": 1}, {"text": "ünïcödé ✓"}, {"nested": [1, [2, {"three": None}]]}):
        assert worker.call("echo", content) == content


def test_large_messages_pass_whole(start: Start) -> None:
    text = "x" * 5_000_000
    assert start().call("echo", {"text": text})["text"] == text


def test_native_noise_goes_to_the_log_and_nowhere_else(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start().call("noise", {}) == {}
    assert capfd.readouterr() == ("", "")
    log = (tmp_path / "native.log").read_text()
    assert "native noise on stdout" in log
    assert "native noise on stderr" in log


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE"])
def test_crash_by_signal_is_named_with_last_words(start: Start, name: str) -> None:
    worker = start()
    with pytest.raises(WorkerCrashed, match=name) as caught:
        worker.call("crash", {"signal": name})
    assert caught.value.native_log == ("[E:onnxruntime:, x.cc:1 f] about to fail",)
    assert wait_until_gone(worker.pid)


@pytest.mark.parametrize("code", [0, 1, 127])
def test_exit_without_answer(start: Start, code: int) -> None:
    with pytest.raises(WorkerExited, match=f"exit code {code}"):
        start().call("leave", {"code": code})


def test_hang_is_ended_even_when_it_holds_pythons_lock(start: Start) -> None:
    worker = start(seconds=0.5)
    began = time.monotonic()
    with pytest.raises(WorkerTimeout):
        worker.call("hang_holding_the_lock", {"seconds": 60})
    assert time.monotonic() - began < 5
    assert wait_until_gone(worker.pid)


def test_memory_limit(start: Start) -> None:
    worker = start(memory_bytes=200 << 20)
    with pytest.raises(WorkerOutOfMemory, match="200 MiB"):
        worker.call("eat_memory", {})
    assert wait_until_gone(worker.pid)


def test_bad_alloc_is_out_of_memory_too(start: Start) -> None:
    with pytest.raises(WorkerOutOfMemory, match="limit"):
        start().call("fail", {"kind": "memory"})


def test_errors_of_the_job_travel_by_name(start: Start) -> None:
    worker = start()
    with pytest.raises(JobFailed) as caught:
        worker.call("fail", {"kind": "EpCreationFailed"})
    assert (caught.value.kind, caught.value.text) == ("EpCreationFailed", "the reason")
    with pytest.raises(JobFailed) as caught:
        worker.call("fail", {"kind": "python"})
    assert (caught.value.kind, caught.value.text) == ("ZeroDivisionError", "one over nothing")
    # Such an error is an answer: the worker lives on.
    assert worker.call("echo", {"still": "here"}) == {"still": "here"}


def test_unknown_job(start: Start) -> None:
    with pytest.raises(JobFailed) as caught:
        start().call("no such job", {})
    assert caught.value.kind == "UnknownJob"


def test_garbage_on_the_pipe(start: Start) -> None:
    worker = start()
    with pytest.raises(WorkerProtocolError, match="could not be read"):
        worker.call("garble", {})
    assert wait_until_gone(worker.pid)


def test_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(WorkerNotStarted, match="could not be started"):
        Worker(MODULE, tmp_path / "log", python=str(tmp_path / "no-python"))


def test_module_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(WorkerNotStarted) as caught:
        Worker("hexport.no_such_module", tmp_path / "log")
    assert "no_such_module" in caught.value.why


def test_a_worker_started_in_a_thread_outlives_the_thread(start: Start) -> None:
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(start).result()
    time.sleep(0.3)
    assert worker.call("echo", {"ok": True}) == {"ok": True}


def _parent_script(body: str) -> str:
    return textwrap.dedent(
        f"""
        import sys, tempfile
        from pathlib import Path
        sys.path.insert(0, {HERE!r})
        from hexport.toolchain import Worker, Limits
        worker = Worker({MODULE!r}, Path(tempfile.mkdtemp()) / "log", environment={{"PYTHONPATH": {HERE!r}}})
        print(worker.pid, flush=True)
        {body}
        """
    )


def _start_parent(body: str) -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", _parent_script(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


@pytest.mark.parametrize(
    "job", ["worker.call('hang_holding_the_lock', {'seconds': 60})", "import time; time.sleep(60)"]
)
def test_kill_9_of_the_parent_ends_the_worker(job: str) -> None:
    parent, pid = _start_parent(job)
    try:
        time.sleep(0.3)
        assert is_alive(pid)
        parent.kill()
        parent.wait()
        assert wait_until_gone(pid)
    finally:
        parent.communicate()


def test_ctrl_c_ends_both_at_once() -> None:
    parent, pid = _start_parent("worker.call('hang_holding_the_lock', {'seconds': 60})")
    time.sleep(0.3)
    began = time.monotonic()
    os.killpg(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=10)
    assert "KeyboardInterrupt" in stderr
    assert wait_until_gone(pid)
    assert time.monotonic() - began < 5
