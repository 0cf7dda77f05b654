"""Adding toolchains: whole or not at all, whatever happens half-way. The packages are stand-ins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hexport.environments import adding, keeping, making, registry
from hexport.environments.failures import NoRoom, ToolchainNotMade
from test_worker import wait_until_gone
from toolchain_standins import (
    COMMAND,
    HOST,
    PROVIDER,
    made_folders,
    make_index,
    mute_server,
    run,
    run_json,
    settings,
)

SPEC = f"onnxruntime-qnn=={PROVIDER}"
NAME = f"onnxruntime-qnn-{PROVIDER}"


def names(data: Path, env: dict[str, str]) -> list[str]:
    return [one["name"] for one in run_json("list", env=env)["toolchains"]]


def start(*arguments: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_it_brings_what_goes_with_it_and_works(tmp_path: Path) -> None:
    env = settings(tmp_path, make_index(tmp_path / "index"))
    added = run_json("add", SPEC, env=env)
    toolchain = added["toolchain"]
    assert added["already"] is False
    assert toolchain["name"] == NAME
    assert toolchain["requirements"] == [f"onnxruntime=={HOST}", SPEC]
    assert toolchain["packages"]["onnxruntime"] == HOST
    assert toolchain["state"] == "ok"
    assert {one["backend"]: one["state"] for one in toolchain["backends"]}["htp"] == "works"
    (folder,) = made_folders(tmp_path)
    assert Path(toolchain["python"]).is_relative_to(folder)
    assert toolchain["bytes"] == sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    again = run_json("add", SPEC, env=env)
    assert (again["already"], again["toolchain"]["python"]) == (True, toolchain["python"])
    other = run_json("add", SPEC, "numpy==2.0.0", env=env, code=2)
    assert other["error"]["code"] == "HX329"


@pytest.mark.parametrize(
    ("right", "spec", "code"),
    [(True, "onnxruntime-qnn==9.9.9", "HX324"), (False, SPEC, "HX327")],
    ids=["no such version", "computes wrongly"],
)
def test_nothing_is_left_of_what_fails(tmp_path: Path, right: bool, spec: str, code: str) -> None:
    env = settings(tmp_path, make_index(tmp_path / "index", right=right))
    error = run_json("add", spec, env=env, code=2)["error"]
    assert error["code"] == code
    assert error["why"]
    assert error["next"]
    assert made_folders(tmp_path) == []
    assert names(tmp_path, env) == []


def test_offline(tmp_path: Path) -> None:
    env = settings(tmp_path, "https://no-such-host.invalid/simple")
    error = run_json("add", SPEC, env=env, code=2)["error"]
    assert error["code"] == "HX325"
    assert "no-such-host.invalid" in error["why"]
    assert made_folders(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_while_pip_works(tmp_path: Path, number: signal.Signals) -> None:
    with mute_server() as (url, server):
        adding = start("add", SPEC, env=settings(tmp_path, url))
        try:
            connection, _ = server.accept()  # pip asks, and gets no answer
        except TimeoutError:
            adding.kill()
            raise
        workers = Path(f"/proc/{adding.pid}/task/{adding.pid}/children").read_text().split()
        assert workers
        os.killpg(adding.pid, number)
        out, err = adding.communicate(timeout=120)
        connection.close()
    assert adding.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert "Traceback" not in out + err
    assert all(wait_until_gone(int(pid)) for pid in workers), "pip goes on without us"
    env = settings(tmp_path, make_index(tmp_path / "index"))
    assert names(tmp_path, env) == []
    left = made_folders(tmp_path)
    assert bool(left) == (number == signal.SIGKILL)
    # The next one cleans up, and is not disturbed.
    run("add", SPEC, env=env)
    (folder,) = made_folders(tmp_path)
    assert folder not in left
    assert names(tmp_path, env) == [NAME]


def test_two_at_once_make_one(tmp_path: Path) -> None:
    env = settings(tmp_path, make_index(tmp_path / "index"))
    both = [start("add", SPEC, "--json", env=env) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=300)[0]) for process in both]
    assert sorted(answer["already"] for answer in answers) == [False, True]
    assert len({answer["toolchain"]["python"] for answer in answers}) == 1
    assert len(made_folders(tmp_path)) == 1
    assert not list((tmp_path / "toolchains").glob("*.lock"))


def test_what_is_being_made_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path))
    with registry.locked("made", lambda: None):
        folder = registry.new_folder("made")
        registry.sweep()
        assert folder.exists()
        registry.sweep(holding="other")
        assert folder.exists()
    registry.sweep()
    assert not folder.exists()


def test_the_maker_sweeps_what_one_before_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path))
    with registry.locked("made", lambda: None):
        folder = registry.new_folder("made")
        registry.sweep(holding="made")
    assert not folder.exists()


def test_foreign_folders_are_never_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path))
    place = tmp_path / "toolchains"
    mine, empty = place / "mine-0123abcd", place / "gone-0123abcd"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("years of work")
    empty.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".hexport-toolchain").write_text("x")
    (place / "link-0123abcd").symlink_to(elsewhere, target_is_directory=True)
    registry.sweep()
    assert (mine / "thesis.txt").exists()
    assert (elsewhere / ".hexport-toolchain").exists()
    assert not empty.exists(), "an empty one is a maker's that was killed at once"


@pytest.fixture
def offline_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key, value in settings(tmp_path, make_index(tmp_path / "index")).items():
        monkeypatch.setenv(key, value)
    return tmp_path


def test_no_room_is_seen_before_work_begins(offline_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(making.shutil.disk_usage("/"))
    monkeypatch.setattr(making.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(NoRoom, match="not enough room") as caught:
        adding.add(SPEC)
    assert "1 MB are free" in caught.value.why
    assert made_folders(offline_data) == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", NoRoom),
        ("ERROR: something that nobody foresaw", ToolchainNotMade),
    ],
)
def test_what_pip_says_decides(
    offline_data: Path, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[Exception]
) -> None:
    def fail(python: str, arguments: tuple[str, ...]) -> tuple[int, str]:
        return 1, f"Collecting things\n{said}\n"

    monkeypatch.setattr(making.asking, "run_pip", fail)
    with pytest.raises(kind) as caught:
        adding.add(SPEC)
    assert "Collecting" not in str(caught.value)
    assert made_folders(offline_data) == []


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def _lost(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(("trouble", "kind"), [(_full, NoRoom), (_lost, ToolchainNotMade)])
def test_the_disk_at_the_last_step(
    offline_data: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[..., None], kind: type[Exception]
) -> None:
    monkeypatch.setattr(making, "write_record", trouble)
    with pytest.raises(kind):
        adding.add(SPEC)
    assert made_folders(offline_data) == []
    assert keeping.toolchains().toolchains == ()


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    env = settings(blocked, make_index(tmp_path / "index"))
    error = run_json("add", SPEC, env=env, code=2)["error"]
    assert error["code"] == "HX320"
    assert str(blocked) in error["what"]


def test_pip_that_installs_elsewhere(tmp_path: Path) -> None:
    env = settings(tmp_path, make_index(tmp_path / "index"))
    error = run_json("add", SPEC, env={**env, "PIP_TARGET": str(tmp_path / "else")}, code=2)["error"]
    assert error["code"] == "HX322"
    assert "is not there" in error["why"]
    assert made_folders(tmp_path) == []


def test_this_interpreter_by_a_name(tmp_path: Path) -> None:
    """The real packages of the tests' own environment, verified for real."""
    env = {**settings(tmp_path, tmp_path / "no-index"), "HEXPORT_DATA": str(tmp_path)}
    toolchain = run_json("add", "mine", "--python", sys.executable, env=env)["toolchain"]
    assert toolchain["state"] == "ok"
    assert toolchain["folder"] == ""
    assert toolchain["python"] == os.path.abspath(sys.executable)  # noqa: PTH100 - links are not followed
    states = {one["backend"]: one["state"] for one in toolchain["backends"]}
    assert states["htp"] == states["saver"] == states["ir"] == "works"
    done = run("remove", "mine", env=env)
    assert "was not touched" in done.stdout
    assert Path(sys.executable).exists()
    assert names(tmp_path, env) == []
