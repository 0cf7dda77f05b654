"""PyTorch through the whole house: every verb takes a module's name, and reports speak of modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import hexport
import torch_models
from hexport import facts
from hexport.building.order import Order, take_order
from hexport.building.wishes import Wishes
from hexport.cli.build import command as build_command
from hexport.cli.check import command as check_command
from hexport.errors import UsageError
from hexport.observe.comparing import compare
from hexport.packaging import open_package
from hexport.quantization.data import open_calibration
from hexport.torch import TorchModel
from hexport.torch.calibrating import calibration_of
from hexport.torch.exporting import export
from hexport.torch.factories import from_factory

TARGET = "SM8650"
HERE = Path(torch_models.__file__)
pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(not facts.simulates_npu(facts.current_platform()), reason="needs the simulator"),
]


@pytest.fixture(scope="module")
def built(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From the command line, by the factory's file; one layer stays in float, by its module's path."""
    output = tmp_path_factory.mktemp("built") / "pkg"
    done = invoke(
        build_command,
        f"{HERE}:cnn",
        "-o",
        output,
        *("--target", TARGET, "--scheme", "16a8w", "--keep-float", r"stages\.0\.conv/.*", "--json"),
    )
    assert done.exit_code == 0, done.output
    return output


def invoke(command: Any, *arguments: object) -> Result:
    return CliRunner().invoke(
        command, list(map(str, arguments)), standalone_mode=False, catch_exceptions=False
    )


def eager(module: torch.nn.Module, image: torch.Tensor) -> dict[str, Any]:
    with torch.no_grad():
        return {name: tensor.numpy() for name, tensor in module.eval()(image).items()}


def test_a_package_answers_as_the_module_does(built: Path) -> None:
    module, _, _ = torch_models.cnn()
    images = [torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    expected = [eager(module, image) for image in images]
    for backend, least in (("simulator", 40.0), ("cpu", 90.0)):
        with hexport.load(built, backend) as session:
            got = [session.run({"image": image.numpy()}) for image in images]
        assert compare(expected, got).sqnr_db > least


def test_the_report_speaks_of_modules(built: Path) -> None:
    report = json.loads((built / "report.json").read_text("utf-8"))
    (step,) = report["steps"].values()
    assert list(step["float_nodes"]) == ["stages.0.conv/Conv_output_0"]
    manifest = open_package(built).manifest
    said = "\n".join(manifest.notes)
    assert "the samples that come with the model are used" in said
    assert "it was in training mode" in said
    assert "compared with PyTorch on the example inputs: " in said
    assert list(manifest.contract.inputs) == ["image"] or [i.name for i in manifest.contract.inputs] == [
        "image"
    ]


def test_preparing_and_checking_keep_the_names(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared.onnx"
    hexport.prepare("torch_models:cnn", output=prepared, target=TARGET)
    from hexport.model import read

    names = [node.name for node in read(prepared).graph.nodes]
    for path in ("stem", "stages.0.conv", "stages.0", "stages.1.conv", "stages.1", "head"):
        assert any(name.startswith(f"{path}/") for name in names)
    done = invoke(check_command, "torch_models:cnn", "--target", TARGET, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["model"] == "torch_models:cnn"
    assert "compared with PyTorch" in done.stderr


def test_a_module_in_python(tmp_path: Path) -> None:
    """Without samples it is built in fp16, and verified on its own example."""
    module, example, _ = torch_models.cnn()
    result = hexport.build(module, example, output=tmp_path / "pkg", targets=[TARGET])
    assert result.met
    notes = result.manifest.notes
    assert "it is verified on the example inputs that came with the model" in notes
    assert not any("random" in note for note in notes)
    assert module.training
    with hexport.load(tmp_path / "pkg", "simulator") as session:
        got = session.run({"image": example[0].numpy()})
    assert compare([eager(module, example[0])], [got]).sqnr_db > 50


def ordered(model: Any, wishes: Wishes, tmp_path: Path, calib: object = None, **sizes: Any) -> Order:
    dims, buckets = sizes.get("dims", {}), sizes.get("buckets")
    return take_order(model, tmp_path / "pkg", [TARGET], wishes, calib, dims, {}, None, buckets, {}, None)


def test_buckets_by_the_names_of_dims(tmp_path: Path) -> None:
    order = ordered("torch_models:encoder", Wishes(""), tmp_path, dims={"batch": 1}, buckets={"seq": [4, 8]})
    assert [sizes.shapes["ids"] for sizes in order.buckets] == [(1, 4), (1, 8)]
    assert order.calib is None
    assert order.wishes.scheme == "fp16"
    alone = ordered("torch_models:encoder", Wishes(""), tmp_path, dims={"batch": 1, "seq": 8})
    assert isinstance(alone.calib, list)
    assert alone.calib[0]["ids"].shape == (1, 8)


def measure(outputs: Any, inputs: Any) -> float:
    return float(len(outputs))


def test_its_own_samples_and_metric(tmp_path: Path) -> None:
    """They are used where the user gives none, and that is said."""
    module, example, extras = torch_models.cnn()
    model = TorchModel(module, example, **extras, metric=measure, max_drop=0.5, name="mine")
    order = ordered(model, Wishes(""), tmp_path)
    assert (order.wishes.scheme, order.wishes.metric, order.wishes.max_drop) == ("auto", measure, 0.5)
    assert any("no --metric was given" in note for note in order.notes)
    with open_calibration(order.calib, order.graph, order.buckets[-1].shapes, {}) as data:
        samples = [sample["image"] for sample in data]
        assert data.description == "mine:calibration"
    assert np.array_equal(samples, [image.numpy() for image in torch_models.images(6)])
    # The user's own goal comes first, and a metric without a bound is no goal.
    assert ordered(model, Wishes("", min_sqnr=30.0), tmp_path).wishes.metric is None
    unbound = ordered(TorchModel(module, example, **extras, metric=measure), Wishes(""), tmp_path)
    assert unbound.wishes.metric is None
    assert any("--max-drop" in note for note in unbound.notes)
    given = ordered(model, Wishes(""), tmp_path, calib=[{"image": samples[0]}])
    assert not any("--calib" in note for note in given.notes)


def test_forms_of_samples() -> None:
    """As the module takes them, by name, or as they come from a data loader."""
    model = from_factory("torch_models:encoder")
    signature = export(model).signature
    ids, mask = model.kwargs["ids"], model.kwargs["mask"]
    for sample in ({"ids": ids, "mask": mask}, {"ids": ids, "mask": mask, "scale": 2.0}, (ids, mask, 2.0)):
        for form in ([sample], lambda one=sample: iter([one]), iter([sample]), torch.utils.data.DataLoader):
            source = form([sample], batch_size=None) if isinstance(form, type) else form
            described = TorchModel(model.module, (), model.kwargs, calibration=source)
            found: Any = calibration_of(described, signature)
            (first,) = found() if callable(found) else found
            assert set(first) == {"ids", "mask"}
            assert np.array_equal(first["ids"], ids.numpy())


def test_example_inputs_are_for_modules(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is none"):
        hexport.build("model.onnx", torch.ones(1), output=tmp_path / "pkg", targets=[TARGET])
