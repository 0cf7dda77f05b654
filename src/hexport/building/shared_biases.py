"""The bias of a layer whose input or weights got the encodings of another bucket.

Its scale follows from theirs, and its numbers go with its layer's weights: what rounding them leaves on the
whole was corrected in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from hexport.building.stored_integers import ROUNDINGS_APART, is_stored, numbers, reach, reals
from hexport.quantization.coarse_sums import CoarseSum, stored_sum
from hexport.quantization.encoding import Encoding, QType
from hexport.quantization.initializers import add_initializer
from hexport.quantization.weights import bias_encoding


@dataclass(frozen=True)
class Bias:
    """In int32, at the scale of its layer's input times that of its weights: the HTP takes no other."""

    node: ir.Node
    data: ir.Node
    weight: ir.Node
    grain: int
    """Of which the HTP takes multiples only."""

    def follow(self, other: ir.Node, graph: ir.Graph) -> bool:
        """Take the numbers of ``other``, whose weights the layer has; not if they are another bias."""
        mine, theirs, weights = reals(self.node), reals(other), reals(self.weight)
        if mine is None or theirs is None or weights is None or mine.shape != theirs.shape:
            return False
        # The steps of a bias are too fine to compare by; those of the weights that are summed are not.
        summed = weights.size / max(mine.size, 1)
        step = numbers(self.weight, 1).max(initial=0.0)
        corrected = ROUNDINGS_APART * step * reach(self.data) * np.sqrt(summed)
        if np.sqrt(np.mean((mine - theirs) ** 2)) > corrected:
            return False
        self._write(theirs, graph)
        return True

    def rescale(self, graph: ir.Graph) -> None:
        """The same numbers at the scale that the layer has now."""
        mine = reals(self.node)
        assert mine is not None
        self._write(mine, graph)

    def _write(self, real: np.ndarray, graph: ir.Graph) -> None:
        encoding = self.encoding
        # What it makes up for is in the numbers already, but rounding may have put it beside a multiple.
        integers = CoarseSum(self.grain, np.zeros(())).made_up(encoding.integers(real))
        for index, array in enumerate((integers, encoding.scale)):
            fresh = add_initializer(graph, f"{self.node.name}_of_all", ir.tensor(array))
            self.node.replace_input_with(index, fresh)

    @property
    def encoding(self) -> Encoding:
        """What follows from the encodings that its layer has now."""
        scale = numbers(self.weight, 1).astype(np.float32)
        weight = Encoding(QType.S8, scale, axis=0 if scale.ndim else None)
        return bias_encoding(weight, numbers(self.data, 1).item())


def bias_of(layer: ir.Node) -> Bias | None:
    """The bias of a layer in integers, if its scale is the one that follows from the other inputs."""
    makers = [None if value is None else value.producer() for value in layer.inputs[:3]]
    found = [
        node
        for node in makers
        if node is not None and node.op_type == "DequantizeLinear" and is_stored(node, 1)
    ]
    if len(found) < 3 or not is_stored(found[2], 0) or numbers(found[0], 1).size != 1:
        return None
    data, weight, node = found
    cut = stored_sum(layer)
    bias = Bias(node, data, weight, 1 if cut is None else cut.grain)
    stored, scale, expected = node.inputs[0], numbers(node, 1), bias.encoding.scale
    follows = scale.shape == expected.shape and np.allclose(scale, expected, rtol=1e-5, atol=0.0)
    return bias if follows and stored is not None and stored.dtype == ir.DataType.INT32 else None
