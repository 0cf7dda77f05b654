"""Prefill and decode of a decoder: two buckets of one model, with one set of weights and a cache between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sized_models as sized
import small_models as small
from hexport.building.buckets import expand, propose
from hexport.building.signature import named, sums
from hexport.building.verb import Built, build
from hexport.model import Graph, TensorType
from hexport.model.dims import DimsConflict
from hexport.packaging.manifest import CONTEXT_BINARY, Crop
from hexport.verification.verb import verify

pytestmark = pytest.mark.usefixtures("cache")

PAST, CHUNK = 8, 16
"""Places of the cache, and tokens that are read at once before the first is written."""
TOTAL = "past + new"
Array = np.ndarray


def decoder() -> onnx.ModelProto:
    """ids [1, new], mask [1, past + new], keys [1, past, 16] → what follows [1, new, 50], all keys."""
    node, width = helper.make_node, sized.WIDTH
    nodes = [
        node("Gather", ["table", "ids"], ["e"], name="embed"),
        node("MatMul", ["e", "wk"], ["k"], name="key"),
        node("Concat", ["keys", "k"], ["all_keys"], name="append", axis=1),
        node("MatMul", ["e", "wq"], ["q"], name="query"),
        *sized.masked_shares("all_keys"),
        node("MatMul", ["share", "all_keys"], ["mixed"], name="mix"),
        node("MatMul", ["mixed", "wo"], ["y"], name="out"),
    ]
    rng = np.random.default_rng(4)
    constants = {
        "table": rng.normal(size=(sized.TOKENS, width)), "wq": rng.normal(size=(width, width)) / 4,
        "wk": rng.normal(size=(width, width)) / 4, "wo": rng.normal(size=(width, sized.TOKENS)) / 4,
        "one": 1, "much": -10000,
    }  # fmt: skip
    stored = [small.constant(name, np.asarray(array, np.float32)) for name, array in constants.items()]
    return small.model(
        nodes,
        [
            small.value("ids", [1, "new"], TensorProto.INT64),
            small.value("mask", [1, TOTAL], TensorProto.INT64),
            small.value("keys", [1, "past", width]),
        ],
        [small.value("y", [1, "new", sized.TOKENS]), small.value("all_keys", [1, TOTAL, width])],
        [*stored, small.constant("axis", np.array([1]))],
    )


def fed(new: int, seed: int = 0) -> dict[str, Array]:
    """One call, whose cache is half full."""
    rng = np.random.default_rng(seed)
    mask = np.ones((1, PAST + new), np.int64)
    mask[:, PAST // 2 : PAST] = 0
    keys = rng.normal(size=(1, PAST, sized.WIDTH)).astype(np.float32)
    return {"ids": rng.integers(0, sized.TOKENS, (1, new)), "mask": mask, "keys": keys}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    folder = tmp_path_factory.mktemp("pair")
    model = small.save(decoder(), folder / "decoder.onnx")
    samples = [fed(CHUNK, seed) for seed in range(4)]
    asked: dict[str, Any] = {"calib": lambda: samples, "scheme": "16a8w", "effort": "fast"}
    return model, build(
        model,
        output=folder / "pkg",
        targets=["SM8650"],
        dims={"past": PAST},
        buckets={"new": [1, CHUNK]},
        **asked,
    )


def test_the_mask_follows_from_the_other_sizes(pair: tuple[Path, Built]) -> None:
    _, built = pair
    assert [bucket.dims for bucket in built.manifest.buckets] == [
        {"new": new, TOTAL: PAST + new, "past": PAST} for new in (1, CHUNK)
    ]
    assert len([one for one in built.manifest.artefacts if one.role == CONTEXT_BINARY]) == 1
    assert built.met


def test_shorter_prompts_are_filled_up_mask_and_all(pair: tuple[Path, Built]) -> None:
    contract = pair[1].manifest.contract
    assert {(p.input, p.axis, p.value) for p in contract.padding} == {("ids", 1, 0), ("mask", 1, 0)}
    assert set(contract.crops) == {Crop("y", 1, "new"), Crop("all_keys", 1, "new", 1, PAST, 1)}
    (proof,) = pair[1].proofs
    # The decode bucket takes one token and nothing smaller.
    assert proof.sizes == (2, (1 + CHUNK) // 2, CHUNK - 1)
    assert proof.samples == 3
    verified = [(one.bucket, one.true_dims) for one in pair[1].manifest.verification]
    assert verified == [("new-1", {}), (f"new-{CHUNK}", {}), (f"new-{CHUNK}", {"new": CHUNK - CHUNK // 4})]


@pytest.mark.parametrize(("new", "bucket"), [(1, "new-1"), (5, f"new-{CHUNK}"), (CHUNK, f"new-{CHUNK}")])
def test_a_prompt_and_the_tokens_after_it(
    new: int, bucket: str, pair: tuple[Path, Built], tmp_path: Path
) -> None:
    model, built = pair
    np.savez(tmp_path / "in.npz", **{name: array[None] for name, array in fed(new, seed=9).items()})
    match = verify(built.output, reference=model, inputs=tmp_path / "in.npz", min_sqnr=20)
    assert match.passed
    assert match.bucket == bucket
    assert match.true_dims == ({} if new in (1, CHUNK) else {"new": new, TOTAL: PAST + new})


# ---- sums by themselves


def graph_of(**inputs: tuple[int | str, ...]) -> Graph:
    made = {name: TensorType("float32", shape) for name, shape in inputs.items()}
    return named(Graph(inputs=made, outputs={}, nodes=(), constants={}))


def test_a_sum_has_the_size_of_the_sum_unless_it_is_given_one() -> None:
    graph = graph_of(x=("a", "b"), m=("a + b", "a+b+2"), z=("a + nobody", "3"))
    assert sums(graph) == {"a + b": ("a", "b"), "a+b+2": ("a", "b", 2)}
    given = {"b": 5, "a + nobody": 9, "3": 3}
    first, second = expand(graph, {"a": [2, 4]}, given, {}, "hexport build")
    assert [s.shapes["m"] for s in (first, second)] == [(7, 9), (9, 11)]
    assert [s.name for s in (first, second)] == ["a-2", "a-4"]
    (alone,) = expand(graph, {"a": [2]}, {**given, "a + b": 100}, {}, "hexport build")
    assert alone.shapes["m"] == (100, 9)
    with pytest.raises(DimsConflict, match="--bucket varies"):
        expand(graph, {"a": [2]}, given, {"m": (7, 9)}, "hexport build")


def test_no_buckets_are_proposed_for_a_sum() -> None:
    graph = graph_of(x=("a", "b"), m=("a + b",))
    assert propose(graph, [{"x": (n, 3), "m": (n + 3,)} for n in (2, 5)]) == {"a": [2, 5], "b": [3]}
