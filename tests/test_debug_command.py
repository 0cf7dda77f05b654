"""``hexport debug reduce`` as a command: what it prints, writes, and refuses."""

from __future__ import annotations

import io
import json
import shlex
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import pytest

import failing_models as failing
import small_models as small
from hexport.cli.main import main
from hexport.faultfinding.check_command import CheckCommand
from hexport.toolchain import Limits

CONV_IN = "import sys, pathlib; sys.exit(b'Conv' not in pathlib.Path(sys.argv[1]).read_bytes())"
"""Exit code 0 while there is a Conv in the file."""


def hexport(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hexport", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def reduce(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has the imports behind it already."""
    out, err = io.StringIO(), io.StringIO()
    words = ["hexport", "debug", "reduce", *map(str, arguments)]
    handler = signal.getsignal(signal.SIGTERM)
    argv = patch.object(sys, "argv", words)
    with redirect_stdout(out), redirect_stderr(err), argv, pytest.raises(SystemExit) as end:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert isinstance(end.value.code, int)
    return subprocess.CompletedProcess(words, end.value.code, out.getvalue(), err.getvalue())


def command(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {{model}}"


def test_a_failure_of_the_compiler(tmp_path: Path) -> None:
    path = small.save(failing.refused_in_compiling(), tmp_path / "m.onnx")
    out = tmp_path / "small.onnx"
    done = hexport("debug", "reduce", path, "-o", out, "--target", "SM8650")
    assert done.returncode == 0, done.stderr
    assert "1 of 32 nodes" in done.stdout
    assert "MaxPool `culprit`" in done.stdout
    assert "HX504" in done.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "small.onnx"]
    (again,) = [line for line in done.stdout.splitlines() if line.startswith("reproduce: hexport ")]
    shown = hexport(*shlex.split(again.removeprefix("reproduce: hexport ")))
    assert shown.returncode == 2
    assert "HX504" in shown.stderr


def test_a_command_says_what_fails(tmp_path: Path) -> None:
    model = small.save(small.conv_relu("N"), tmp_path / "a model.onnx")
    outputs = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    for out in outputs:
        done = reduce(
            model, "-o", out, "--dim", "N=2", "--check", command(CONV_IN), "--target", "57", "--json"
        )
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["nodes"] == [{"name": "conv", "op": "Conv"}]
    assert (document["of"], document["minimal"], document["samples"]) == (2, True, "")
    assert any("--target is not looked at" in note for note in document["warnings"])
    proto = onnx.load(outputs[0])
    assert [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == [2, 3, 16, 16]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    again = subprocess.run(shlex.split(document["reproduce"]), check=False)
    assert again.returncode == 0


def test_what_takes_too_long_is_reduced_too_and_unused_options_are_said(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    limits = ("--timeout", "0.01", "--below", "20")
    done = reduce(path, "-o", tmp_path / "s.onnx", "--target", "SM8650", *limits, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["failure"]["stage"], document["failure"]["code"]) == ("compiling", "HX303")
    assert len(document["nodes"]) == 1
    assert any("--below is not looked at" in note for note in document["warnings"])


def test_weights_in_another_file(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(small.conv_relu(), model, save_as_external_data=True, location="w.data", size_threshold=0)
    done = reduce(model, "-o", tmp_path / "s.onnx", "--check", command(CONV_IN))
    assert done.returncode == 0, done.stderr
    (tmp_path / "w.data").unlink()
    (weight,) = onnx.load(tmp_path / "s.onnx").graph.initializer
    (expected,) = small.conv_relu().graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), onnx.numpy_helper.to_array(expected))


def test_a_model_that_does_not_fail(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    done = reduce(path, "-o", tmp_path / "s.onnx", "--target", "SM8650", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["fails"] is False
    assert any("dB against the CPU" in note for note in document["warnings"])
    done = reduce(path, "-o", tmp_path / "s.onnx", "--check", command("raise SystemExit(1)"))
    assert done.returncode == 1, done.stderr
    assert "does not fail" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ((), "HX001", "neither --target nor --check"),
        (("--check", "true"), "HX001", "no {model}"),
        (("--check", "'open {model}"), "HX001", "cannot be read"),
        (("--check", "no-such-program-anywhere {model}"), "HX902", "cannot be started"),
        (("--check", "x {model}", "--below", "20"), "HX001", "do not go with --check"),
        (("--target", "SM0"), "HX102", "SM0"),
        (("--target", "SM8650", "--budget", "0"), "HX001", "0"),
        (("--target", "SM8650", "--calib", "no-such.npz"), "HX701", "there is no no-such.npz"),
    ],
)
def test_wrong_calls(tmp_path: Path, options: tuple[str, ...], code: str, says: str) -> None:
    old = tmp_path / "s.onnx"
    old.write_bytes(b"precious")
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    done = reduce(path, "-o", old, *options, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == code
    assert says in error["what"] + error["why"]
    assert old.read_bytes() == b"precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "s.onnx"]


@pytest.mark.parametrize(
    ("content", "output", "code"),
    [(b"", "s.onnx", "HX402"), (b"no model", "s.onnx", "HX402"), (None, "no/folder/s.onnx", "HX001")],
)
def test_bad_files(tmp_path: Path, content: bytes | None, output: str, code: str) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(small.conv_relu().SerializeToString() if content is None else content)
    done = reduce(model, "-o", tmp_path / output, "--target", "SM8650")
    assert done.returncode == 2
    assert code in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    import onnx_ir as ir

    alive = tmp_path / "alive"
    inner = f"import time, pathlib; time.sleep(3); pathlib.Path({str(alive)!r}).touch()"
    code = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {inner!r}]); time.sleep(60)"
    )
    check = CheckCommand(command(code), tmp_path, Limits(seconds=1))
    started = time.monotonic()
    assert not check.still_fails(ir.from_proto(small.conv_relu()))
    assert time.monotonic() - started < 20
    time.sleep(3.5)
    assert not alive.exists()
