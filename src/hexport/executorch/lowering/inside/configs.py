"""The quantiser's configurations: one for the scheme, one for each scheme and block of an override."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hexport.executorch.lowering.inside import bias
from hexport.executorch.lowering.inside.matching import fits, settle
from hexport.executorch.lowering.inside.operators import BIASED, attribute, base_name
from hexport.executorch.lowering.inside.readying import origin
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.options import BLOCK, FLOAT, Quantizing
from hexport.executorch.lowering.overrides import CPU, Override
from hexport.executorch.lowering.requests import QuantizeRequest

_OUT = (FLOAT, CPU)
"""Schemes of operators that the quantiser leaves alone."""
WIDE_FROM = 73
"""The first HTP generation whose products of two 16-bit tensors the compiler accepts."""
_WIDE = ("matmul", "bmm", "mm", "layer_norm", "native_layer_norm")
_NARROW = "8a8w"
_SMALLEST_BLOCK = 16
Block = tuple[int, ...]


@dataclass
class Settled:
    """What was decided for a program, and what there is to say about it."""

    schemes: dict[str, Override]
    """Operator of the ready graph → its override."""
    notes: list[str] = field(default_factory=list)
    blocks: bool = False
    """Whether weights of linear layers are in blocks."""
    floats: set[str] = field(default_factory=set)
    """Operators that stay float on the NPU."""
    left: set[str] = field(default_factory=set)
    """Operators that stay on the CPU."""

    def note(self, text: str) -> None:
        """Say it once."""
        if text and text not in self.notes:
            self.notes.append(text)


def settled(request: QuantizeRequest, module: Any) -> Settled:
    """Overrides on the graph."""
    found = Settled(settle(request.overrides, module))
    for name, override in found.schemes.items():
        if override.scheme == CPU:
            found.left.add(name)
        elif override.scheme == FLOAT and request.scheme != FLOAT:
            found.floats.add(name)
    return found


def make_quantizer(request: QuantizeRequest, quantizing: Quantizing, found: Settled) -> Any:
    """ExecuTorch's quantiser, set up. What it decides by name it is told once its own passes are through."""
    known = stack()

    class Quantizer(known.quantizer.QnnQuantizer):  # type: ignore[misc, name-defined]
        def transform_for_annotation(self, model: Any) -> Any:
            model = super().transform_for_annotation(model)
            plan = _Plan(request, quantizing, found, model)
            self.add_discard_nodes(plan.outside)
            self.set_block_size_map(plan.blocks)
            self.set_submodule_qconfig_list(plan.configs())
            return model

    quantizer = Quantizer(soc_model=getattr(known.schema.QcomChipset, request.chip))
    quantizer.default_quant_config = _config(request.scheme, request, quantizing)
    return quantizer


class _Plan:
    """What becomes of every operator, by the names that the quantiser's own passes left."""

    def __init__(self, request: QuantizeRequest, quantizing: Quantizing, found: Settled, model: Any) -> None:
        self._request, self._quantizing, self._found, self._model = request, quantizing, found, model
        self.outside: list[str] = []
        self.blocks: dict[str, Block] = {}
        self._groups: dict[tuple[str, Block | None], set[str]] = {}
        self._narrowed: list[str] = []
        self._whole = 0
        for node in model.graph.nodes:
            if node.op == "call_function":
                self._place(node)
        found.note(self._narrow_note())
        if self._whole:
            found.note(
                f"{self._whole} layer(s) have 4-bit weights with a scale a channel, not a block: "
                "blocks are for linear layers and 1x1 convolutions of at least 16 inputs"
            )

    def configs(self) -> list[Any]:
        """A predicate and a configuration for each scheme and block.

        The quantiser keeps a block's size in its configuration: two sizes in one would both be the last.
        """
        return [
            (lambda node, names=names: node.name in names, _config(scheme, self._request, self._quantizing))
            for (scheme, _), names in self._groups.items()
        ]

    def _place(self, node: Any) -> None:
        override = self._override(node)
        scheme = override.scheme if override else self._request.scheme
        if scheme in _OUT:
            self.outside.append(node.name)
            return
        own = override is not None
        if self._request.htp_arch < WIDE_FROM and base_name(node) in _WIDE and scheme.startswith("16a"):
            scheme, own = _NARROW, True
            self._narrowed.append(node.name)
        block = None
        if scheme == BLOCK:
            size = (override.block_size if override else None) or self._quantizing.block_size
            block = _block(self._model, node, size)
            self._whole += block is None and base_name(node) in BIASED
        if block is not None:
            self.blocks[node.name] = block
            self._found.blocks |= base_name(node) == "linear"
        if own or block is not None:
            self._groups.setdefault((scheme, block), set()).add(node.name)

    def _override(self, node: Any) -> Override | None:
        """That of the operator it comes from; what a pass put in belongs to its module."""
        name = origin(node)
        if name is not None:
            return self._found.schemes.get(name)
        given = (one for one in self._request.overrides if one.kind != "node")
        return next((one for one in given if fits(one, node)), None)

    def _narrow_note(self) -> str:
        if not self._narrowed:
            return ""
        named = ", ".join(self._narrowed[:4]) + (", …" if len(self._narrowed) > 4 else "")
        return (
            f"{len(self._narrowed)} matmul and LayerNorm operators are {_NARROW} ({named}): products of "
            f"16-bit tensors begin with HTP v{WIDE_FROM}, and this chip has v{self._request.htp_arch}"
        )


def _config(scheme: str, request: QuantizeRequest, quantizing: Quantizing) -> Any:
    known = stack().quantizer
    per_tensor = scheme == "16a16w"
    config = known.ModuleQConfig(
        getattr(known.QuantDtype, f"use_{scheme}"),
        is_qat=request.training is not None,
        is_conv_per_channel=not per_tensor and quantizing.conv_per_channel is not False,
        is_linear_per_channel=not per_tensor and quantizing.linear_per_channel is not False,
        is_embedding_per_channel=quantizing.embedding_per_channel,
        act_observer=_observer(quantizing.observer, trained=request.training is not None),
        act_symmetric=quantizing.act_symmetric,
        eps=quantizing.eps,
    )
    blocks = getattr(config, "per_block_quant_config_list", [])
    for one in (config.quant_config, *config.per_channel_quant_config_list, *blocks):
        bias.mend(one)
    return config


def _observer(name: str, *, trained: bool) -> Any:
    """The quantiser's own default follows the first sample: of the others it takes in a hundredth each."""
    pt2e = stack().pt2e
    if trained:
        return None  # its fused observers for training take no other
    return {
        "auto": pt2e.MinMaxObserver,
        "minmax": pt2e.MinMaxObserver,
        "histogram": pt2e.HistogramObserver,
        "moving-average": None,
    }[name]


def _block(model: Any, node: Any, wanted: int) -> Block | None:
    """The block of a layer's weight: so many inputs, or fewer if they do not divide; None: too few."""
    kind = base_name(node)
    if kind not in ("linear", "conv1d", "conv2d", "conv3d") or getattr(node.args[1], "op", "") != "get_attr":
        return None
    sizes = tuple(attribute(model, node.args[1]).shape)
    if any(size != 1 for size in sizes[2:]):
        return None  # the compiler cannot make an operator of such a convolution and a relu
    block = wanted
    while block >= _SMALLEST_BLOCK and sizes[1] % block:
        block //= 2
    return (1, block, *(1 for _ in sizes[2:])) if block >= min(_SMALLEST_BLOCK, wanted) else None
