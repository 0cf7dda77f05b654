"""Saved programs: what torch.export wrote is read, and nothing in a file is executed."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torch_models
from hexport.errors import UsageError
from hexport.model import read
from hexport.torch import TorchModel
from hexport.torch.description import checked, describe
from hexport.torch.exporting import export
from hexport.torch.factories import from_factory
from hexport.torch.failures import ProgramRefused
from hexport.torch.fixing import fix_sizes
from hexport.torch.program_file import from_program_file
from hexport.torch.program_reading import read_program
from hexport.torch.quiet import quiet
from hexport.zoo.models import locate

pytestmark = pytest.mark.usefixtures("cache")
TARGET = "touched"


class Touch:
    """An object that runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a dim that varies, a branch, a buffer and containers."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("shift", torch.ones(4), persistent=False)

        def forward(self, x: torch.Tensor, more: dict[str, list[torch.Tensor]]) -> dict[str, torch.Tensor]:
            y = self.fc(x) + self.shift + more["k"][0]
            y = torch.cond(y.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (y,))
            return {"y": y, "part": y.flatten()[: x.shape[0] // 2 + 1]}

    path = tmp_path_factory.mktemp("programs") / "net.pt2"
    dims = {"x": {0: torch.export.Dim.DYNAMIC}, "more": {"k": [None]}}
    example = (torch.randn(6, 4), {"k": [torch.ones(4)]})
    with quiet():
        torch.export.save(torch.export.export(Net().eval(), example, dynamic_shapes=dims), path)
    return path


def altered(program: Path, path: Path, change: Callable[[str, bytes], bytes | None], *more: Any) -> Path:
    """A copy with other contents; what becomes None is left out, and ``more`` is added."""
    with zipfile.ZipFile(program) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            data = change(name.partition("/")[2], before.read(name))
            if data is not None:
                after.writestr(name, data)
        for name, data in more:
            after.writestr(f"net/{name}", data)
    return path


def in_json(file: str, edit: Callable[[Any], None]) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if name != file:
            return data
        document = json.loads(data)
        edit(document)
        return json.dumps(document).encode()

    return change


def test_a_program_goes_through(program: Path) -> None:
    found = locate(program)
    source = read(found.path)
    assert source.graph.inputs["x"].shape == ("x_dim0", 4)
    assert list(source.graph.outputs) == ["y", "part"]
    assert any("and at x_dim0=7: " in note for note in found.notes)
    assert found.example["x"].shape == (6, 4)
    assert {"fc/Gemm"} & {node.name for node in source.graph.walk()}


def _pickled(path: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Touch(path), buffer)
    return buffer.getvalue()


def calls(operator: str) -> Callable[[Any], None]:
    return lambda document: document["graph_module"]["graph"]["nodes"][1].update(target=operator)


def attacks(place: Path) -> dict[str, tuple[Callable[[str, bytes], bytes | None], list[Any]]]:
    """Every way that a file has into torch.export.load, each with code that makes a file at ``place``."""
    code = f"__import__('pathlib').Path({str(place)!r}).touch()"
    weights, constants = (
        "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json",
    )

    def by_pickle(config: str) -> Callable[[str, bytes], bytes]:
        def change(name: str, data: bytes) -> bytes:
            if name == config:
                document = json.loads(data)
                for meta in document["config"].values():
                    meta["use_pickle"] = True
                return json.dumps(document).encode()
            return _pickled(place) if name.startswith(config.rpartition("/")[0]) else data

        return change

    def examples(name: str, data: bytes) -> bytes:
        return _pickled(place) if name == "data/sample_inputs/model.pt" else data

    def opaque(document: Any) -> None:
        document["config"]["shift"].update(path_name="opaque_obj_0", use_pickle=True)

    def formula(document: Any) -> None:
        sizes = document["graph_module"]["graph"]["sym_int_values"]
        next(iter(sizes.values()))["as_expr"]["expr_str"] = code

    def name_of_input(document: Any) -> None:
        text = json.dumps(document).replace('"x"', json.dumps(f"x={code}"))
        document.clear()
        document.update(json.loads(text))

    def container(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        spec = {"type": "collections.defaultdict", "context": "{}", "children_spec": []}
        signature["out_spec"] = json.dumps([1, spec])

    def key_in_container(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        signature["out_spec"] = signature["out_spec"].replace("part", '__enum__\\\\\\"')

    def guard(document: Any) -> None:
        document["guards_code"] = [code]

    def fixed_input(kind: str) -> Callable[[Any], None]:
        """torch writes it between quotes, into the code of a guard."""

        def change(document: Any) -> None:
            document["graph_module"]["graph"]["inputs"][-1] = {kind: f"' or {code} or '"}

        return change

    def size_named_metadata(document: Any) -> None:
        formula(document)
        name = next(iter(document["graph_module"]["graph"]["sym_int_values"]))
        text = json.dumps(document).replace(f'"{name}"', '"metadata"')
        document.clear()
        document.update(json.loads(text))

    def called(formula: str) -> Callable[[Any], None]:
        def change(document: Any) -> None:
            sizes = document["graph_module"]["graph"]["sym_int_values"]
            next(iter(sizes.values()))["as_expr"]["expr_str"] = formula

        return change

    model = "models/model.json"
    plain: Callable[[str, bytes], bytes] = lambda _, data: data  # noqa: E731
    return {
        "weights": (by_pickle(weights), []),
        "constants": (by_pickle(constants), []),
        "examples": (examples, []),
        "opaque": (
            in_json(constants, opaque),
            [("data/constants/opaque_obj_0", pickle.dumps(Touch(place)))],
        ),
        "legacy": (plain, [("data/weights/model.pt", _pickled(place))]),
        "library": (plain, [("data/aotinductor/model/x.so", b"code")]),
        "formula": (in_json(model, formula), []),
        "guard": (in_json(model, guard), []),
        "text": (in_json(model, fixed_input("as_string")), []),
        "number": (in_json(model, fixed_input("as_int")), []),
        "metadata": (in_json(model, size_named_metadata), []),
        "called": (in_json(model, called(f"(open or A)('{TARGET}', 'w')")), []),
        "lines": (in_json(model, called("Max(s0,\n s1)")), []),
        "operator": (in_json(model, calls("torch.os.system")), []),
        "file": (in_json(model, calls("torch.ops.aten.from_file.default")), []),
        "writing": (in_json(model, calls("torch.ops.aten.save.default")), []),
        "stranger": (in_json(model, calls("torch.ops.torchao.quantize_affine.default")), []),
        "name": (in_json(model, name_of_input), []),
        "container": (in_json(model, container), []),
        "key": (in_json(model, key_in_container), []),
    }


@pytest.mark.parametrize("kind", sorted(attacks(Path())))
def test_what_would_run_is_refused(program: Path, tmp_path: Path, kind: str) -> None:
    place = tmp_path / TARGET
    change, more = attacks(place)[kind]
    bad = altered(program, tmp_path / "bad.pt2", change, *more)
    with pytest.raises(ProgramRefused) as caught:
        from_program_file(bad)
    # For what it holds, and not for being damaged by the test.
    assert caught.value.what == f"{bad} is refused"
    assert not place.exists()


def run_by_torch(path: Path) -> None:
    """Without guards of its own, so that what it does is not their doing; whatever it fails with."""
    with quiet(), contextlib.suppress(Exception):
        loaded = torch.export.load(path)
        loaded._guards_code = []
        loaded.module()(*loaded.example_inputs[0])


def test_the_attack_is_real(program: Path, tmp_path: Path) -> None:
    """The instrument itself: a copy is good, and torch alone runs what is in an altered one."""
    copy = altered(program, tmp_path / "good.pt2", lambda _, data: data)
    assert from_program_file(copy).args[0].shape == (6, 4)
    place = tmp_path / TARGET
    change, more = attacks(place)["guard"]
    with quiet():
        loaded = torch.export.load(altered(program, tmp_path / "bad.pt2", change, *more))
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever comes after
            loaded.module()(*loaded.example_inputs[0])
    assert place.exists()


@pytest.mark.parametrize(
    ("kind", "mode", "dims"),
    [
        ("text", "add", None),
        ("number", "add", None),
        ("called", "cut", {0: torch.export.Dim.DYNAMIC}),
        ("metadata", "cut", {0: torch.export.Dim.DYNAMIC}),
    ],
)
def test_what_hides_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str, dims: Any
) -> None:
    """Attacks that need no guard and call nothing by its name."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor, mode: str) -> torch.Tensor:
            return x + 1 if mode == "add" else x.flatten()[: x.shape[0] // 2]

    monkeypatch.chdir(tmp_path)
    place = tmp_path / TARGET
    captured = torch.export.export(Net(), (torch.ones(4, 2), mode), dynamic_shapes={"x": dims, "mode": None})
    torch.export.save(captured, tmp_path / "net.pt2")
    change, more = attacks(place)[kind]
    bad = altered(tmp_path / "net.pt2", tmp_path / "bad.pt2", change, *more)
    run_by_torch(bad)
    assert place.exists()
    place.unlink()
    with pytest.raises(ProgramRefused, match="is refused"):
        from_program_file(bad)
    assert not place.exists()


def test_tensors_may_be_named_like_what_torch_writes(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(
            self, inputs: torch.Tensor, target: torch.Tensor, name: torch.Tensor, metadata: torch.Tensor
        ) -> torch.Tensor:
            return inputs + target * name - metadata

    torch.export.save(torch.export.export(Net(), (torch.ones(2),) * 4), tmp_path / "named.pt2")
    found = from_program_file(tmp_path / "named.pt2")
    program = found.module
    assert isinstance(program, torch.export.ExportedProgram)
    assert program.graph_signature.user_inputs == ("inputs", "target", "name", "metadata")


def test_what_a_program_was_captured_for_is_kept(tmp_path: Path) -> None:
    """Its guards compare sizes; without them it would take the branch for even sizes at odd ones."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] % 2 == 0 else x * 3

    captured = torch.export.export(
        Net(), (torch.ones(4),), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}}
    )
    torch.export.save(captured, tmp_path / "even.pt2")
    loaded = read_program((tmp_path / "even.pt2").read_bytes()).program.module()
    assert loaded(torch.ones(6)).tolist() == [2.0] * 6
    with pytest.raises(AssertionError, match="% 2 == 0"):
        loaded(torch.ones(5))


def test_damaged_files(program: Path, tmp_path: Path) -> None:
    whole = program.read_bytes()
    for name, data in (("cut", whole[:2000]), ("empty", b""), ("text", b"no archive" * 50)):
        path = tmp_path / f"{name}.pt2"
        path.write_bytes(data)
        with pytest.raises(ProgramRefused) as caught:
            from_program_file(path)
        assert "torch.export.save" in caught.value.next
    lacking = altered(program, tmp_path / "lacking.pt2", lambda n, d: None if n == "models/model.json" else d)
    with pytest.raises(ProgramRefused):
        from_program_file(lacking)


def test_saving_for_another_process(tmp_path: Path) -> None:
    """Fixed sizes, names, samples, and what PyTorch gives for them; the file goes through again."""
    samples = [
        {"ids": torch.randint(0, 20, (2, 5)), "mask": torch.zeros(2, 5, dtype=torch.bool)} for _ in range(2)
    ]
    model = from_factory("torch_models:encoder")
    model = TorchModel(
        model.module,
        (),
        model.kwargs,
        model.dynamic_shapes,
        calibration=[{**s, "scale": 2.0} for s in samples],
    )
    fixed = fix_sizes(checked(model), {"batch": 2, "ids": (2, 5)})
    assert {name: array.shape for name, array in fixed.example.items()} == {"ids": (2, 5), "mask": (2, 5)}
    assert isinstance(fixed.calibration, list)
    assert [one["ids"].tolist() for one in fixed.calibration] == [one["ids"].tolist() for one in samples]
    found = fixed.answer(fixed.calibration[1])
    assert set(found) == set(fixed.output_names)
    assert isinstance(model.module, nn.Module)
    with torch.no_grad():
        again = model.module.eval()(samples[1]["ids"], samples[1]["mask"], 2.0)[0]
    assert np.abs(found["output_0"] - again.numpy()).max() < 1e-5
    fixed.save(tmp_path / "fixed.pt2")
    loaded = from_program_file(tmp_path / "fixed.pt2")
    nodes = [node for node in loaded.module.graph.nodes if node.op == "call_function"]  # type: ignore[union-attr]
    paths = {
        list(node.meta["nn_module_stack"].values())[-1][0] for node in nodes if "nn_module_stack" in node.meta
    }
    assert any("attention" in str(path) for path in paths)
    exported = export(loaded)
    assert (exported.inputs, exported.outputs) == (fixed.input_names, fixed.output_names)
    assert read(exported.path).graph.inputs["ids"].shape == (2, 5)
    for sizes, reason in (({"ids": (2, 5, 1)}, "2 axes"), ({"heads": 3}, "batch, seq")):
        with pytest.raises(UsageError, match="cannot be") as refused:
            fix_sizes(checked(model), sizes)
        assert reason in refused.value.why
    with pytest.raises(UsageError, match="cannot be"):
        fix_sizes(loaded, {"ids": (2, 6)})


def test_a_program_without_names_of_ours() -> None:
    """An ExportedProgram in Python is a model, too."""
    captured = torch.export.export(torch_models.LogOfSmall(), (torch.ones(3),))
    found = export(describe(captured, None, {"output_names": ["log"]}, "captured"))
    assert (found.inputs, found.outputs) == (("x",), ("log",))
