"""Whether smaller sizes may be filled up: the original model is asked, with several samples and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sized_models as sized
import small_models as small
from hexport.building.buckets import expand
from hexport.building.original import original
from hexport.building.padding_proof import EQUAL_DB, PATIENCE_SECONDS, Proof, Trial, prove, prove_together
from hexport.building.signature import named, places, sums
from hexport.model import read
from hexport.runtime.padding import real_size
from hexport.toolchain import Limits

Array = np.ndarray
Proving = Callable[..., tuple[Proof, ...]]


@pytest.fixture
def proving(tmp_path: Path) -> Proving:
    def prove_all(
        proto: onnx.ModelProto,
        buckets: Mapping[str, Sequence[int]],
        *samples: Mapping[str, Array],
        patience: float = PATIENCE_SECONDS,
        **values: Any,
    ) -> tuple[Proof, ...]:
        path = small.save(proto, tmp_path / "m.onnx")
        graph = named(read(path).graph)
        sizes = expand(graph, buckets, {}, {}, "hexport build")
        for sample in samples:
            assert {name: array.shape for name, array in sample.items()} == sizes[-1].shapes
        with original(path, Limits()) as run:
            trial = Trial(places(graph), sizes, samples, values, run, sums(graph), patience)
            return prove_together([prove(dim, trial) for dim in buckets], trial)

    return prove_all


def normal(*shape: int) -> Array:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def test_a_mean_without_a_mask_takes_exact_sizes_only(proving: Proving) -> None:
    (proof,) = proving(sized.mean_over_length(), {"n": [8, 16]}, {"x": normal(1, 16, sized.WIDTH)})
    assert not proof.padded
    assert proof.lowest_db is not None
    assert proof.lowest_db < EQUAL_DB
    assert "only the exact sizes" in proof.sentence()


def test_a_wrong_edge_is_not_lost_in_a_long_row(proving: Proving) -> None:
    (proof,) = proving(sized.two_convolutions(), {"n": [20_000]}, {"x": normal(1, 4, 1, 20_000)})
    assert not proof.padded
    assert proof.lowest_db is not None
    assert proof.lowest_db < 20  # though the mean over 20 000 places is far better than 40 dB


def test_outputs_of_another_length(proving: Proving) -> None:
    (proof,) = proving(sized.halved_twice(), {"x.3": [16, 32]}, {"x": normal(1, 4, 1, 32)})
    assert proof.padded
    (crop,) = proof.crops
    assert [real_size(crop, {"x.3": n}) for n in range(1, 33)] == [-(-n // 4) for n in range(1, 33)]


def test_an_axis_that_two_dims_make_up_is_not_filled_up(proving: Proving) -> None:
    sample = {"past": normal(1, 8, 4), "new": normal(1, 6, 4)}
    proofs = proving(sized.end_to_end(), {"p": [4, 8], "n": [3, 6]}, sample)
    assert [proof.padded for proof in proofs] == [False, False]
    # Alone, at the largest size of the other, the last rows could be filled up.
    assert "in bucket p-4_n-3" in proofs[1].reason


def test_what_a_pad_value_does(proving: Proving) -> None:
    """Ids of padding are hidden by the mask, whatever they are; an open mask over them shows them."""
    ids = np.random.default_rng(0).integers(1, sized.TOKENS, (2, 12))
    sample = {"ids": ids, "mask": np.ones_like(ids)}
    buckets = {"batch": [2], "seq": [6, 12]}
    batch, seq = proving(sized.masked_attention(), buckets, sample, ids=7)
    assert batch.padded
    assert seq.padded
    assert seq.lowest_db is not None
    assert seq.lowest_db > 100
    _, seq = proving(sized.masked_attention(), buckets, sample, mask=1)
    assert not seq.padded


def one_at_a_time() -> onnx.ModelProto:
    """Attention in batches of one."""
    proto = sized.masked_attention()
    for tensor in (*proto.graph.input, *proto.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_value = 1
    return proto


def largest_over_length() -> onnx.ModelProto:
    """x [1, n, 16] → its largest over n, with no mask."""
    return small.model(
        [helper.make_node("ReduceMax", ["x"], ["y"], name="largest", axes=[1], keepdims=0)],
        [small.value("x", [1, "n", sized.WIDTH])],
        [small.value("y", [1, sized.WIDTH])],
    )


def attended(seed: int, length: int) -> dict[str, Array]:
    ids = np.random.default_rng(seed).integers(1, sized.TOKENS, (1, length))
    return {"ids": ids, "mask": np.ones_like(ids)}


def test_every_size_is_tried_with_every_sample(proving: Proving) -> None:
    samples = [attended(seed, 32) for seed in range(3)]
    (proof,) = proving(one_at_a_time(), {"seq": [8, 32]}, *samples)
    # Of each bucket: the smallest that goes into it, one in between, one short of it.
    assert proof.sizes == (1, 4, 7, 9, 20, 31)
    assert (proof.samples, proof.left_out) == (3, 0)
    assert "6 sizes, 3 samples each" in proof.sentence()
    assert {**proof.to_json(), "reason": ""}.items() >= {"samples": 3, "left_out": 0, "padded": True}.items()


def test_without_time_one_sample_is_enough_and_it_is_said(proving: Proving) -> None:
    samples = [attended(seed, 16) for seed in range(3)]
    (proof,) = proving(one_at_a_time(), {"seq": [16]}, *samples, patience=0.0)
    assert proof.padded
    assert proof.sizes == (1, 8, 15)
    assert proof.left_out == 2 * len(proof.sizes)
    assert "6 of those left out for time" in proof.sentence()


def test_one_sample_of_three_can_refute(proving: Proving) -> None:
    """Padding of zeros changes a largest number only where all others are below zero."""
    above, below = np.abs(normal(1, 16, sized.WIDTH)), -np.abs(normal(1, 16, sized.WIDTH))
    buckets = {"n": [16]}
    (proof,) = proving(largest_over_length(), buckets, {"x": above}, {"x": above + 1})
    assert proof.padded
    (proof,) = proving(largest_over_length(), buckets, {"x": above}, {"x": above + 1}, {"x": below})
    assert not proof.padded
