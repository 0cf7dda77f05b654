"""One description of a PyTorch model, which every route is driven by."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hexport.torch.failures import FactoryFailed
from hexport.torch.installed import is_module, need_torch

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

EXTRAS = ("dynamic_shapes", "calibration", "metric", "max_drop", "input_names", "output_names", "name")
FORM = (
    "return (module, example_inputs), (module, example_inputs, {…}) or a hexport.torch.TorchModel; "
    "docs/torch.md has all of it"
)


@dataclass(frozen=True)
class TorchModel:
    """A module with inputs to run it on, and what else is known of it."""

    module: nn.Module | ExportedProgram
    args: tuple[Any, ...] = ()
    """Example inputs, by position."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Example inputs, by the names of forward's parameters."""
    dynamic_shapes: Any = None
    """As for torch.export, with names for dims: ``{"ids": {0: "batch", 1: "seq"}}``, or ``torch.export.Dim``.
    Inputs that do not vary may be left out."""
    input_names: tuple[str, ...] = ()
    """Of the tensors among the inputs; by default those of forward's parameters."""
    output_names: tuple[str, ...] = ()
    """Of the tensors among the outputs; by default their keys."""
    calibration: object = None
    """Samples to measure ranges on: an iterable, or a callable that gives one."""
    metric: Any = None
    """``metric(outputs, inputs)``, larger is better, for ``max_drop``; as for ``hexport build --metric``."""
    max_drop: float | None = None
    name: str = ""
    """What the model is called in reports."""
    axis_names: tuple[Mapping[int, str], ...] = ()
    """Of a captured program, whose dims have no names: axis -> name, for each of its inputs."""

    def __str__(self) -> str:
        return self.name or type(self.module).__name__

    @property
    def is_program(self) -> bool:
        """Whether it was captured before: a ``.pt2``, or an ``ExportedProgram``."""
        return not is_module(self.module)


def describe(
    module: object, example_inputs: object = None, extras: Mapping[str, Any] | None = None, name: str = ""
) -> TorchModel:
    """The description of a module and its example inputs, looked over."""
    need_torch(name or "a PyTorch model")
    unknown = [key for key in extras or () if key not in EXTRAS]
    if unknown:
        raise FactoryFailed(
            f"{name}: {unknown[0]!r} is nothing that a model is described by",
            why=f"there are {', '.join(EXTRAS)}",
            next=FORM,
        )
    args, kwargs = _arguments(module, example_inputs)
    more = {key: value for key, value in (extras or {}).items() if value is not None}
    return checked(TorchModel(module, args, kwargs, **{"name": name, **more}))  # type: ignore[arg-type]


def checked(model: TorchModel) -> TorchModel:
    """The same, or the first thing that is wrong with it."""
    from torch.export import ExportedProgram

    said = model.name or type(model.module).__name__
    if isinstance(model.module, ExportedProgram):
        return _with_own_examples(model, said)
    if not is_module(model.module):
        raise FactoryFailed(
            f"{said}: {type(model.module).__name__} is no torch.nn.Module",
            why="a model is a module and the inputs to run it on",
            next=FORM,
        )
    if not model.args and not model.kwargs:
        raise FactoryFailed(
            f"{said} comes without example inputs",
            why="a module is exported by running it once, and verified by running it again",
            next=f"give the tensors that forward{_signature(model.module)} takes: {FORM}",
        )
    _refuse_parameters(model, said)
    _refuse_leaves(model, said)
    return replace(
        model,
        args=tuple(model.args),
        kwargs=_in_order(model),
        input_names=tuple(model.input_names),
        output_names=tuple(model.output_names),
        name=said,
    )


def _in_order(model: TorchModel) -> dict[str, Any]:
    """Keyword inputs in the order of forward's parameters, in which torch takes their shapes."""
    assert is_module(model.module)
    try:
        parameters = list(inspect.signature(model.module.forward).parameters)
    except (TypeError, ValueError):
        parameters = []
    first = {name: model.kwargs[name] for name in parameters if name in model.kwargs}
    return {**first, **{name: value for name, value in model.kwargs.items() if name not in first}}


def _arguments(module: object, given: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs by position, or by name where they are a mapping."""
    import torch

    if given is None:
        return (), {}
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, (tuple, list)):
        return tuple(given), {}
    if isinstance(given, torch.Tensor):
        return (given,), {}
    raise FactoryFailed(
        f"the example inputs of {type(module).__name__} are a {type(given).__name__}",
        next="give a tuple of what forward takes by position, or a dict by the names of its parameters",
    )


def _with_own_examples(model: TorchModel, said: str) -> TorchModel:
    """A captured program brings the inputs that it was captured with."""
    program: Any = model.module
    if model.dynamic_shapes is not None:
        raise FactoryFailed(
            f"{said} is an exported program, and its dynamic shapes are settled",
            next="give dynamic_shapes to torch.export.export",
        )
    if not model.args and not model.kwargs:
        if program.example_inputs is None:
            raise FactoryFailed(
                f"{said} comes without example inputs", next="export it again, and save it with its inputs"
            )
        args, kwargs = program.example_inputs
        model = replace(model, args=tuple(args), kwargs=dict(kwargs))
    return replace(model, name=said)


def _signature(module: nn.Module) -> str:
    try:
        return str(inspect.signature(module.forward))
    except (TypeError, ValueError):
        return "(…)"


def _refuse_parameters(model: TorchModel, said: str) -> None:
    """Example inputs must go with forward's parameters."""
    assert is_module(model.module)
    try:
        signature = inspect.signature(model.module.forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*model.args, **model.kwargs)
    except TypeError as error:
        raise FactoryFailed(
            f"{said}: the example inputs do not go with forward{signature}",
            why=str(error),
            next="a tuple has the inputs by position, a dict by the names of forward's parameters; "
            "wrap a dict that is itself an input in a tuple: ({…},)",
        ) from error


def _refuse_leaves(model: TorchModel, said: str) -> None:
    """torch.export takes tensors, and plain values that then are fixed in the graph."""
    import torch
    from torch.utils import _pytree as pytree

    found, _ = pytree.tree_flatten_with_path((tuple(model.args), dict(model.kwargs)))
    plain = (int, float, bool, str, type(None), torch.dtype, torch.device)
    for path, leaf in found:
        if isinstance(leaf, torch.Tensor):
            _refuse_tensor(leaf, pytree.keystr(path[1:]), said)
        elif not isinstance(leaf, plain):
            raise FactoryFailed(
                f"{said}: the example input {pytree.keystr(path[1:])} is a {type(leaf).__name__}",
                why="a graph takes tensors; numbers, texts and None are fixed in it",
                next="give a tensor, for example torch.from_numpy(array)",
            )
    if not any(isinstance(leaf, torch.Tensor) for _, leaf in found):
        raise FactoryFailed(f"{said}: there is no tensor among the example inputs", next=FORM)
    for name, tensor in [*model.module.named_parameters(), *model.module.named_buffers()]:
        _refuse_tensor(tensor, name, said)


def _refuse_tensor(tensor: torch.Tensor, name: str, said: str) -> None:
    """What neither numpy nor ONNX Runtime's CPU computes with cannot be verified."""
    import torch

    if tensor.device.type != "cpu":
        raise FactoryFailed(
            f"{said}: {name} is on the device {tensor.device}",
            why="models are exported and verified on the CPU",
            next="module.cpu(), and example inputs on the CPU",
        )
    if tensor.dtype not in _dtypes():
        raise FactoryFailed(
            f"{said}: {name} is {str(tensor.dtype).removeprefix('torch.')}",
            why="ONNX Runtime's CPU, which the export is verified on, does not compute in it",
            next="module.float(), and example inputs in float; the NPU's precision is chosen with --scheme"
            if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
            else "take the real and the imaginary part as two inputs",
        )


def _dtypes() -> frozenset[torch.dtype]:
    import torch

    floats = (torch.float16, torch.float32, torch.float64)
    whole = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    return frozenset((*floats, *whole))
