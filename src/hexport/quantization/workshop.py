"""Everything that is known of one float model, and the making of quantised ones from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path

import numpy as np
import onnx_ir as ir

from hexport.quantization.activations import ROOM, Activations, GivenRange, encode_constant
from hexport.quantization.emitting import emit
from hexport.quantization.empirical import float_means, measure_biases
from hexport.quantization.encoding import Encoding, Floats
from hexport.quantization.equalizing import Equalized, equalize
from hexport.quantization.histogram import Histogram
from hexport.quantization.kept_observations import kept_histograms
from hexport.quantization.layer_inputs import MOST_SAMPLES, Listener, Moments, moments_of
from hexport.quantization.observing import Sample, observe
from hexport.quantization.plan import Plan, Precision
from hexport.quantization.recipe import Recipe
from hexport.quantization.rounding import carry_errors, correct_bias
from hexport.quantization.weights import Layer, LayerIntegers, layers_of, nearest, weight_encoding
from hexport.rewrite.values import constant


@dataclass
class Workshop:
    """The float model, what was observed of it, and its layers."""

    prepared: Callable[[], ir.Model]
    """Reads the model as fp16 likes it. Most schemes never need it, so it is not kept."""
    model: ir.Model
    """As integers like it."""
    data: Iterable[Sample]
    """What ranges are made from: all samples."""
    fit: Iterable[Sample]
    """What roundings and corrections are made from: not those that candidates are judged on."""
    folder: Path
    arch: int
    """The HTP generation that it is for."""
    fingerprint: str = ""
    """Of the data; without it what was observed is not kept."""
    tell: Callable[[int, int, int], None] = lambda *_: None
    """Told how many samples were looked at, in which pass, and how many passes there are."""
    is_fit: Callable[[int], bool] | None = None
    """Whether the sample of that number in ``data`` is also in ``fit``; None: it is not known."""
    overrides: dict[str, GivenRange] = field(default_factory=dict)
    """Ranges the user gave."""
    room: float = ROOM
    """For unseen inputs, in 16 bits."""
    _integers: dict[object, LayerIntegers] = field(default_factory=dict)
    _carried: dict[object, LayerIntegers] = field(default_factory=dict)
    """By the steps that they are rounded to."""
    _activations: dict[str, Activations] = field(default_factory=dict)
    _is_equal: bool = False
    _heard: dict[str, Moments] = field(default_factory=dict)
    """The means, if they were taken while ranges were observed."""

    def of(self, recipe: Recipe) -> Workshop:
        """This one, or the one over the equalised model if the recipe is for that."""
        if not recipe.equalized or self._is_equal or self._equal is None:
            return self
        return self._equal

    @cached_property
    def equalized(self) -> Equalized:
        """The same model with channels of like ranges, or why there is none."""
        return equalize(self.model, self.fit, self.folder)

    @cached_property
    def _equal(self) -> Workshop | None:
        model = self.equalized.model
        # Nodes and tensors keep their names, so that plans and given ranges fit both.
        if model is None:
            return None
        return replace(
            self, model=model, _integers={}, _carried={}, _activations={}, _is_equal=True, _heard={}
        )

    @cached_property
    def histograms(self) -> dict[str, Histogram]:
        means, is_fit = Listener(self.layers, squares=False), self.is_fit

        def listen(number: int, name: str, array: Floats) -> None:
            if is_fit is not None and number < MOST_SAMPLES and is_fit(number):
                means.take(name, array)

        def look() -> dict[str, Histogram]:
            seen = observe(self.model, self.data, self.folder, self.tell, listen)
            self._heard = means.found
            return seen

        return kept_histograms(self.model, self.fingerprint, look) if self.fingerprint else look()

    @cached_property
    def layers(self) -> dict[str, Layer]:
        return layers_of(self.model)

    @cached_property
    def means(self) -> dict[str, Moments]:
        """What bias correction needs; a run of its own only where the ranges were kept from before."""
        _ = self.histograms
        return self._heard or moments_of(self.model, self.layers, self.fit, self.folder, squares=False)

    @cached_property
    def moments(self) -> dict[str, Moments]:
        """What error-carrying rounding needs as well."""
        return moments_of(self.model, self.layers, self.fit, self.folder, squares=True)

    @cached_property
    def float_means(self) -> dict[str, Floats]:
        """What measured bias correction needs."""
        return float_means(self.model, self.layers, self.fit, self.folder)

    def is_infinite(self, node: ir.Node) -> bool:
        """Whether something that the node reads or makes is not finite."""
        for value in (*node.inputs, *node.outputs):
            array = constant(value)
            if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
                return True
            seen = self.histograms.get(str(value.name)) if value is not None else None
            if seen is not None and seen.infinite:
                return True
        return False

    def activations(self, ranges: str) -> Activations:
        if ranges not in self._activations:
            made = Activations(self.model, self.histograms, ranges, self.room)
            made.overrides.update(self.overrides)
            self._activations[ranges] = made
        return self._activations[ranges]

    def build(self, plan: Plan, recipe: Recipe) -> ir.Model:
        """The quantised model."""
        shop = self.of(recipe)
        integers, activations = shop.integers(plan, recipe), shop.activations(recipe.ranges)
        made = emit(shop.model, plan, activations, integers, shop.arch)
        if not recipe.measure_bias:
            return made
        better = measure_biases(made, shop.layers, integers, shop.float_means, shop.fit, shop.folder)
        return emit(shop.model, plan, activations, better, shop.arch)

    def integers(self, plan: Plan, recipe: Recipe) -> Mapping[str, LayerIntegers]:
        """Every layer's weights that the plan has in integers."""
        shop = self.of(recipe)
        return {
            name: shop._layer(layer, plan, recipe)
            for name, layer in shop.layers.items()
            if plan.of(layer.node).weight is not None
        }

    def _layer(self, layer: Layer, plan: Plan, recipe: Recipe) -> LayerIntegers:
        precision = plan.of(layer.node)
        key = (layer.shared, precision, recipe)
        if key not in self._integers:
            self._integers[key] = self._weights(layer, precision, recipe)
        rounded = replace(self._integers[key], bias=layer.bias)
        known = self._known(recipe)
        if not recipe.correct_bias or layer.name not in known:
            return rounded
        return correct_bias(layer, rounded, known[layer.name])

    def _weights(self, layer: Layer, precision: Precision, recipe: Recipe) -> LayerIntegers:
        """The integers of a weight, one set for all the nodes that share it."""
        sharing = [other for other in self.layers.values() if other.shared == layer.shared]
        encodings = [self._encoding(other, precision, recipe) for other in sharing]
        largest = np.max([encoding.scale for encoding in encodings], axis=0)
        rounded = nearest(layer, replace(encodings[0], scale=largest))
        known = self._known(recipe)
        found = [known[other.name] for other in sharing if other.name in known]
        if not recipe.carry_errors or not found:
            return rounded
        # Most recipes differ in the ranges of activations alone, which a weight's steps hardly ever follow.
        steps = (layer.shared, precision, largest.tobytes())
        if steps not in self._carried:
            self._carried[steps] = carry_errors(layer, rounded, reduce(Moments.joined, found))
        return self._carried[steps]

    def _encoding(self, layer: Layer, precision: Precision, recipe: Recipe) -> Encoding:
        source = layer.node.inputs[0]
        assert precision.activation is not None
        assert source is not None
        activations, made = self.activations(recipe.ranges), str(layer.node.outputs[0].name)
        array = constant(source)
        read = (
            activations.encoding(str(source.name), precision.activation)
            if array is None
            else encode_constant(array, precision.activation)
        )
        written = activations.encoding(made, precision.activation).scale if activations.knows(made) else 0.0
        return weight_encoding(layer, precision, float(read.scale), float(written))

    def _known(self, recipe: Recipe) -> Mapping[str, Moments]:
        return self.moments if recipe.carry_errors else self.means if recipe.correct_bias else {}
