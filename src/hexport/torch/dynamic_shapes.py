"""Which axes of which inputs vary, and what they are called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hexport.torch.failures import BadDynamicShapes
from hexport.torch.installed import is_module

if TYPE_CHECKING:
    from hexport.torch.description import TorchModel

_FORM = 'for example {"ids": {0: "batch", 1: "seq"}}, or torch.export.Dim("seq", min=2, max=512) for a name'
Axes = dict[int, str]


def for_torch(model: TorchModel, *, loose: bool = False) -> dict[str, Any] | None:
    """``dynamic_shapes`` as torch.export takes it: every parameter is there, and names are its own hints.

    ``loose``: so is every ``Dim``; its range stays.
    """
    given = model.dynamic_shapes
    if given is None:
        return None
    bound = _bound(model)
    if isinstance(given, Mapping):
        if strangers := [name for name in given if name not in bound]:
            raise BadDynamicShapes(
                f"dynamic_shapes: {strangers[0]!r} is no input",
                why=f"there are example inputs for {', '.join(bound)}",
                next=_FORM,
            )
        return {name: _hinted(given.get(name), value, name, loose) for name, value in bound.items()}
    if not isinstance(given, (tuple, list)) or len(given) > len(bound):
        raise BadDynamicShapes(
            f"dynamic_shapes has {len(given) if isinstance(given, Sequence) else type(given).__name__} for "
            f"the inputs {', '.join(bound)}",
            next=f"give a dict by input, {_FORM}",
        )
    specs = [*given, *[None] * (len(bound) - len(given))]
    return {name: _hinted(spec, bound[name], name, loose) for name, spec in zip(bound, specs, strict=True)}


def names_of_axes(model: TorchModel) -> list[Axes]:
    """The names that the user gave, for each leaf of the example inputs, in their order."""
    given = model.dynamic_shapes
    if given is None:
        return []
    bound = _bound(model)
    specs = given if isinstance(given, Mapping) else dict(zip(bound, given, strict=False))
    return [axes for name, value in bound.items() for axes in _named(value, specs.get(name))]


def _bound(model: TorchModel) -> dict[str, Any]:
    """Parameter -> example; what ``*args`` and ``**kwargs`` take stays together."""
    assert is_module(model.module)
    return dict(inspect.signature(model.module.forward).bind(*model.args, **model.kwargs).arguments)


def _is_axes(spec: object) -> bool:
    """Whether it speaks of the axes of one tensor."""
    from torch.export.dynamic_shapes import Dim, _DimHint

    one = (str, int, Dim, _DimHint, type(None))
    if isinstance(spec, Mapping):
        return all(isinstance(key, int) for key in spec) and all(isinstance(v, one) for v in spec.values())
    return isinstance(spec, (tuple, list)) and all(isinstance(item, one) for item in spec)


def _hinted(spec: Any, value: Any, where: str, loose: bool) -> Any:
    """The same in torch's words; what is left out is fixed."""
    from torch.utils import _pytree as pytree

    if spec is None:
        return pytree.tree_map(lambda _: None, value)
    if isinstance(value, Mapping) and isinstance(spec, Mapping):
        if strangers := [key for key in spec if key not in value]:
            raise BadDynamicShapes(
                f"dynamic_shapes: {where} has no {strangers[0]!r}",
                why=f"it has {', '.join(map(str, value))}",
                next=_FORM,
            )
        return {key: _hinted(spec.get(key), item, f"{where}[{key!r}]", loose) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and isinstance(spec, (tuple, list)):
        specs = [*spec, *[None] * (len(value) - len(spec))]
        pairs = enumerate(zip(specs, value, strict=False))
        return type(value)(_hinted(one, item, f"{where}[{i}]", loose) for i, (one, item) in pairs)
    if not _is_axes(spec):
        raise BadDynamicShapes(f"dynamic_shapes: {where} has {spec!r}, which names no axes", next=_FORM)
    if beyond := [
        axis for axis in (spec if isinstance(spec, Mapping) else range(len(spec))) if not _has(value, axis)
    ]:
        raise BadDynamicShapes(
            f"dynamic_shapes: {where} has no axis {beyond[0]}",
            why=f"its shape is {list(getattr(value, 'shape', ()))}",
            next=_FORM,
        )
    if isinstance(spec, Mapping):
        return {axis: _hint(dim, loose) for axis, dim in spec.items()}
    return [_hint(dim, loose) for dim in spec]


def _hint(dim: Any, loose: bool) -> Any:
    """torch's word for "dynamic, whatever it is called"."""
    from torch.export import Dim

    if isinstance(dim, str):
        return Dim.DYNAMIC
    if loose and type(dim) is Dim:  # not one that follows from another
        # torch's infinity is no int.
        return Dim.DYNAMIC(min=dim.min, max=dim.max if isinstance(dim.max, int) else None)
    return dim


def _has(value: Any, axis: int) -> bool:
    return 0 <= axis < len(getattr(value, "shape", ()))


def _named(value: Any, spec: Any) -> Iterator[Axes]:
    """Leaf by leaf, as torch flattens the inputs."""
    from torch.utils import _pytree as pytree

    if spec is None or isinstance(spec, str):
        yield from ({} for _ in pytree.tree_leaves(value))
    elif _is_axes(spec) and not isinstance(value, (Mapping, tuple, list)):
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        yield {axis: name for axis, dim in pairs if (name := _name_of(dim))}
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, spec.get(key) if isinstance(spec, Mapping) else None)
    else:
        for item, one in zip(value, [*spec, *[None] * len(value)], strict=False):
            yield from _named(item, one)


def _name_of(dim: object) -> str:
    """A name that may stand in a shape; torch's hints have none, and a sum of dims follows from others."""
    name = dim if isinstance(dim, str) else getattr(dim, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""
