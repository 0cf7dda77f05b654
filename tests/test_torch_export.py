"""From a module to an ONNX file: that it answers as the module does, and keeps the user's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torch_models
from hexport.model import Model, read
from hexport.model.reference import cpu_session
from hexport.observe.comparing import compare
from hexport.torch import TorchModel
from hexport.torch.description import describe
from hexport.torch.exporting import Exported, export
from hexport.torch.factories import from_factory

pytestmark = pytest.mark.usefixtures("cache")


def exported(factory: str) -> tuple[TorchModel, Exported, Model]:
    """Through the factory's name, as on the command line."""
    model = from_factory(f"torch_models:{factory}")
    found = export(model)
    return model, found, read(found.path)


def answers(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = cpu_session(path)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, arrays), strict=True))


def assert_same(expected: dict[str, Any], got: dict[str, Any], least: float = 90.0) -> None:
    arrays = {name: tensor.detach().numpy() for name, tensor in expected.items()}
    assert set(arrays) == set(got)
    assert compare([arrays], [got]).sqnr_db > least


def test_convolutions_in_training_mode() -> None:
    """Dropout and batch normalisation are exported as they are deployed, and the module stays as it was."""
    model, found, source = exported("cnn")
    assert isinstance(model.module, nn.Module)
    assert model.module.training
    assert all(part.training for part in model.module.modules())
    assert "it was in training mode, and was exported in eval mode" in found.notes
    image = torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        expected = model.module.eval()(image)
    assert_same(expected, answers(found.path, {"image": image}))
    assert source.graph.inputs["image"].shape == (1, 3, 12, 12)
    assert source.opsets == {"ai.onnx": 18}


def test_names_of_nodes_are_module_paths() -> None:
    _, found, source = exported("cnn")
    names = [(node.name, node.op) for node in source.graph.nodes]
    assert ("stages.1.bn/BatchNormalization", "BatchNormalization") in names
    assert ("stages.0.conv/Conv", "Conv") in names
    assert ("head/Gemm", "Gemm") in names
    assert all("/" in name for name, _ in names)
    # What a node gives is named like it: fusions take such names for those of nodes.
    outputs = {output for node in source.graph.nodes for output in node.outputs}
    assert outputs - {"logits"} == {f"{name}_output_0" for name, op in names if op != "Gemm"}
    assert "stages.0.conv.weight" in source.graph.constants
    # Nothing of the machine it was made on is in the file.
    assert str(Path(torch_models.__file__).parent).encode() not in found.path.read_bytes()


def test_dynamic_dims_have_their_names() -> None:
    """The example is as long as a table in the module, which torch then takes whole."""
    model, found, source = exported("encoder")
    assert source.graph.inputs["ids"].shape == ("batch", "seq")
    assert source.graph.inputs["mask"].shape == ("batch", "seq")
    assert source.graph.outputs["output_0"].shape == ("batch", "seq", 8)
    assert source.graph.outputs["output_1_0"].shape == ("batch", 8)
    assert list(source.graph.outputs) == ["output_0", "output_1_0", "output_1_1"]
    said = "\n".join(found.notes)
    assert "scale is fixed in the graph: 2.0" in said
    assert "captured at batch=2, seq=7" in said
    assert "and at batch=2, seq=7: " in said
    assert isinstance(model.module, nn.Module)
    module = model.module.eval()
    for batch, length in ((1, 8), (3, 5), (2, 1)):
        ids = torch.randint(0, 20, (batch, length))
        mask = torch.zeros(batch, length, dtype=torch.bool)
        with torch.no_grad():
            first, (mean, weights) = module(ids, mask, scale=2.0)
        expected = {"output_0": first, "output_1_0": mean, "output_1_1": weights}
        assert_same(expected, answers(found.path, {"ids": ids, "mask": mask}))
    paths = {node.name.rpartition("/")[0] for node in source.graph.nodes}
    assert {"tokens", "attention", "norm", "mlp.0", "mlp.1", "mlp.2"} <= paths


def test_recurrent_layers_stay_whole() -> None:
    """One operator a layer, for any length; hexport's rules unroll them."""
    torch.manual_seed(0)
    module = torch_models.Recurrent().eval()
    shapes = {"x": {0: "batch", 1: torch.export.Dim("time", min=2, max=40)}}
    found = export(describe(module, torch.randn(1, 4, 4), {"dynamic_shapes": shapes}, "recurrent"))
    source = read(found.path)
    layers = [node for node in source.graph.nodes if node.op in ("GRU", "LSTM", "RNN")]
    assert [node.name for node in layers] == ["gru/GRU", "gru/GRU_1", "lstm/LSTM", "rnn/RNN"]
    # The gates are in ONNX's order already.
    assert all(name in source.graph.constants for node in layers for name in node.inputs[1:3])
    x = torch.randn(3, 9, 4)
    with torch.no_grad():
        steps, last, cell = module(x)
    expected = {"output_0": steps, "output_1": last, "output_2": cell}
    assert_same(expected, answers(found.path, {"x": x}))


def test_layers_after_a_recurrent_one_know_its_length() -> None:
    """torch would write the steps out when it infers shapes, and take the length for a number."""
    torch.manual_seed(0)
    shapes = {"dynamic_shapes": {"x": {1: "time"}}}
    found = export(describe(torch_models.Tagger().eval(), torch.randn(1, 10, 4), shapes, "tagger"))
    graph = read(found.path).graph
    assert (graph.inputs["x"].shape, graph.outputs["output"].shape) == ((1, "time", 4), (1, "time", 3))
    assert any("time=11" in note for note in found.notes)
    # And torch is left as it was.
    steps = torch._decomp.decomposition_table[torch.ops.aten.gru.input]
    assert steps.__module__.startswith("torch")


def test_shared_weights_dicts_and_branches() -> None:
    torch.manual_seed(0)
    module = torch_models.Shared().eval()
    ids = torch.randint(0, 11, (2, 5))
    model = TorchModel(module, ({"ids": ids},), {"sure": True}, name="shared")
    found = export(model)
    source = read(found.path)
    assert found.inputs == ("batch_ids",)
    assert found.outputs == ("scores", "ids")
    assert "sure is fixed in the graph: True" in found.notes
    names = [node.name for node in source.graph.walk()]
    assert {"twice/MatMul", "twice/MatMul_1"} <= set(names)
    tables = [t for t in source.graph.constants.values() if t.shape in ((11, 6), (6, 11))]
    assert found.path.stat().st_size < 20_000
    assert len(tables) <= 2
    with torch.no_grad():
        expected = module({"ids": ids}, sure=True)
    got = answers(found.path, {"batch_ids": ids})
    assert_same({"scores": expected["scores"], "ids": ids}, got)


def test_small_numbers_are_not_tidied_away() -> None:
    """torch's own optimiser takes x + 1e-8 for x, and gives minus infinity."""
    found = export(describe(torch_models.LogOfSmall(), (torch.tensor([1.0, 2.0]),), {}, "log"))
    (got,) = answers(found.path, {"x": torch.tensor([-1.0, 0.0])}).values()
    assert got == pytest.approx(np.log(1e-8), rel=1e-6)


def test_names_of_the_users_own() -> None:
    extras = {"input_names": ["left"], "output_names": ["right"], "name": "mine"}
    model = describe(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), {"input": torch.randn(2, 3)}, extras)
    found = export(model)
    source = read(found.path)
    assert (list(source.graph.inputs), list(source.graph.outputs)) == (["left"], ["right"])
    assert str(model) == "mine"


def test_the_same_program_is_written_once(cache: Path) -> None:
    """The factory is called and captured anew each time; the store knows the program."""
    _, first, _ = exported("cnn")
    entries = set((cache / "steps" / "torch").iterdir())
    _, second, _ = exported("cnn")
    assert second.path == first.path
    assert set((cache / "steps" / "torch").iterdir()) == entries
    model = torch_models.cnn()
    with torch.no_grad():
        model[0].head.bias += 1  # type: ignore[union-attr, operator]
    third = export(describe(*model[:2], name="other weights"))
    assert third.path != first.path
