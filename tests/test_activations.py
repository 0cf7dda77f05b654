"""The encodings of activations: what was seen, room for what was not, and the cuts of Clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from hexport.quantization.encoding import QType
from quantised_graphs import PLAIN, normal, quantised, sqnr, workshop_with
from step_models import graph

WEIGHT = normal(4, 4, 1, 1)


def samples(scale: float, count: int = 3) -> list[dict[str, np.ndarray]]:
    return [{"x": normal(1, 4, 5, 5, seed=seed, scale=scale)} for seed in range(count)]


def clipped(most: float) -> onnx.ModelProto:
    """A convolution whose results are cut at 0 and at ``most``."""
    ends = {"low": np.float32(0), "high": np.float32(most)}
    return graph([1, 4, 5, 5], "c = Conv x w", "y = Clip c low high", w=WEIGHT, **ends)


@pytest.mark.parametrize(("scheme", "least"), [("16a8w", 25.0), ("8a8w", 0.0)])
def test_16_bits_hold_inputs_that_are_larger_than_those_seen(
    tmp_path: Path, scheme: str, least: float
) -> None:
    proto = graph([1, 4, 5, 5], "y = Conv x w", w=WEIGHT)
    made = quantised(workshop_with(proto, tmp_path, samples(1.0)), scheme)
    larger = {"x": 1.8 * samples(1.0)[0]["x"]}
    (figure,) = sqnr(proto, made, larger)
    assert figure >= least
    if scheme == "8a8w":
        # The other side of it: without room what is larger is cut off.
        assert figure < 20


def test_8_bits_are_spread_over_what_was_seen(tmp_path: Path) -> None:
    proto = graph([1, 4, 5, 5], "y = Conv x w", w=WEIGHT)
    shop = workshop_with(proto, tmp_path, samples(1.0))
    seen = np.concatenate([sample["x"].reshape(-1) for sample in samples(1.0)])
    activations = shop.activations(PLAIN.ranges)
    narrow, wide = (activations.encoding("x", type_) for type_ in (QType.U8, QType.U16))
    assert narrow.high == pytest.approx(seen.max(), rel=0.02)
    assert wide.high == pytest.approx(2 * seen.max(), rel=0.01)


@pytest.mark.parametrize("scheme", ["16a8w", "8a8w"])
@pytest.mark.parametrize("most", [0.5, 6.0, 100.0])
def test_a_clip_stays_where_it_cuts(tmp_path: Path, scheme: str, most: float) -> None:
    """It vanishes into the encoding, which must then end where it did."""
    proto = clipped(most)
    shop = workshop_with(proto, tmp_path, samples(2.0))
    made = quantised(shop, scheme)
    assert "Clip" not in [node.op_type for node in made.graph.node]
    assert shop.activations(PLAIN.ranges).encoding("y", QType.U16).high <= most * 1.0001
    assert min(sqnr(proto, made, samples(2.0)[0])) > 25


def test_a_given_range_beyond_the_clip_leaves_it_in(tmp_path: Path) -> None:
    proto = clipped(0.5)
    shop = workshop_with(proto, tmp_path, samples(2.0))
    shop.overrides["y"] = (0.0, 4.0, None)
    made = quantised(shop, "16a8w")
    assert "Clip" in [node.op_type for node in made.graph.node]
    assert min(sqnr(proto, made, samples(2.0)[0])) > 25
