"""The samples that come with a model: tensors in the module's own form become arrays by input name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexport.torch.description import TorchModel
    from hexport.torch.signature import Signature


def calibration_of(model: TorchModel, signature: Signature) -> object:
    """What ``--calib`` would name, for hexport's own readers; None: there is none."""
    given: Any = model.calibration
    if given is None or isinstance(given, (str, Path)):
        return given

    def named(sample: object) -> object:
        return _named(sample, model, signature)

    if isinstance(given, (list, tuple)):
        return [named(sample) for sample in given]
    if isinstance(given, Iterator):
        return map(named, given)
    return _Calibration(given, named, str(model))


class _Calibration:
    """A callable or an iterable that can be read again, a data loader for instance."""

    def __init__(self, source: Any, named: Callable[[object], object], model: str) -> None:
        self._source, self._named = source, named
        # What messages call it by.
        self.__qualname__, self.__module__ = "calibration", model

    def __call__(self) -> Iterator[object]:
        found = self._source() if callable(self._source) else self._source
        if hasattr(found, "get_next"):
            found = iter(found.get_next, None)
        if not isinstance(found, Iterable):
            return iter([found])
        return map(self._named, found)


def _named(sample: object, model: TorchModel, signature: Signature) -> object:
    """By name, if it has the inputs' names or their form; else as it is, for the reader to refuse."""
    from torch.utils import _pytree as pytree

    names = {one.name for one in signature.inputs}
    if isinstance(sample, Mapping) and set(sample) == names:
        return {name: _array(value) for name, value in sample.items()}
    args, kwargs = _arguments(sample)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    example = pytree.tree_structure((tuple(model.args), dict(model.kwargs)))
    by_position = pytree.tree_structure(((*model.args, *model.kwargs.values()), {}))
    if spec in (example, by_position):
        return {one.name: _array(leaves[one.leaf]) for one in signature.inputs}
    return pytree.tree_map(_array, sample)


def _arguments(sample: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(sample, Mapping):
        return (), dict(sample)
    return (tuple(sample), {}) if isinstance(sample, (tuple, list)) else ((sample,), {})


def _array(value: Any) -> Any:
    import torch

    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
