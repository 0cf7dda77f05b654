"""The sizes of samples, which a model with dynamic dims is fixed to where the user names none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from hexport import zoo
from hexport.errors import UsageError
from hexport.model.dims import DimsNeeded, Shape, are_missing, sizes_from
from hexport.model.graph import Graph
from hexport.quantization.data.calibration import CalibrationData
from hexport.quantization.data.fitting import AnySize
from hexport.quantization.data.live import Live
from hexport.quantization.data.opening import ZOO, ZOO_COUNT, find_source, holds_pictures
from hexport.quantization.data.sample import Array

_SHOWN = 4


class NoSizes(UsageError):
    """The samples do not tell their sizes beforehand."""

    code = "HX703"


def sample_shapes(
    source: object, graph: Graph, frozen: Mapping[str, Array], *, limit: int | None = None
) -> Iterator[dict[str, Shape]]:
    """The shapes of the samples, which may differ from one to the next in every dim that has no number."""
    if isinstance(source, str) and source.startswith(ZOO):
        found: Iterable[Mapping[str, Array]] = zoo.inputs(source.removeprefix(ZOO), count=limit or ZOO_COUNT)
        yield from ({name: array.shape for name, array in sample.items()} for sample in found)
        return
    if holds_pictures(source):
        raise NoSizes(
            "pictures have no size of their own: they are brought to that of the model", next="name the sizes"
        )
    fitting = AnySize(graph, frozen)
    opened = find_source(source, fitting, None, limit)
    if isinstance(opened, Live) and opened.is_used_up:
        raise NoSizes(
            "the samples can be read only once, and their sizes must be known before they are used",
            next="give a callable or a list instead of a generator or reader, or name the sizes",
        )
    for number, one in enumerate(islice(opened.read(), limit)):
        sample = fitting.fit(one, number)
        yield {name: sample[name].shape for name in fitting.free}


def sized_by_samples(
    graph: Graph,
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    source: object,
    frozen: Mapping[str, Array],
    *,
    limit: int | None = None,
    varied: Collection[str] = (),
) -> tuple[Mapping[str, int], Mapping[str, Shape], list[str]]:
    """``dims`` and ``input_shapes`` with what is missing as the samples have it, and what to say of it.

    ``varied``: dims that have several sizes by the user's word, in which the samples may differ.
    """
    ones = {**dims, **dict.fromkeys(varied, 1)}
    if source is None or isinstance(source, CalibrationData) or not are_missing(graph, ones, input_shapes):
        return dims, input_shapes, []
    try:
        seen = list(sample_shapes(source, graph, frozen, limit=limit))
    except NoSizes:
        return dims, input_shapes, []
    found = [sizes_from(graph, ones, input_shapes, shapes) for shapes in seen]
    if not found:
        return dims, input_shapes, []
    if any(other != found[0] for other in found[1:]):
        raise _differing(graph, seen)
    known, shapes, notes = found[0]
    return {d: size for d, size in known.items() if d not in varied or d in dims}, shapes, notes


def _differing(graph: Graph, seen: list[dict[str, Shape]]) -> DimsNeeded:
    different = {name: list(dict.fromkeys(shapes[name] for shapes in seen)) for name in seen[0]}
    listed = []
    for name, shapes in different.items():
        if len(shapes) > 1:
            shown = ", ".join("×".join(map(str, shape)) for shape in shapes[:_SHOWN])
            listed.append(f"{name} ({graph.inputs[name]}) has {shown}{', …' if shapes[_SHOWN:] else ''}")
    return DimsNeeded(
        f"the model has dynamic dims, and the samples are of several sizes: {'; '.join(listed)}",
        why="the NPU compiles for fixed sizes",
        next="`hexport build --bucket auto` makes buckets of these sizes; or name one with --dim or "
        "--input-shape, and give samples of that size",
    )
