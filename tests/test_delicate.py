"""Which layers are raised for inputs unlike the samples, of what is known of each."""

from __future__ import annotations

import numpy as np
import pytest

from hexport.executorch.lowering.inside.delicate import Layer, choose
from hexport.quantization.damping import doubt


def layer(name: str, *noise: float, weights: float = 0.01, macs: float = 0.01) -> Layer:
    return Layer(name, name, np.array(noise), weights, macs)


def names(layers: list[Layer], goal: float) -> list[str]:
    return [one.name for one in choose(layers, goal).layers]


def test_nothing_is_raised_where_the_sum_is_enough() -> None:
    found = choose([layer("a", 1e-4), layer("b", 2e-4)], 1e-3)
    assert found.layers == ()
    assert found.before_db == found.after_db == pytest.approx(-10 * np.log10(3e-4))


def test_the_most_noise_for_the_cost_goes_first_and_no_more_than_is_needed() -> None:
    layers = [layer("large", 5e-3, weights=0.5), layer("small", 4e-3), layer("quiet", 1e-5)]
    assert names(layers, 6e-3) == ["small"]
    assert names(layers, 2e-5) == ["small", "large"]


def test_an_output_that_is_good_enough_asks_for_nothing() -> None:
    assert names([layer("a", 0.0, 9e-3), layer("b", 5e-3, 0.0)], 6e-3) == ["a"]


def test_a_third_of_the_products_at_most() -> None:
    found = choose([layer("a", 9e-3, macs=0.3), layer("b", 8e-3, macs=0.3)], 1e-4)
    assert [one.name for one in found.layers] == ["a"]
    assert found.after_db == pytest.approx(-10 * np.log10(8e-3))
    assert found.macs == 0.3


def test_a_program_without_layers_has_nothing_to_raise() -> None:
    assert choose([], 1e-3).layers == ()


def test_few_vectors_are_doubted() -> None:
    assert doubt(9, 150_000) < 0.001
    assert doubt(192, 588) == doubt(8, 0) == 1.0
