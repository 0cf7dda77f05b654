"""Biases that do not overflow.

The quantiser gives a bias 32 bits and, per channel, the scale of the input times that of the weight. Two
things go wrong there (executorch 1.5.1), both without a word:

* the largest number, 2**31 - 1, is no float32: it is rounded up, and as an integer becomes the smallest;
* where the input's range is tiny, or weights have 16 bits, a bias of 1 is more than 2**31 steps.

So the limit is the largest float32 below 2**31, and the step is no smaller than the bias needs. The NPU
counts a bias in steps of input times weight, whatever its scale says. So an input whose range is too small
for the bias that is added to it, such as the zeros that a recurrence begins with, is given a wider one. And
a channel that training has left with hardly any weights, as many have after BatchNorm, is given a coarser
step than its weights ask for: next to its bias they are nothing, and the input is that of all channels.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hexport.executorch.lowering.inside.operators import BIAS, BIASED, attribute, base_name
from hexport.executorch.lowering.inside.stack import stack

LIMIT = 2**31 - 128
_ROOM = 2**30
"""Steps that a bias may have: sums of products are added to it in the same 32 bits."""
_FEWER = 256
"""Channels whose weights are so many times smaller than the largest have no say in the input's range."""


def mend(config: Any) -> None:
    """Change how one configuration of the quantiser quantises biases."""
    spec = config.bias
    if spec is None:
        return
    if not callable(spec):
        config.bias = _limited(spec)
        return
    config.bias = lambda node: _wide_enough(spec(node), node)


def _limited(spec: Any) -> Any:
    """Fake quantisers hold the limits a second time, for training."""
    keywords = getattr(getattr(spec.observer_or_fake_quant_ctr, "p", None), "keywords", {})
    if "quant_max" in keywords:
        keywords.update(quant_min=-LIMIT, quant_max=LIMIT)
    return dataclasses.replace(spec, quant_min=-LIMIT, quant_max=LIMIT)


def _wide_enough(spec: Any, node: Any) -> Any:
    torch = stack().torch
    derive, module, bias = spec.derive_qparams_fn, node.graph.owning_module, node.args[BIAS]

    def scales(observers: list[Any]) -> tuple[Any, Any]:
        scale, zero = derive(observers)
        if bias.op != "get_attr":
            return scale, zero
        needed = attribute(module, bias).detach().abs().to(scale.dtype) / LIMIT
        return torch.maximum(scale, needed if needed.shape == scale.shape else needed.max()), zero

    return dataclasses.replace(spec, derive_qparams_fn=scales, quant_min=-LIMIT, quant_max=LIMIT)


def make_room(prepared: Any) -> None:
    """Widen the measured ranges of inputs, and of channels of weights, that are too small for the bias."""
    for node in prepared.graph.nodes:
        if node.op != "call_function" or base_name(node) not in BIASED or len(node.args) <= BIAS:
            continue
        activation, weight = (_observer(prepared, argument) for argument in node.args[:BIAS])
        bias = node.args[BIAS]
        source = bias.args[0] if getattr(bias, "op", "") == "call_module" else bias
        if activation is not None and weight is not None and getattr(source, "op", "") == "get_attr":
            _widen(activation, weight, attribute(prepared, source).detach().abs())


def _observer(prepared: Any, node: Any) -> Any | None:
    if getattr(node, "op", "") != "call_module":
        return None
    found = prepared.get_submodule(node.target)
    return found if hasattr(found, "calculate_qparams") else None


def _widen(activation: Any, weight: Any, bias: Any) -> None:
    inner = getattr(activation, "activation_post_process", activation)
    scales = weight.calculate_qparams()[0]
    low = getattr(inner, "min_val", None)
    if scales.shape != bias.shape or scales.numel() == 1 or low is None or low.numel() != 1:
        return  # one scale for all: the bias has its own, which the NPU takes
    usual = scales.clamp(min=float(scales.max()) / _FEWER)
    needed = float((bias / (usual * _ROOM)).max()) * (inner.quant_max - inner.quant_min)
    if float(inner.max_val - low) < needed:
        inner.min_val = stack().torch.minimum(low, stack().torch.zeros_like(low))
        inner.max_val = inner.min_val + needed
    _coarsen(weight, bias / (activation.calculate_qparams()[0] * _ROOM))


def _coarsen(weight: Any, least: Any) -> None:
    """Let the channels of a weight have no smaller steps than these."""
    inner = getattr(weight, "activation_post_process", weight)
    highest = least.to(inner.max_val.dtype) * (inner.quant_max - inner.quant_min) / 2
    inner.max_val = stack().torch.maximum(inner.max_val, highest)
