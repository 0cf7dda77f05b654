"""nn.LSTM, nn.GRU and nn.RNN become ONNX's operators of these names, for sequences of any length.

torch's exporter would write every step out, which fixes the length, or a Loop, which the NPU does not run.
hexport's own rules unroll ONNX's operators for the NPU, in the form that its compiler gets right.

While a module is captured, torch has to know only which shapes such a layer gives: ``whole_layers``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_BOTH = 2
_BIASES = 2


@dataclass(frozen=True)
class Kind:
    """One of torch's recurrent layers in ONNX's words."""

    op: str
    order: tuple[int, ...]
    """Where ONNX's gates are among torch's."""
    attributes: tuple[tuple[str, Any], ...] = ()
    activation: str = ""


GRU = Kind("GRU", (1, 0, 2), (("linear_before_reset", 1),))  # torch: r z n, ONNX: z r h
LSTM = Kind("LSTM", (0, 3, 1, 2))  # torch: i f g o, ONNX: i o f c
KINDS = {
    "gru": GRU,
    "lstm": LSTM,
    "rnn_tanh": Kind("RNN", (0,), activation="Tanh"),
    "rnn_relu": Kind("RNN", (0,), activation="Relu"),
}


def translations() -> dict[Any, Callable[..., Any]]:
    """torch's operator -> what writes it in ONNX, for torch.onnx.export."""
    import torch

    return {getattr(torch.ops.aten, name).input: _translation(kind) for name, kind in KINDS.items()}


@contextlib.contextmanager
def whole_layers() -> Iterator[None]:
    """Keep the layers whole while a graph is captured or decomposed; nothing may be computed in here.

    torch.export's own patches of these layers (``torch/export/_patches.py``) go the same way.
    """
    import torch

    key = torch._C.DispatchKey.CompositeImplicitAutograd
    # Fake tensors look here first, and would write every step out.
    table = torch._decomp.decomposition_table
    with contextlib.ExitStack() as after:
        for name in KINDS:
            op = getattr(torch.ops.aten, name).input
            shapes = _lstm_shapes if name == "lstm" else _shapes
            after.callback(op._dispatch_cache.clear)
            _put(op.py_kernels, key, shapes, after)
            _put(table, op, shapes, after)
            op._dispatch_cache.clear()
        yield


def _put(table: Any, key: Any, value: Any, after: contextlib.ExitStack) -> None:
    """For a while; what was there comes back."""
    if key in table:
        after.callback(table.__setitem__, key, table[key])
    else:
        after.callback(table.pop, key, None)
    table[key] = value


def _shapes(x: Any, hx: Any, *rest: Any) -> tuple[Any, Any]:
    import torch

    both = rest[5]
    return x.new_empty(*x.shape[:-1], hx.shape[-1] * (_BOTH if both else 1)), torch.empty_like(hx)


def _lstm_shapes(x: Any, hx: Sequence[Any], *rest: Any) -> tuple[Any, Any, Any]:
    import torch

    return *_shapes(x, hx[0], *rest), torch.empty_like(hx[1])


def _translation(kind: Kind) -> Callable[..., Any]:
    def translate(
        x: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        assert not train, dropout  # modules are exported for inference
        directions = _BOTH if bidirectional else 1
        states = list(hx) if kind is LSTM else [hx]
        each = (_BIASES if has_biases else 0) + 2
        if len(params) != num_layers * directions * each:
            raise NotImplementedError("a projection after an LSTM (proj_size) has no form in ONNX")
        return _write(kind, x, states, _grouped(params, each), num_layers, directions, batch_first)

    return translate


def _grouped(params: Sequence[Any], each: int) -> list[Sequence[Any]]:
    """A group of weights for every direction of every layer."""
    return [params[i : i + each] for i in range(0, len(params), each)]


def _write(
    kind: Kind,
    x: Any,
    states: list[Any],
    groups: list[Sequence[Any]],
    layers: int,
    directions: int,
    batch_first: bool,
) -> tuple[Any, ...]:
    op = _op()

    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    finals: list[list[Any]] = []
    for layer in range(layers):
        first = layer * directions
        weights = _weights(kind, groups[first : first + directions])
        begin = [_part(state, first, directions) if layers > 1 else state for state in states]
        x, *last = _layer(kind, x, begin, weights, groups[first][1], directions)
        finals.append(last)
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    return x, *(op.Concat(*each, axis=0) if layers > 1 else each[0] for each in zip(*finals, strict=True))


def _layer(
    kind: Kind, x: Any, begin: list[Any], weights: tuple[Any, ...], recurrence: Any, directions: int
) -> tuple[Any, ...]:
    op = _op()

    attributes = dict(kind.attributes)
    if kind.activation:
        attributes["activations"] = [kind.activation] * directions
    y, *last = getattr(op, kind.op)(
        x,
        *weights,
        None,
        *begin,
        hidden_size=int(recurrence.shape[1]),
        direction="bidirectional" if directions == _BOTH else "forward",
        **attributes,
    )[: 1 + len(begin)]
    # Step, direction, batch, hidden: torch has the directions side by side.
    y = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))
    return y, *last


def _weights(kind: Kind, groups: list[Sequence[Any]]) -> tuple[Any, ...]:
    """ONNX's W, R and B (None without biases) of one layer: gates in its order, a row for each direction."""
    op = _op()

    w = _stacked([_ordered(kind, group[0]) for group in groups])
    r = _stacked([_ordered(kind, group[1]) for group in groups])
    if len(groups[0]) == 2:
        return w, r, None
    biases = [op.Concat(_ordered(kind, g[2]), _ordered(kind, g[3]), axis=0) for g in groups]
    return w, r, _stacked(biases)


def _ordered(kind: Kind, weight: Any) -> Any:
    op = _op()

    if len(kind.order) == 1:
        return weight
    hidden = int(weight.shape[0]) // len(kind.order)
    rows = np.concatenate([np.arange(hidden) + gate * hidden for gate in kind.order])
    return op.Gather(weight, op.Constant(value_ints=rows.tolist()), axis=0)


def _stacked(parts: list[Any]) -> Any:
    op = _op()

    rows = [op.Unsqueeze(part, op.Constant(value_ints=[0])) for part in parts]
    return op.Concat(*rows, axis=0) if len(rows) > 1 else rows[0]


def _op() -> Any:
    """What writes operators; its types know no values that are not there yet."""
    from onnxscript import opset18

    return opset18


def _part(state: Any, first: int, count: int) -> Any:
    op = _op()

    begin, end, axis = (op.Constant(value_ints=[number]) for number in (first, first + count, 0))
    return op.Slice(state, begin, end, axis)
