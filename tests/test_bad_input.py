"""Bad input never gives a traceback: a message, a code, exit 2; and nothing on disk is harmed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models as small
from hexport import HexportError, check
from hexport.model import UnreadableModel
from hexport.toolchain import Limits

MUTANTS = 500
SHARDS = 10


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hexport", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(*arguments: str) -> str:
    """Run a command that must fail cleanly; gives its error document."""
    done = run(*arguments, "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr == ""
    error = json.loads(done.stdout)["error"]
    assert error["what"]
    assert error["code"].startswith("HX")
    plain = run(*arguments)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert f"error {error['code']}" in plain.stderr or "Error:" in plain.stderr
    return error["code"] + " " + error["what"] + " " + error["why"] + " " + error["next"]


def _file(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def _invalid_graph() -> onnx.ModelProto:
    """Reads a tensor nobody writes."""
    node = helper.make_node("Add", ["x", "nowhere"], ["y"])
    return small.model([node], [small.value("x", [1])], [small.value("y", [1])])


def _cyclic_graph() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return small.model(nodes, [small.value("x", [1])], [small.value("b", [1])])


def _unknown_domain() -> onnx.ModelProto:
    proto = small.model(
        [helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")],
        [small.value("x", [1])],
        [small.value("y", [1])],
    )
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


def _zero_size_constant() -> onnx.ModelProto:
    nodes = [helper.make_node("Concat", ["x", "nothing"], ["y"], axis=0)]
    empty = small.constant("nothing", np.zeros((0,), np.float32))
    return small.model(nodes, [small.value("x", [1])], [small.value("y", [1])], [empty])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "HX402"),
        (b"not a model", "HX402"),
        (small.conv_relu().SerializeToString()[:-200], "HX402"),
        (_invalid_graph().SerializeToString(), "HX407"),
        (_cyclic_graph().SerializeToString(), "HX407"),
        (_unknown_domain().SerializeToString(), "com.example"),
        (small.conv_relu("N").SerializeToString(), "--dim 'N=1'"),
        (small.conv_relu(0).SerializeToString(), "--input-shape 'x=1,3,16,16'"),
    ],
    ids=["empty", "text", "truncated", "dangling", "cyclic", "unknown-domain", "dynamic", "zero-dims"],
)
def test_bad_models(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused("check", _file(tmp_path / "m.onnx", content), "--target", "SM8650")


def test_paths(tmp_path: Path) -> None:
    assert "HX401" in refused("check", str(tmp_path), "--target", "SM8650")
    assert "HX401" in refused("check", str(tmp_path / "none.onnx"), "--target", "SM8650")
    # No command line can carry a NUL, but a program can.
    with pytest.raises(UnreadableModel, match="cannot be read"):
        check("a\0b", target="SM8650")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--target", "SM8560"), "SM8650"),
        (("--target", "SM8650", "--dim", "batch"), "NAME=N"),
        (("--target", "SM8650", "--dim", "nonsense=3"), "no dim called"),
        (("--target", "SM8650", "--input-shape", "x=1,a"), "INPUT=SIZES"),
        (("--target", "SM8650", "--input-shape", "z=1,3,16,16"), "no input called"),
        (("--target", "SM8650", "--input-shape", "x=1,3,16"), "has 4 dims"),
        (("--target", "SM8650", "--input-shape", "x=1,4,16,16"), "fixes it to 3"),
        (("--target", "SM8650", "--require", "most"), "not understood"),
        (("--target", "SM8650", "--scheme", "8a8w"), "the model is fp16"),
        (("--target", "SM8650", "--timeout", "0"), "timeout"),
        ((), "target"),
    ],
)
def test_bad_options(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    assert says in refused("check", str(small.save(small.conv_relu(), tmp_path / "m.onnx")), *options)


def test_spaces_and_other_letters_in_paths(tmp_path: Path) -> None:
    folder = tmp_path / "mein größtes Modell – 模型"
    folder.mkdir()
    path = small.save(small.conv_relu(), folder / "das modell ✓.onnx")
    done = run("check", str(path), "--target", "SM8650", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["full"]


def test_zero_size_tensors_are_answered(tmp_path: Path) -> None:
    """An empty constant is legal ONNX. Whatever the backend makes of it, the answer is clean."""
    done = run(
        "check", str(small.save(_zero_size_constant(), tmp_path / "m.onnx")), "--target", "SM8650", "--json"
    )
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    json.loads(done.stdout)


def test_the_model_file_is_never_written(tmp_path: Path) -> None:
    path = small.save(small.conv_relu("N"), tmp_path / "m.onnx")
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert run("check", str(path), "--target", "57", "--dim", "N=2").returncode == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [path]


def _mutate(data: bytes, rng: random.Random) -> bytes:
    """Mostly one or two changed bytes, which often still parse; at times pieces cut, doubled or swapped."""
    mutant = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at, length = rng.randrange(len(mutant)), rng.randint(1, 16)
        match rng.choice(("flip", "flip", "byte", "byte", "nudge", "nudge", "cut", "double", "swap", "end")):
            case "flip":
                mutant[at] ^= 1 << rng.randrange(8)
            case "byte":
                mutant[at] = rng.randrange(256)
            case "nudge":
                mutant[at] = (mutant[at] + rng.choice((-1, 1))) % 256
            case "cut":
                del mutant[at : at + length]
            case "double":
                mutant[at:at] = mutant[at : at + length]
            case "swap":
                other = rng.randrange(len(mutant))
                mutant[at], mutant[other] = mutant[other], mutant[at]
            case "end":
                del mutant[max(at, 8) :]
    return bytes(mutant)


def _outcome(path: Path) -> str:
    try:
        check(path, target="SM8650", limits=Limits(seconds=10, memory_bytes=4 << 30))
    except HexportError as error:
        return type(error).__name__
    return "checked"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutants_are_answered_or_refused(tmp_path: Path, shard: int) -> None:
    """No mutant hangs, and none harms this process: each is checked, or refused for a named reason."""
    model = small.mostly_structure().SerializeToString()
    rng = random.Random(shard)
    outcomes: Counter[str] = Counter()
    for number in range(MUTANTS // SHARDS):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(_mutate(model, rng))
        outcomes[_outcome(path)] += 1
    assert outcomes.total() == MUTANTS // SHARDS
    assert len(outcomes) > 1, outcomes
    # These two would mean that something went wrong which nobody understood.
    assert not outcomes.keys() & {"HexportError", "JobFailed"}, outcomes
