"""PyTorch to a .pte by one command: the real ExecuTorch, and the simulator beside PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from click.testing import CliRunner, Result

import hexport
import torch_models
from hexport.cli.build import command
from hexport.cli.verify import command as verify_command
from hexport.environments.record import Toolchain
from hexport.errors import BadSamples, UsageError
from hexport.executorch.building.samples import MOST_HELD, split_samples
from hexport.executorch.lowering.failures import NotDelegated
from hexport.executorch.lowering.options import LoweringOptions
from hexport.executorch.pte.sidecar import find_sidecar
from hexport.torch.factories import from_factory
from hexport.torch.fixing import FixedModel, fix_sizes
from hexport.verification.failures import NotVerifiable

HERE = Path(torch_models.__file__)
CHIP = "SM8650"


@pytest.fixture(autouse=True, scope="module")
def toolchain(executorch: Toolchain) -> Iterator[Toolchain]:
    """In force for every build here."""
    return executorch  # type: ignore[return-value]


def build(model: str, output: Path, *words: str) -> Result:
    return CliRunner().invoke(
        command,
        [model, "-o", str(output), "--format", "pte", "--target", CHIP, *words],
        standalone_mode=False,
        catch_exceptions=False,
    )


@pytest.fixture(scope="module")
def cnn(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """With the samples that its factory brings, and no scheme."""
    output = tmp_path_factory.mktemp("cnn") / "cnn.pte"
    done = build(f"{HERE}:cnn", output, "--json", "--keep-quantised")
    assert done.exit_code == 0, done.output
    return output, json.loads(done.output)


def test_one_command(cnn: tuple[Path, dict[str, Any]]) -> None:
    output, document = cnn
    verified = document["verified"]["forward"]
    assert (document["met"], document["description"]["scheme"]) == (True, "16a8w")
    assert verified["sqnr_db"] > 30
    assert "gave no range" in verified["inputs"]
    assert any("no --scheme was given" in note for note in document["description"]["notes"])
    described = find_sidecar(output)
    assert described is not None
    (method,) = described.methods
    assert (method.program, method.program_sha256) == (f"{HERE}:cnn", "")
    assert ([one.name for one in method.inputs], [one.name for one in method.outputs]) == (
        ["image"],
        ["logits"],
    )
    assert described.verified == {"forward": verified["sqnr_db"]}
    assert output.with_name("cnn.qdq.pt2").is_file()
    assert sorted(path.name for path in output.parent.iterdir()) == ["cnn.pte", "cnn.pte.json", "cnn.qdq.pt2"]


def test_code_is_run_only_when_it_is_named(cnn: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    output, _ = cnn
    with pytest.raises(NotVerifiable, match="which is code"):
        hexport.verify(output)
    np.savez(tmp_path / "in.npz", image=np.stack([one.numpy() for one in torch_models.images(2)]))
    done = CliRunner().invoke(
        verify_command,
        [str(output), "--program", f"{HERE}:cnn", "--inputs", str(tmp_path / "in.npz"), "--json"],
        standalone_mode=False,
        catch_exceptions=False,
    )
    document = json.loads(done.output)
    assert document["passed"]
    assert document["outputs"][0]["sqnr_db"] > 30
    assert document["qdq_outputs"]
    with pytest.raises(UsageError, match="cannot be"):
        hexport.verify(output, program=f"{HERE}:encoder")


@pytest.mark.parametrize(("goal", "scheme"), [(20, "8a8w"), (200, "fp16")])
def test_auto_takes_the_smallest_that_is_close_enough(goal: float, scheme: str, tmp_path: Path) -> None:
    """Or the closest, if none is."""
    module, example, extras = torch_models.cnn()
    model = hexport.torch.TorchModel(module, example, **extras)
    done = hexport.build_pte(model, output=tmp_path / "m.pte", target=CHIP, scheme="auto", min_sqnr=goal)
    assert (done.lowered.description.scheme, done.met) == (scheme, goal < 100)
    if not done.met:
        assert set(done.tried) == {"8a8w", "16a8w", "fp16"}
        assert max(done.tried, key=lambda one: done.tried[one]) == scheme


def test_a_goal_that_is_missed_is_exit_1_and_the_file_is_there(tmp_path: Path) -> None:
    module, example, _ = torch_models.cnn()
    done = hexport.build_pte(module, example, output=tmp_path / "m.pte", target=CHIP, min_sqnr=150)
    assert not done.met
    assert (tmp_path / "m.pte").is_file()
    assert any("no samples" in note for note in done.lowered.notes)


def test_methods_by_the_names_of_dims(tmp_path: Path) -> None:
    done = build(
        f"{HERE}:encoder",
        tmp_path / "m.pte",
        "--json",
        "--method",
        "short:batch=1;seq=4",
        "--method",
        "long:ids=1x8",
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert {name: one["sqnr_db"] > 30 for name, one in document["verified"].items()} == {
        "short": True,
        "long": True,
    }
    sizes = {one["name"]: one["inputs"][0]["shape"] for one in document["description"]["methods"]}
    assert sizes == {"short": [1, 4], "long": [1, 8]}


def test_what_stays_on_the_cpu_is_told_with_its_module(tmp_path: Path) -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.erf(x)

    module = torch.nn.Sequential(torch.nn.Linear(8, 8), Inner(), torch.nn.Linear(8, 8))
    with pytest.raises(NotDelegated) as refused:
        hexport.build_pte(
            module,
            (torch.randn(2, 8),),
            output=tmp_path / "m.pte",
            target=CHIP,
            options=LoweringOptions(allow_cpu=False),
        )
    assert "aten.erf" in refused.value.why
    assert "in 1" in refused.value.why
    assert __file__ in refused.value.why or Path(__file__).name in refused.value.why
    assert refused.value.next
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "output", "words", "said"),
    [
        ("model.onnx", "m.pte", (), "takes PyTorch models"),
        ("zoo:magika", "m.pte", (), "takes PyTorch models"),
        (f"{HERE}:cnn", "m.onnx", (), "no name of a .pte"),
        (f"{HERE}:cnn", "m.pte", ("--target", "SM8550"), "one chip"),
        (f"{HERE}:cnn", "m.pte", ("--bucket", "seq=4"), "--bucket is not for --format pte"),
        (f"{HERE}:cnn", "m.pte", ("--effort", "high"), "--effort is not for --format pte"),
        (f"{HERE}:cnn", "m.pte", ("--dim", "seq=4"), "cannot be"),
        (f"{HERE}:cnn", "none/m.pte", (), "cannot be written"),
    ],
)
def test_what_does_not_go_together(
    model: str, output: str, words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        build(model, tmp_path / output, *words)
    assert not list(tmp_path.iterdir())


def test_options_of_the_other_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--saver is an option of --format pte"):
        CliRunner().invoke(
            command,
            [f"{HERE}:cnn", "-o", str(tmp_path / "p"), "--target", CHIP, "--saver"],
            standalone_mode=False,
            catch_exceptions=False,
        )


@pytest.fixture(scope="module")
def fixed() -> FixedModel:
    return fix_sizes(from_factory("torch_models:cnn"))


@pytest.mark.parametrize(("count", "held", "fit"), [(2, 2, 2), (6, 1, 5), (40, MOST_HELD, 40 - MOST_HELD)])
def test_samples_are_held_back(count: int, held: int, fit: int, fixed: FixedModel) -> None:
    """The last ones; of few samples none, which is told."""
    samples = [{"image": image.numpy()} for image in torch_models.images(count)]
    found = split_samples(fixed, samples, None, None)
    assert (len(found.held), len(list(found.fit() if callable(found.fit) else found.fit))) == (held, fit)  # type: ignore[call-overload]
    assert np.array_equal(found.held[-1]["image"], samples[-1]["image"])
    assert ("too few" in found.origin) == (count < 4)


def test_without_samples_the_example_has_to_do(fixed: FixedModel) -> None:
    found = split_samples(fixed, None, None, None)
    assert (found.fit, len(found.held), "example" in found.origin) == (None, 1, True)
    blank = fix_sizes(hexport.torch.TorchModel(torch.nn.Linear(4, 2), (torch.zeros(1, 4),)))
    random = split_samples(blank, None, None, None)
    assert "random" in random.origin
    assert random.held[0]["input"].any()


def test_inputs_by_name_and_a_number_among_them(tmp_path: Path) -> None:
    """Samples have the names of forward's parameters, whatever the program calls its tensors."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, factor: float, y: torch.Tensor) -> torch.Tensor:
            return self.fc(x) * factor + y

    torch.manual_seed(0)
    samples = [{"x": torch.randn(2, 4), "factor": 3.0, "y": torch.randn(2, 4)} for _ in range(8)]
    model = hexport.torch.TorchModel(Scaled(), kwargs=samples[0], calibration=samples)
    done = hexport.build_pte(model, output=tmp_path / "m.pte", target=CHIP, scheme="16a8w", min_sqnr=35)
    assert done.met
    (method,) = done.lowered.description.methods
    assert [one.name for one in method.inputs] == ["x", "y"]


def test_float_needs_no_samples_of_the_model(tmp_path: Path) -> None:
    """It brings those of one size, and is lowered for another."""
    model = hexport.torch.TorchModel(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()),
        (torch.randn(2, 4),),
        dynamic_shapes=({0: "rows"},),
        calibration=[(torch.randn(2, 4),)] * 3,
    )
    done = hexport.build_pte(model, output=tmp_path / "m.pte", target=CHIP, scheme="fp16", dims={"rows": 3})
    assert "do not fit" in done.verified["forward"].origin
    with pytest.raises(BadSamples):
        hexport.build_pte(model, output=tmp_path / "n.pte", target=CHIP, scheme="8a8w", dims={"rows": 3})
