"""Workers in other interpreters: other minor versions, without anything of this one, and in force or not."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from hexport import facts
from hexport.backend.options import InvalidOption, validate_options
from hexport.environments import asking
from hexport.environments.failures import BadInterpreter
from hexport.errors import HexportError, UsageError
from hexport.toolchain import Interpreter, Worker, in_force, using
from hexport.toolchain.interpreter import VARIABLE
from toolchain_standins import other_pythons

OTHERS = other_pythons((3, 11))
OLD = other_pythons((3, 6), (3, 10))
HERE = Interpreter("here", sys.executable, "linux-x86_64", {"onnxruntime-qnn": "2.3.0"})
THERE = Interpreter("there", sys.executable, "windows-arm64", {"onnxruntime-qnn": "2.5.0"})


@pytest.mark.parametrize("python", OTHERS, ids=lambda path: Path(path).name)
def test_a_worker_of_another_minor_version(python: str) -> None:
    sight = asking.look(python)
    assert sight.python.startswith(Path(python).name.removeprefix("python"))
    assert sight.platform == facts.current_platform()
    # Nothing of this environment is seen there, although hexport's own code is.
    assert "hypothesis" not in sight.packages
    assert "hexport" not in sight.packages


def test_there_is_another_python_to_test_with() -> None:
    if not OTHERS:
        pytest.skip("this machine has one Python only")
    assert all(Path(python).exists() for python in OTHERS)


@pytest.mark.parametrize("python", OLD[-1:], ids=lambda path: Path(path).name)
def test_a_python_that_is_too_old_says_so(python: str) -> None:
    with pytest.raises(BadInterpreter) as caught:
        asking.look(python)
    assert "need Python 3.11 or newer; this is 3." in caught.value.why


@pytest.mark.parametrize("program", ["true", "cat", "sh"])
def test_what_is_no_python(program: str) -> None:
    with pytest.raises(BadInterpreter):
        asking.look(asking.whole_path(program))
    with pytest.raises(BadInterpreter, match="there is no Python"):
        asking.whole_path(f"no-such-{program}")


def test_stray_settings_and_folders_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('foreign code was run')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "json.py"))
    monkeypatch.chdir(tmp_path)
    with Worker("hexport.environments.jobs", tmp_path / "log", python=HERE) as worker:
        assert worker.call("look", {})["python"] == ".".join(map(str, sys.version_info[:3]))


def test_what_is_in_force_is_where_workers_start(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/seen\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    spied = Interpreter("spied", str(script), "linux-x86_64", environment={"SPIED": "1"})
    with using(spied), Worker("hexport.environments.jobs", tmp_path / "log") as worker:
        worker.call("look", {})
        surroundings = Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert "hexport.environments.jobs" in (tmp_path / "seen").read_text()
    assert b"\0SPIED=1\0" in b"\0" + surroundings
    assert b'"name": "spied"' in surroundings
    assert in_force() is None


def test_in_force_and_back() -> None:
    with using(HERE):
        assert in_force() == HERE
        assert (facts.installed_release(), facts.current_platform()) == ("2.3.0", "linux-x86_64")
        with using(THERE):
            assert (facts.installed_release(), facts.current_platform()) == ("2.5.0", "windows-arm64")
        assert in_force() == HERE
    assert in_force() is None
    assert VARIABLE not in os.environ
    with pytest.raises(ZeroDivisionError), using(HERE):
        raise ZeroDivisionError
    assert in_force() is None


def test_options_are_those_of_the_release_in_force() -> None:
    option = {"backend_type": "htp", "enable_framework_op_trace": "1"}
    validate_options(option)
    with using(HERE), pytest.raises(InvalidOption, match=r"2\.3\.0 ignores it"):
        validate_options(option)


def test_threads_see_it_and_cannot_have_another() -> None:
    with using(HERE), ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_force).result() == HERE

        def other() -> None:
            with using(THERE):
                pass

        with pytest.raises(UsageError, match="'there' cannot be used now"):
            pool.submit(other).result()
        assert in_force() == HERE


def test_threads_with_the_same_one_end_in_any_order() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with using(HERE):
            entered.set()
            leave.wait(60)

    with using(HERE):
        other = threading.Thread(target=hold)
        other.start()
        entered.wait(60)
    assert in_force() == HERE
    leave.set()
    other.join()
    assert in_force() is None


def test_processes_of_a_pool_have_it_too() -> None:
    context = multiprocessing.get_context("spawn")
    with using(HERE), ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(in_force).result() == HERE


def test_a_damaged_variable_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("{", "[]", '{"name": 1}'):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(HexportError, match="is damaged"):
            in_force()
