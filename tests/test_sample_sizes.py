"""A model with dynamic dims is fixed to the size of its samples, if they have one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import small_models as small
from hexport.building.order import Order, take_order
from hexport.building.wishes import Wishes
from hexport.errors import BadSamples
from hexport.model.dims import DimsNeeded, sizes_from
from hexport.model.graph import Dim, Graph, TensorType
from hexport.preparation.verb import prepare
from hexport.quantization.data import sized_by_samples
from hexport.quantization.verb import quantize

TARGET = "SM8650"


def graph(**inputs: tuple[Dim, ...] | None) -> Graph:
    return Graph((), {name: TensorType("float32", shape) for name, shape in inputs.items()}, {}, {})


def arrays(*shapes: tuple[int, ...]) -> list[dict[str, NDArray[Any]]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=shape).astype(np.float32)} for shape in shapes]


def test_names_get_a_size_and_dims_without_one_a_shape() -> None:
    model = graph(x=("batch", 3, "w"), y=("batch", None), z=(4,), any=None)
    seen = {"x": (1, 3, 32), "y": (1, 7), "z": (4,), "any": (2, 2)}
    dims, shapes, notes = sizes_from(model, {}, {}, seen)
    assert dims == {"batch": 1, "w": 32}
    assert shapes == {"y": (1, 7), "any": (2, 2)}
    assert notes == ["no sizes were given; those of the samples are used: batch=1, w=32, y=1,7, any=2,2"]


def test_what_was_given_stays() -> None:
    dims, shapes, _ = sizes_from(
        graph(x=("batch", "w"), y=(None, "w")), {"w": 8}, {}, {"x": (1, 9), "y": (2, 9)}
    )
    assert dims == {"w": 8, "batch": 1}
    assert shapes == {"y": (2, 8)}


def test_a_name_for_two_sizes_is_none() -> None:
    dims, shapes, _ = sizes_from(graph(x=("n", 3), y=("n", 3)), {}, {}, {"x": (1, 3), "y": (5, 3)})
    assert (dims, shapes) == ({}, {"x": (1, 3), "y": (5, 3)})


def test_samples_of_several_sizes_are_told() -> None:
    with pytest.raises(DimsNeeded, match=r"several sizes: x \(float32\[n,w\]\) has 1×4, 1×6") as caught:
        sized_by_samples(graph(x=("n", "w")), {}, {}, arrays((1, 4), (1, 6), (1, 4)), {})
    assert "--bucket auto" in caught.value.next


def test_they_may_differ_in_what_has_buckets() -> None:
    found = sized_by_samples(graph(x=("n", "w")), {}, {}, arrays((1, 4), (1, 6)), {}, varied={"w"})
    assert found[:2] == ({"n": 1}, {})


def test_one_of_a_batch_has_the_size_of_a_batch_of_one() -> None:
    found = sized_by_samples(graph(x=("n", "w")), {}, {}, arrays((4,), (4,)), {})
    assert found[0] == {"n": 1, "w": 4}


class Reader:
    def __init__(self) -> None:
        self.left = arrays((1, 4), (1, 4))

    def get_next(self) -> object:
        return self.left.pop() if self.left else None


@pytest.mark.parametrize("make", [Reader, lambda: iter(arrays((1, 4)))])
def test_what_is_read_once_is_left_for_calibrating(make: Any) -> None:
    source = make()
    assert sized_by_samples(graph(x=("n", 4)), {}, {}, source, {}) == ({}, {}, [])
    assert (source.get_next() if isinstance(source, Reader) else next(source)) is not None


def test_pictures_have_no_size_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    assert sized_by_samples(graph(x=("n", 3, "h", "w")), {}, {}, tmp_path, {}) == ({}, {}, [])


def test_a_callable_is_asked_twice() -> None:
    def samples() -> Iterator[dict[str, NDArray[Any]]]:
        yield from arrays((1, 4))

    assert sized_by_samples(graph(x=("n", 4)), {}, {}, samples, {})[0] == {"n": 1}


def saved(tmp_path: Path) -> tuple[Path, Path]:
    path = small.save(small.conv_relu("N"), tmp_path / "m.onnx")
    x = np.random.default_rng(1).normal(size=(4, 1, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=x)
    return path, tmp_path / "samples.npz"


def ordered(tmp_path: Path, **sizes: Any) -> Order:
    model, samples = saved(tmp_path)
    buckets = sizes.get("buckets")
    return take_order(
        model,
        tmp_path / "p",
        [TARGET],
        Wishes(""),
        samples,
        sizes.get("dims", {}),
        {},
        None,
        buckets,
        {},
        None,
    )


def test_a_build_takes_them(tmp_path: Path) -> None:
    order = ordered(tmp_path)
    assert order.buckets[0].shapes == {"x": (1, 3, 16, 16)}
    assert "no sizes were given; those of the samples are used: N=1" in order.notes


@pytest.mark.parametrize("sizes", [{"dims": {"N": 1}}, {"buckets": {"N": [1, 2]}}])
def test_a_build_is_not_told_what_it_was_told(sizes: dict[str, Any], tmp_path: Path) -> None:
    assert not any("samples are used" in note for note in ordered(tmp_path, **sizes).notes)


def test_quantising_takes_them(tmp_path: Path) -> None:
    model, samples = saved(tmp_path)
    out = tmp_path / "q.onnx"
    result = quantize(model, output=out, target=TARGET, scheme="8a8w", calib=samples, effort="fast")
    assert out.is_file()
    assert "no sizes were given; those of the samples are used: N=1" in result.warnings


def test_preparing_takes_them(tmp_path: Path) -> None:
    model, samples = saved(tmp_path)
    result = prepare(model, output=tmp_path / "p.onnx", target=TARGET, calib=samples)
    assert result.input_shapes == {"x": (1, 3, 16, 16)}
    assert "no sizes were given; those of the samples are used: N=1" in result.warnings


def test_preparing_tells_of_missing_axes(tmp_path: Path) -> None:
    model, samples = saved(tmp_path)
    np.savez(samples, x=np.ones((4, 16, 16), np.float32))
    with pytest.raises(BadSamples, match=r"has shape \[16, 16\]") as caught:
        prepare(model, output=tmp_path / "p.onnx", target=TARGET, calib=samples)
    assert "float32[N,3,16,16]" in caught.value.why
