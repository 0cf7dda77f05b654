"""What stands in the way of an export is said with the user's own line, the operator and the module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_models
from hexport.errors import HexportError, MissingDependency, UsageError
from hexport.torch import TorchModel, failures
from hexport.torch.description import checked, describe
from hexport.torch.exporting import export
from hexport.torch.factories import from_factory
from hexport.torch.opening import is_torch, read_description
from hexport.zoo.models import locate, resolve, stem_of

pytestmark = pytest.mark.usefixtures("cache")
SOURCE = Path(torch_models.__file__)
MARK = "# the line of the error"


def line_of(code: str) -> str:
    """Where a marked line of the models is, as errors say it."""
    lines = SOURCE.read_text("utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if code in line and MARK in line)
    return f"{SOURCE}:{number}: {lines[number - 1].strip()}"


def failure(module: nn.Module, example: Any, **extras: Any) -> HexportError:
    with pytest.raises(HexportError) as caught:
        export(describe(module, example, extras, "the model"))
    return caught.value


def test_control_flow_that_depends_on_values(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(failures.DataDependent) as caught:
        locate("torch_models:branching")
    error = caught.value
    assert line_of("if y.sum() > 0") in error.why
    assert "in module parts.1" in error.why
    assert "torch.cond" in error.next
    out, err = capfd.readouterr()
    assert out == ""
    # The user's own words are kept, torch's are not.
    assert "a user's own words" in err
    assert "graph" not in err.lower().replace("exporting from pytorch", "")


def test_an_operator_without_a_form_in_onnx() -> None:
    error = failure(torch_models.Wrapped(torch_models.WithSvd()), (torch.randn(3, 3),))
    assert isinstance(error, failures.NoOnnxForm)
    assert "_linalg_svd" in error.what
    assert line_of("torch.linalg.svd") in error.why
    assert "in module parts.1" in error.why


def test_a_buffer_that_changes() -> None:
    error = failure(torch_models.Wrapped(torch_models.Counting()), (torch.ones(2, 4),))
    assert isinstance(error, failures.HasState)
    assert "parts.1.seen" in error.what
    assert line_of("self.seen.add_") in error.why
    assert "input of forward" in error.next


def test_what_pytorch_itself_refuses() -> None:
    error = failure(torch_models.Wrapped(torch_models.Misspelt()), (torch.ones(2, 4),))
    assert isinstance(error, failures.EagerFailed)
    assert line_of("self.fc(x[:, :3])") in error.why
    assert "in module parts.1.fc" in error.why
    assert "[2, 4]" in error.what


def test_random_numbers() -> None:
    error = failure(torch_models.Noisy(), (torch.ones(2, 4),))
    assert isinstance(error, failures.ExportDiffers)
    assert "random" in error.why


def test_dynamic_shapes_that_do_not_go() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    error = failure(flat, (torch.randn(2, 3, 4),), dynamic_shapes={"input": {1: "rows"}})
    assert isinstance(error, failures.BadDynamicShapes)
    assert "axis 1 of input" in error.why
    linear = nn.Linear(4, 4)
    for shapes, word in (
        ({"x": {0: "batch"}}, "'x'"),
        ({"input": {7: "batch"}}, "axis 7"),
        ({"input": "batch"}, "'batch'"),
        (({0: "a"}, {0: "b"}), "2"),
    ):
        error = failure(linear, (torch.ones(2, 4),), dynamic_shapes=shapes)
        assert isinstance(error, failures.BadDynamicShapes)
        assert word in error.what


@pytest.mark.parametrize(
    ("module", "example", "words"),
    [
        (nn.Linear(2, 2), None, "without example inputs"),
        (nn.Linear(2, 2), {"x": torch.ones(1, 2)}, "do not go with forward"),
        (nn.Linear(2, 2), (torch.ones(1, 2).numpy(),), "ndarray"),
        (nn.Linear(2, 2), "text", "are a str"),
        (nn.Linear(2, 2).bfloat16(), (torch.ones(1, 2),), "bfloat16"),
        (nn.Linear(2, 2).to("meta"), (torch.ones(1, 2),), "meta"),
        ("no module", (torch.ones(1, 2),), "no torch.nn.Module"),
    ],
)
def test_descriptions_that_make_no_sense(module: Any, example: Any, words: str) -> None:
    with pytest.raises(failures.FactoryFailed) as caught:
        describe(module, example, {}, "it")
    assert words in caught.value.what
    assert caught.value.next


def test_outputs_that_are_no_tensors() -> None:
    class Size(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"x": x, "size": [x.shape[0]]}

    error = failure(Size(), (torch.ones(2, 4),))
    assert isinstance(error, failures.NotCaptured)
    assert "result['size'][0]" in error.what


def test_factories_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(failures.FactoryFailed) as caught:
        from_factory("torch_models:broken")
    assert line_of('empty["no such model"]') in caught.value.why
    for name, words in (
        ("torch_models:nothing_there", "has no 'nothing_there'"),
        ("torch_models:alone", "a module without example inputs"),
        ("torch_models:misdescribed", "'calibrations'"),
        ("torch_models:SOURCE", "has no"),
        ("torch_models:Made", "gave a tuple"),
        ("no_such_module:make", "cannot be imported"),
        (f"{tmp_path}/none.py:make", "does not exist"),
    ):
        with pytest.raises(failures.FactoryFailed) as caught:
            from_factory(name)
        assert words in caught.value.what
    (tmp_path / "typo.py").write_text("import torch\ndef make(:\n", "utf-8")
    with pytest.raises(failures.FactoryFailed) as caught:
        from_factory(f"{tmp_path / 'typo.py'}:make")
    assert f"{tmp_path / 'typo.py'}:2" in caught.value.why
    assert "_hexport_user_typo" not in sys.modules


def test_a_factory_in_a_file_with_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's neighbours can be imported, and a file may be called like a module of Python's."""
    (tmp_path / "layers_beside.py").write_text("from torch import nn\nlayer = nn.Linear(2, 2)\n", "utf-8")
    text = "import torch, layers_beside\ndef make():\n    return layers_beside.layer, torch.ones(1, 2)\n"
    (tmp_path / "queue.py").write_text(text, "utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    model = from_factory(f"{tmp_path / 'queue.py'}:make")
    assert isinstance(model.module, nn.Linear)
    assert "Queue" in dir(__import__("queue"))


def test_which_names_are_pytorchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "net:make",
        "a.b:c.d",
        "net.py:make",
        "x/net.py:make",
        "C:\\x\\net.py:make",
        "m.pt2",
        "m.pth",
    ):
        assert is_torch(name)
    for name in (
        "model.onnx",
        "C:model.onnx",
        "D:models/m.onnx",
        "plain",
        "net.py",
        ":make",
        "net:",
        "a b:c",
    ):
        assert not is_torch(name)
    assert [stem_of(n) for n in ("a.b:make", "x/net.py:make", "x/m.pt2", "zoo:silero", "d/m.onnx")] == [
        "make",
        "make",
        "m",
        "silero",
        "m",
    ]
    if sys.platform != "win32":
        Path("odd:name").write_text("", "utf-8")
        assert resolve("odd:name") == Path("odd:name")


def test_a_bare_pickle_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pth")
    with pytest.raises(failures.ProgramRefused, match="pickle") as caught:
        resolve(tmp_path / "weights.pth")
    assert "MODULE:FACTORY" in caught.value.next


def test_names_that_do_not_fit() -> None:
    model = TorchModel(nn.Linear(2, 2), (torch.ones(1, 2),), output_names=("a", "b"))
    with pytest.raises(UsageError, match="output_names"):
        export(checked(model))


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("net:make", "model.pt2"):
        with pytest.raises(MissingDependency) as caught:
            read_description(name)
        assert caught.value.next == "pip install 'hexport[torch]'"
