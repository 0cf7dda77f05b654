"""Reading models: what is good is understood, what is bad is named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models as small
from hexport.model import (
    ExternalDataMissing,
    NotOnnx,
    TensorType,
    TooLarge,
    UnreadableModel,
    read,
)
from hexport.model.macs import macs
from hexport.model.onnx_proto import message_class
from hexport.model.staging import stage


def test_reads_nodes_inputs_and_constants(tmp_path: Path) -> None:
    model = read(small.save(small.conv_relu("N"), tmp_path / "m.onnx"))
    assert [(n.name, n.op) for n in model.graph.nodes] == [("conv", "Conv"), ("relu", "Relu")]
    assert model.graph.inputs == {"x": TensorType("float32", ("N", 3, 16, 16))}
    assert model.graph.constants == {"w": TensorType("float32", (8, 3, 3, 3))}
    assert model.graph.nodes[0].attributes["pads"] == (1, 1, 1, 1)
    assert model.opsets == {"ai.onnx": 17}


@pytest.mark.parametrize("dim", [None, 0, -1])
def test_every_spelling_of_unknown_is_unknown(tmp_path: Path, dim: int | None) -> None:
    proto = small.conv_relu()
    first = proto.graph.input[0].type.tensor_type.shape.dim[0]
    first.Clear()
    if dim is not None:
        first.dim_value = dim
    assert read(small.save(proto, tmp_path / "m.onnx")).graph.inputs["x"].shape == (None, 3, 16, 16)


def test_initializers_that_are_also_inputs_are_not_inputs(tmp_path: Path) -> None:
    proto = small.conv_relu()
    proto.graph.input.append(small.value("w", [8, 3, 3, 3]))
    assert list(read(small.save(proto, tmp_path / "m.onnx")).graph.inputs) == ["x"]


def test_unnamed_and_twice_named_nodes_get_names_of_their_own(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=name)
        for i, name in enumerate(["", "a", "a", "", "Relu#0"])
    ]
    path = small.save(
        small.model(nodes, [small.value("t0", [1])], [small.value("t5", [1])]), tmp_path / "m.onnx"
    )
    names = [node.name for node in read(path).graph.nodes]
    assert names == ["Relu#0'", "a", "a#2", "Relu#3", "Relu#0"]


def test_bodies_are_read(tmp_path: Path) -> None:
    then = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], name="inner")], "then", [], [small.value("r", [2])]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "else", [], [small.value("n", [2])])
    node = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=other)
    inputs = [small.value("x", [2]), small.value("c", [], onnx.TensorProto.BOOL)]
    graph = read(small.save(small.model([node], inputs, [small.value("y", [2])]), tmp_path / "m.onnx")).graph
    assert [n.name for n in graph.walk()] == ["choose", "Neg#1", "inner"]  # make_node sorts attributes
    assert graph.inputs["c"] == TensorType("bool", ())


def test_staging_changes_shapes_and_names_and_nothing_else(tmp_path: Path) -> None:
    proto = small.conv_relu("N")
    helper.set_model_props(proto, {"author": "tester"})
    model = read(small.save(proto, tmp_path / "m.onnx"))
    staged = onnx.load(stage(model, {"x": (4, 3, 16, 16)}, tmp_path).model)
    assert [d.dim_value for d in staged.graph.input[0].type.tensor_type.shape.dim] == [4, 3, 16, 16]
    staged.graph.input[0].CopyFrom(proto.graph.input[0])
    assert staged == proto


def test_unknown_fields_survive(tmp_path: Path) -> None:
    """hexport declares a part of ONNX only; the rest must come through byte for byte."""
    proto = small.conv_relu()
    proto.graph.doc_string = "kept"
    proto.graph.node[0].doc_string = "kept too"
    parsed = message_class("ModelProto")()
    parsed.ParseFromString(proto.SerializeToString())
    assert onnx.ModelProto.FromString(parsed.SerializeToString()) == proto


# ---- bad files


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="does not exist"):
        read(tmp_path / "no.onnx")


def test_folder_names_a_model_in_it(tmp_path: Path) -> None:
    small.save(small.conv_relu(), tmp_path / "in here.onnx")
    with pytest.raises(UnreadableModel, match="is a folder") as caught:
        read(tmp_path)
    assert "in here.onnx" in caught.value.next


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    path.chmod(0)
    with pytest.raises(UnreadableModel, match="may not be read"):
        read(path)


def test_no_permission_as_any_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UnreadableModel, match="may not be read"):
        read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\x00" * 100, "not an ONNX model"),
        (b"hello, I am a text file\n" * 20, "not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "Git LFS pointer"),
        (b"\x08\x07", "holds no graph"),
    ],
)
def test_not_onnx(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(NotOnnx, match=says):
        read(path)


def test_truncated(tmp_path: Path) -> None:
    whole = small.conv_relu().SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(1, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(NotOnnx):
            read(path)


def test_over_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(2**31 + 10)  # sparse: takes no disk
    with pytest.raises(TooLarge, match=r"2\.0 GB") as caught:
        read(path)
    assert "external data" in caught.value.next


def test_broken_text(tmp_path: Path) -> None:
    broken = small.conv_relu().SerializeToString().replace(b"relu", b"\xff\xfe\xff\xfe")
    path = tmp_path / "m.onnx"
    path.write_bytes(broken)
    with pytest.raises(NotOnnx, match="not a sound"):
        read(path)


def _with_external_data(tmp_path: Path, location: str = "weights.bin") -> Path:
    proto = small.conv_relu()
    tensor = proto.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(len(raw)))):
        tensor.external_data.add(key=key, value=text)
    (tmp_path / "weights.bin").write_bytes(raw)
    return small.save(proto, tmp_path / "m.onnx")


def test_external_data_found(tmp_path: Path) -> None:
    assert read(_with_external_data(tmp_path)).graph.constants["w"].shape == (8, 3, 3, 3)


def test_external_data_missing(tmp_path: Path) -> None:
    path = _with_external_data(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ExternalDataMissing, match=r"weights\.bin"):
        read(path)


def test_external_data_too_short(tmp_path: Path) -> None:
    path = _with_external_data(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(ExternalDataMissing) as caught:
        read(path)
    assert "864 are needed" in caught.value.why


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", ""])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    with pytest.raises(ExternalDataMissing, match="keeps weights in"):
        read(_with_external_data(tmp_path, location))


# ---- multiply-accumulates


def _macs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int | None:
    path_model = small.model([node], [], [])
    from hexport.model.reading import _node

    parsed = message_class("NodeProto")()
    parsed.ParseFromString(path_model.graph.node[0].SerializeToString())
    return macs(_node(parsed), {name: TensorType("float32", shape) for name, shape in shapes.items()})


@pytest.mark.parametrize(
    ("node", "shapes", "expected"),
    [
        # each expectation is written out as outputs × products an output
        (
            helper.make_node("Conv", ["x", "w"], ["y"]),
            {"w": (8, 3, 3, 3), "y": (1, 8, 16, 16)},
            (8 * 16 * 16) * (3 * 9),
        ),
        (
            helper.make_node("Conv", ["x", "w"], ["y"], group=8),
            {"w": (8, 1, 3, 3), "y": (1, 8, 4, 4)},
            (8 * 16) * 9,
        ),
        (
            helper.make_node("ConvTranspose", ["x", "w"], ["y"]),
            {"x": (1, 4, 5, 5), "w": (4, 2, 2, 2)},
            (4 * 25) * (2 * 4),
        ),
        (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (2, 5, 7), "y": (2, 5, 3)}, (2 * 5 * 3) * 7),
        (helper.make_node("Gemm", ["a", "b"], ["y"]), {"a": (5, 7), "y": (5, 3)}, 5 * 3 * 7),
        (helper.make_node("Gemm", ["a", "b"], ["y"], transA=1), {"a": (7, 5), "y": (5, 3)}, 5 * 3 * 7),
        (
            helper.make_node("LSTM", ["x", "w", "r"], ["y"]),
            {"x": (10, 1, 6), "w": (1, 4 * 8, 6)},
            10 * (4 * 8) * (6 + 8),
        ),
        (
            helper.make_node("GRU", ["x", "w", "r"], ["y"]),
            {"x": (10, 2, 6), "w": (2, 3 * 8, 6)},
            10 * 2 * 2 * (3 * 8) * (6 + 8),
        ),
        (
            helper.make_node("Einsum", ["a", "b"], ["y"], equation="bij,bjk->bik"),
            {"a": (2, 3, 4), "b": (2, 4, 5)},
            2 * 3 * 4 * 5,
        ),
        (helper.make_node("Relu", ["x"], ["y"]), {}, 0),
        (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (2, 5)}, None),
    ],
)
def test_macs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]], expected: int | None) -> None:
    assert _macs(node, shapes) == expected


def test_macs_count_real_work() -> None:
    """The count for a MatMul is the number of products that the plain triple loop does."""
    a, b = np.ones((3, 4)), np.ones((4, 5))
    products = sum(1 for i in range(3) for j in range(5) for _ in zip(a[i], b[:, j], strict=True))
    assert _macs(helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (3, 4), "y": (3, 5)}) == products
