"""Layers inside a quantised model, measured on the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexport import facts
from hexport.observe.comparing import Comparison
from hexport.quantization.candidates import Candidate
from hexport.quantization.judging import Judge
from hexport.quantization.layers_on_npu import MOST, _spread, layers_on_npu
from hexport.quantization.plan import SCHEMES, plan_for
from hexport.quantization.recipe import Recipe
from hexport.toolchain import Limits
from quantised_graphs import ARCH, cnn, workshop


def test_more_bits_make_every_layer_more_exact(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    judge = Judge(facts.find_target("SM8650"), list(shop.data), [], tmp_path, Limits())
    found = {}
    for scheme in ("8a8w", "16a8w"):
        plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
        model = shop.build(plan, Recipe())
        candidate = Candidate(scheme, plan, Recipe(), model, 0.0, Comparison(()))
        figures, notes = layers_on_npu(shop, judge, candidate)
        assert not notes
        found[scheme] = {layer.node: layer.sqnr_db for layer in figures}
    # A Relu is one with the convolution before it, and what only moves numbers is no layer.
    assert list(found["8a8w"]) == ["relu", "clip", "average"]
    assert all(found["16a8w"][node] > db for node, db in found["8a8w"].items())
    assert min(found["16a8w"].values()) > 25


@pytest.mark.parametrize("count", [0, 1, MOST, MOST + 1, 500])
def test_the_first_and_the_last_layer_are_among_those_looked_at(count: int) -> None:
    items = [(str(i), str(i)) for i in range(count)]
    chosen = _spread(items, MOST)
    assert len(chosen) == len(set(chosen)) == min(count, MOST)
    assert chosen[:1] == items[:1]
    assert chosen[-1:] == items[-1:]
