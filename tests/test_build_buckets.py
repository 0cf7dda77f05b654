"""Buckets: sizes proposed and combined, padding proved, one set of weights for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import sized_models as sized
import small_models as small
from hexport.building.buckets import Sizes, expand, propose
from hexport.building.cropping import NoRule, find_crops, find_rule
from hexport.building.sharing import adopt
from hexport.building.verb import Built, build
from hexport.errors import UsageError
from hexport.model import Graph, TensorType
from hexport.packaging.manifest import CONTEXT_BINARY, SOURCE_MODEL, Contract, Crop
from hexport.runtime.padding import cut, pad, real_size

pytestmark = pytest.mark.usefixtures("cache")

TARGET = "SM8650"
Array = np.ndarray


def graph_of(**inputs: tuple[int | str, ...]) -> Graph:
    made = {name: TensorType("float32", shape) for name, shape in inputs.items()}
    return Graph(inputs=made, outputs={}, nodes=(), constants={})


# ---- sizes


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60))
def test_proposed_buckets_fit_every_sample(sizes: list[int]) -> None:
    graph = graph_of(x=("n", 3))
    proposed = propose(graph, [{"x": (size, 3)} for size in sizes])["n"]
    assert proposed == sorted(set(proposed))
    assert 1 <= len(proposed) <= 4
    assert proposed[-1] >= max(sizes)
    assert proposed[-1] < max(sizes) + 8
    assert all(size % 8 == 0 or size in sizes for size in proposed)
    # Each is the best for somebody: a sample lies between it and the one before.
    for before, end in zip([0, *proposed], proposed, strict=False):
        assert any(before < size <= end for size in sizes)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
)
def test_dims_combine_smallest_first(heights: list[int], widths: list[int]) -> None:
    graph = graph_of(x=("h", "w.1", 3), z=("h", "batch"))
    found = expand(graph, {"h": heights, "w.1": widths}, {"batch": 2}, {}, "hexport build")
    assert len(found) == len(set(heights)) * len(set(widths))
    assert {(s.dims["h"], s.dims["w.1"]) for s in found} == {(h, w) for h in heights for w in widths}
    assert len({s.name for s in found}) == len(found)
    assert [s.volume for s in found] == sorted(s.volume for s in found)
    assert (found[-1].dims["h"], found[-1].dims["w.1"]) == (max(heights), max(widths))
    for s in found:
        assert s.shapes == {"x": (s.dims["h"], s.dims["w.1"], 3), "z": (s.dims["h"], 2)}
        assert s.name.replace("-", "").replace("_", "").isalnum()


def test_a_dim_called_like_a_device_of_windows_is_no_file_of_that_name() -> None:
    (found,) = expand(graph_of(x=("com", 3)), {"com": [1]}, {}, {}, "hexport build")
    assert found.name == "com-1"


# ---- outputs that follow from inputs


@settings(max_examples=60)
@given(st.integers(1, 32), st.integers(1, 4), st.integers(0, 40), st.integers(2, 700), st.integers(1, 3))
def test_strides_are_recovered(divide: int, multiply: int, add: int, largest: int, taken: int) -> None:
    """Whatever floor or ceil made the sizes, the rule gives them all; also if the model takes few sizes."""

    def size_at(size: int) -> int:
        return (size * multiply + add) // divide

    def shapes_at(size: int) -> dict[str, tuple[int, ...]] | None:
        return {"y": (1, size_at(size))} if size % taken == largest % taken else None

    sizes = [size for size in range(1, largest + 1) if shapes_at(size)]
    if len(sizes) < 2 or (largest - 1 not in sizes and max(1, largest // 2) not in sizes and 1 not in sizes):
        return  # the model takes no other size that is asked for at first
    crops = find_crops("n", largest, shapes_at)
    if len({size_at(size) for size in sizes}) == 1:
        assert crops == ()
        return
    (crop,) = crops
    assert (crop.output, crop.axis, crop.dim) == ("y", 1, "n")
    asked_for_all = taken == 1
    if asked_for_all:
        assert [real_size(crop, {"n": size}) for size in sizes] == [size_at(size) for size in sizes]


@given(st.integers(1, 64), st.integers(2, 300))
def test_the_simplest_rule_is_taken(stride: int, largest: int) -> None:
    ceiled = find_rule([(size, -(-size // stride)) for size in range(1, largest + 1)])
    assert ceiled is not None
    if largest > stride:
        assert ceiled == (1, stride - 1, stride)


def test_sizes_that_follow_no_rule() -> None:
    with pytest.raises(NoRule, match="no rule gives its sizes"):
        find_crops("n", 9, lambda size: {"y": (size * size,)})
    with pytest.raises(NoRule, match="another number of dims"):
        find_crops("n", 9, lambda size: {"y": (1,) * (1 + size % 2)})
    with pytest.raises(NoRule, match="takes no other size"):
        find_crops("n", 9, lambda size: {"y": (9,)} if size == 9 else None)


# ---- filling up and cutting back


@given(st.data())
def test_what_is_filled_up_is_cut_back(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    wanted = tuple(size + data.draw(st.integers(0, 4)) for size in shape)
    dtype = data.draw(st.sampled_from([np.float32, np.int64, np.bool_]))
    value = data.draw(st.sampled_from([0, 1]))
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    filled = pad(array, wanted, dict.fromkeys(range(len(shape)), value))
    assert (filled.shape, filled.dtype) == (wanted, array.dtype)
    inside = tuple(slice(size) for size in shape)
    rest = np.ones(wanted, bool)
    rest[inside] = False
    assert (filled[rest] == value).all()
    crops = tuple(Crop("y", axis, f"d{axis}") for axis in range(len(shape)))
    contract = Contract((), (), crops=crops)
    back = cut({"y": filled}, contract, {f"d{axis}": size for axis, size in enumerate(shape)})["y"]
    np.testing.assert_array_equal(back, array)


def test_padding_never_cuts_and_never_guesses() -> None:
    with pytest.raises(ValueError, match="axis 0 has 4"):
        pad(np.zeros((4, 2)), (3, 2), {0: 0})
    with pytest.raises(ValueError, match="axis 1 has 2"):
        pad(np.zeros((4, 2)), (4, 3), {0: 0})


# ---- whole builds


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("attention")
    model = small.save(sized.masked_attention(), folder / "m.onnx")
    samples = sized.attention_samples(folder / "samples", [3, 5, 5, 5, 11, 13, 16, 16])
    return build(
        model, output=folder / "pkg", targets=[TARGET], calib=samples, buckets="auto", scheme="8a8w",
        effort="fast",
    )  # fmt: skip


def test_buckets_from_samples_of_many_lengths(attention: Built) -> None:
    manifest = attention.manifest
    assert [bucket.dims for bucket in manifest.buckets] == [
        {"batch": 1, "seq": 5},
        {"batch": 1, "seq": 16},
    ]
    assert any("buckets, from the samples' sizes: seq=5,16" in note for note in manifest.notes)
    assert {(p.input, p.axis, p.value) for p in manifest.contract.padding} == {("ids", 1, 0), ("mask", 1, 0)}
    assert manifest.contract.crops == (Crop("y", 1, "seq"),)
    assert [bucket.output_shapes["y"] for bucket in manifest.buckets] == [
        (1, n, sized.WIDTH) for n in (5, 16)
    ]


def test_filled_up_sizes_are_verified_on_the_simulator_too(attention: Built) -> None:
    found = [(one.bucket, one.true_dims) for one in attention.manifest.verification]
    assert found == [
        pair for n in (5, 16) for pair in ((f"seq-{n}", {}), (f"seq-{n}", {"seq": n - max(1, n // 4)}))
    ]
    assert attention.met
    assert all(one.outputs[0].sqnr_db > 20 for one in attention.manifest.verification)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """A quantised model of mostly weights, in two buckets and in the larger one alone."""
    folder = tmp_path_factory.mktemp("heavy")
    model = small.save(sized.mostly_weights(), folder / "m.onnx")
    samples = sized.float_samples(folder / "s.npz", 1, 16, 768, count=2)
    asked: dict[str, Any] = {"targets": [TARGET], "calib": samples, "scheme": "8a8w", "effort": "fast"}
    both = build(model, output=folder / "both", buckets={"n": [8, 16]}, **asked)
    return both, build(model, output=folder / "one", dims={"n": 16}, **asked)


def binaries(built: Built) -> list[int]:
    return [one.bytes for one in built.manifest.artefacts if one.role == CONTEXT_BINARY]


def test_all_buckets_share_one_binary(heavy: tuple[Built, Built]) -> None:
    both, one = (binaries(built) for built in heavy)
    assert len(both) == len(one) == 1
    assert one[0] > 2 * 768 * 768  # 8 bits a weight
    assert both[0] <= 1.15 * one[0]


def test_the_weights_of_all_buckets_are_the_same_bytes(heavy: tuple[Built, Built]) -> None:
    built = heavy[0]
    paths = [one.path for one in built.manifest.artefacts if one.role == SOURCE_MODEL]
    assert len(paths) == 2
    small_one, large_one = (dequantised(built.output / path) for path in paths)
    assert set(small_one) == set(large_one)
    assert len(small_one) == 2
    for name, constants in small_one.items():
        for mine, theirs in zip(constants, large_one[name], strict=True):
            assert mine.tobytes() == theirs.tobytes(), name


def dequantised(path: Path) -> dict[str, list[Array]]:
    """Node -> integers, scale and zero point of a constant."""
    graph = onnx.load(path).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {
        node.name: [constants[name] for name in node.input]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }


def test_dims_combine_and_padding_in_both_is_exact(tmp_path: Path) -> None:
    model = small.save(sized.pointwise(), tmp_path / "m.onnx")
    buckets = {"h": [2], "w": [3, 4]}
    built = build(model, output=tmp_path / "p", targets=[TARGET], buckets=buckets, share_weights=False)
    assert len(binaries(built)) == 2
    assert [bucket.dims for bucket in built.manifest.buckets] == [{"h": 2, "w": 3}, {"h": 2, "w": 4}]
    assert [(proof.dim, proof.padded) for proof in built.proofs] == [("h", True), ("w", True)]
    assert {tuple(one.true_dims.items()) for one in built.manifest.verification if one.true_dims} == {
        (("h", 1), ("w", 2)),
        (("h", 1), ("w", 3)),
    }
    assert built.met


def test_where_padding_changes_results_only_exact_sizes_are_served(tmp_path: Path) -> None:
    model = small.save(sized.mean_over_length(), tmp_path / "m.onnx")
    built = build(model, output=tmp_path / "p", targets=[TARGET], buckets={"n": [8]})
    assert built.manifest.contract.padding == ()
    assert built.manifest.contract.crops == ()
    assert [one.true_dims for one in built.manifest.verification] == [{}]
    assert any("n: only the exact sizes" in note for note in built.manifest.notes)


def test_encodings_are_found_by_node_and_numbers_that_follow_from_the_size_stay(tmp_path: Path) -> None:
    def made(name: str, scales: list[float], share: float, first: int) -> Path:
        """Two weights and a share, whose encodings are numbered in the order they were met."""
        integers = np.array([[10, -20], [30, 40]], np.int8)
        integers[0, 0] = first
        constants = {
            "w0": integers, "w1": integers.T.copy(), "share": np.int8(100), "zero": np.int8(0),
            **{f"scale_{i}": np.float32(scale) for i, scale in enumerate([*scales, share])},
        }  # fmt: skip
        order = ["scale_0", "scale_1"] if scales[0] < scales[1] else ["scale_1", "scale_0"]
        pairs = [("w0", order[0]), ("w1", order[1]), ("share", "scale_2")]
        nodes = [
            helper.make_node("DequantizeLinear", [x, scale, "zero"], [f"{x}_real"], name=f"{x}_dq")
            for x, scale in pairs
        ]
        nodes += [
            helper.make_node("MatMul", ["x", "w0_real"], ["a"]),
            helper.make_node("MatMul", ["a", "w1_real"], ["b"]),
            helper.make_node("Mul", ["b", "share_real"], ["y"]),
        ]
        stored = [small.constant(key, np.asarray(array)) for key, array in constants.items()]
        proto = small.model(nodes, [small.value("x", [1, 2])], [small.value("y", [1, 2])], stored)
        return small.save(proto, tmp_path / name)

    large = made("large.onnx", [0.01, 0.02], 1 / 64, first=10)
    # One weight is three steps off, as rounding that carries errors leaves it.
    little = made("little.onnx", [0.0201, 0.0101], 1 / 16, first=13)
    alone = adopt(little, large, tmp_path / "adopted.onnx")
    adopted, settled, own = (dequantised(tmp_path / f"{n}.onnx") for n in ("adopted", "large", "little"))
    for name, expected in (("w0_dq", settled), ("w1_dq", settled), ("share_dq", own)):
        assert [a.tolist() for a in adopted[name]] == [a.tolist() for a in expected[name]]
    assert alone == 1  # byte: the share


def test_a_generator_cannot_be_asked_for_its_sizes(tmp_path: Path) -> None:
    model = small.save(sized.pointwise(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="only once"):
        build(model, output=tmp_path / "p", targets=[TARGET], calib=iter([]), buckets="auto")


def test_sizes_know_their_volume() -> None:
    assert Sizes("a", {}, {"x": (2, 3), "z": (4,)}).volume == 10
