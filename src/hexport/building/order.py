"""What is to be built: everything that can be wrong with it is found here, before any work is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts
from hexport.building.buckets import Sizes, expand, free_sums, propose, varying
from hexport.building.pad_values import refuse_pad
from hexport.building.signature import Places, Sums, completed, named, places
from hexport.building.wishes import AUTO, SCHEMES, Wishes
from hexport.compiling.refusals import AlreadyCompiled
from hexport.errors import UsageError
from hexport.model import Graph, Model, read
from hexport.model.dims import Shape, are_missing
from hexport.model.labels import COMPILED_OP
from hexport.packaging.manifest import Number
from hexport.packaging.writing import refuse_place
from hexport.zoo.defaults import zoo_defaults
from hexport.zoo.models import PREFIX, Located, locate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.torch.description import TorchModel


@dataclass(frozen=True)
class Order:
    """A build that makes sense."""

    source: Model
    name: str
    """What the user calls the model."""
    output: Path
    chips: tuple[facts.Soc, ...]
    graph: Graph
    """The source's, with a name for every dynamic dim."""
    buckets: tuple[Sizes, ...]
    varied: tuple[str, ...]
    """The dims that have buckets."""
    sums: Sums
    """Dims that follow from others."""
    frozen: Mapping[str, NDArray[np.generic]]
    freeze: Mapping[str, str]
    pad: Mapping[str, Number]
    wishes: Wishes
    calib: object
    notes: tuple[str, ...]

    @property
    def places(self) -> Places:
        return places(self.graph)

    @property
    def varying(self) -> tuple[str, ...]:
        """The dims that differ between buckets: those that have some, and the sums of such."""
        return varying(self.varied, self.sums)

    def complete(self, dims: Mapping[str, int], sizes: Sizes) -> dict[str, int]:
        """``dims``, and the sums that they change at a bucket's sizes."""
        return completed(dims, sizes.dims, self.sums)

    @property
    def fill(self) -> dict[str, dict[int, Number]]:
        """Input -> axis -> what smaller samples are filled up with."""
        found: dict[str, dict[int, Number]] = {}
        for dim in self.varying:
            for name, axis in self.places[dim]:
                found.setdefault(name, {})[axis] = self.pad.get(name, 0)
        return found

    @property
    def is_integer(self) -> bool:
        return self.wishes.scheme != "fp16"


def take_order(
    model: str | Path | TorchModel,
    output: Path,
    targets: Sequence[str | int],
    wishes: Wishes,
    calib: object,
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    freeze: Mapping[str, str] | None,
    buckets: Mapping[str, Sequence[int]] | str | None,
    pad: Mapping[str, Number],
    samples: int | None,
) -> Order:
    """The order, or the first thing that is wrong with it."""
    if not targets:
        raise UsageError("there is no target to build for", next="name a chip with --target")
    chips = tuple(dict.fromkeys(facts.find_target(target) for target in targets))
    refuse_place(output)
    located = locate(model)
    source = read(located.path)
    _refuse_compiled(source, str(model))
    graph = named(source.graph)
    given, freeze, notes = zoo_defaults(str(model), input_shapes, freeze, sized=bool(dims or buckets))
    wishes, calib, own = _with_its_own(wishes, calib, located)
    notes = [*located.notes, *own, *notes]
    command = f"hexport build '{model}' -o '{output}' --target {chips[0].chip}"
    wishes, calib, said = _settled(str(model), source, wishes, calib, chips)
    if buckets == AUTO:
        dims, buckets = _proposed(graph, calib, _parse_frozen(graph, freeze, {}), dims, samples)
        told = "; ".join(f"{dim}={','.join(map(str, sizes))}" for dim, sizes in buckets.items())
        notes.append(f"buckets, from the samples' sizes: {told}")
    if isinstance(buckets, str):
        raise UsageError(f"--bucket {buckets}: neither NAME=SIZES nor auto")
    buckets = buckets or {}
    dims, given, sized = _sized(graph, dims, given, buckets, calib, freeze, samples)
    notes += sized
    sizes = expand(graph, buckets, dims, given, command)
    follow = free_sums(graph, buckets, dims)
    _refuse_frozen_dims(freeze, varying(buckets, follow), graph)
    if calib is None and (calib := _example(located, sizes)) is not None:
        notes.append("it is verified on the example inputs that came with the model")
    refuse_pad(pad, graph, varying(buckets, follow), freeze)
    return Order(
        source,
        str(model),
        output,
        chips,
        graph,
        sizes,
        tuple(buckets),
        follow,
        _parse_frozen(source.graph, freeze, sizes[-1].shapes),
        freeze,
        pad,
        wishes,
        calib,
        (*notes, *said),
    )


def _with_its_own(wishes: Wishes, calib: object, located: Located) -> tuple[Wishes, object, list[str]]:
    """The samples and the metric that came with the model, where the user gave none; and what to say."""
    notes = []
    if calib is None and located.calib is not None:
        calib = located.calib
        notes.append("no --calib was given; the samples that come with the model are used")
    quantised = calib is not None and wishes.scheme != "fp16"
    if located.metric is None or wishes.metric is not None or wishes.min_sqnr is not None or not quantised:
        return wishes, calib, notes
    allowed = wishes.max_drop if wishes.max_drop is not None else located.max_drop
    if allowed is None:
        notes.append(
            "the model comes with a metric, and nothing says what it may lose: --max-drop would use it"
        )
        return wishes, calib, notes
    notes.append(
        f"no --metric was given; the one that comes with the model is used, and may lose {allowed:g}"
    )
    return replace(wishes, metric=located.metric, max_drop=allowed), calib, notes


def _example(located: Located, sizes: Sequence[Sizes]) -> list[Mapping[str, NDArray[np.generic]]] | None:
    """The example that came with the model, if it is of the size that is built; random numbers tell less."""
    example = located.example
    if len(sizes) > 1 or {name: array.shape for name, array in example.items()} != dict(sizes[0].shapes):
        return None
    # What is one number throughout is an example of a shape, and of nothing else.
    return (
        [example]
        if any(array.size and (array != array.flat[0]).any() for array in example.values())
        else None
    )


def _parse_frozen(
    graph: Graph, freeze: Mapping[str, str], shapes: Mapping[str, Shape]
) -> dict[str, NDArray[np.generic]]:
    if not freeze:
        return {}
    from hexport.preparation.freezing import parse_frozen

    return parse_frozen(graph, freeze, shapes)


def _refuse_compiled(source: Model, given: str) -> None:
    if any(node.op == COMPILED_OP for node in source.graph.walk()):
        raise AlreadyCompiled(
            f"{given} is compiled already",
            why="it calls a context binary (an EPContext node), which holds code for one chip and no model",
            next="build the ONNX model that it was made from",
        )


def _refuse_frozen_dims(freeze: Mapping[str, str], buckets: Collection[str], graph: Graph) -> None:
    for name in freeze:
        for dim in graph.inputs[name].shape or () if name in graph.inputs else ():
            if dim in buckets:
                raise UsageError(
                    f"--freeze {name} and --bucket {dim} contradict each other",
                    why=f"{name} has the dim {dim}: one value cannot be of several sizes",
                    next=f"leave {name} an input, or fix {dim} with --dim",
                )


def _settled(
    model: str, source: Model, wishes: Wishes, calib: object, chips: Sequence[facts.Soc]
) -> tuple[Wishes, object, list[str]]:
    """The scheme, where the user gave none; and what to say of it."""
    if wishes.scheme not in ("", AUTO, *SCHEMES):
        raise UsageError(
            f"--scheme {wishes.scheme}: there is no such scheme", why=f"there are {', '.join(SCHEMES)}, auto"
        )
    if any(node.op in ("QuantizeLinear", "DequantizeLinear") for node in source.graph.walk()):
        if wishes.scheme not in ("", "fp16"):
            raise UsageError(
                f"{model} is quantised already, and --scheme asks for {wishes.scheme}",
                why="rounding what is rounded only loses",
                next="leave --scheme out to build it as it is, or give the float model",
            )
        _refuse_for_integers(wishes, f"{model} is quantised already, and built as it is")
        return replace(wishes, scheme="fp16"), calib, ["it is quantised already, and built as it is"]
    if wishes.scheme == "fp16" or (calib is None and not wishes.scheme):
        if lacking := [chip.chip for chip in chips if not chip.float]:
            raise UsageError(
                f"{lacking[0]} has no float arithmetic on its NPU, so the model has to be quantised",
                why="and that needs real inputs to measure ranges on",
                next="give --calib FILE.npz, a folder, or MODULE:CALLABLE, and no --scheme fp16; "
                "docs/calibration.md has all of it",
            )
        _refuse_for_integers(wishes, "the model is built in fp16")
        said = [] if wishes.scheme else ["no --calib was given, so it is built in fp16"]
        return replace(wishes, scheme="fp16"), calib, said
    if calib is None:
        if not model.startswith(PREFIX):
            raise UsageError(
                f"--scheme {wishes.scheme} needs calibration data",
                why="the ranges of integers are those of real inputs",
                next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; docs/calibration.md has all of it",
            )
        calib = model
    return replace(wishes, scheme=wishes.scheme or AUTO), calib, []


def _refuse_for_integers(wishes: Wishes, why: str) -> None:
    """An option without effect is a misunderstanding."""
    if wishes.for_integers:
        raise UsageError(
            f"{wishes.for_integers[0]} is of the quantiser, and nothing is quantised here",
            why=why,
            next="leave it out; --min-sqnr is heeded in any case",
        )


def _sized(
    graph: Graph,
    dims: Mapping[str, int],
    given: Mapping[str, Shape],
    buckets: Mapping[str, Sequence[int]],
    calib: object,
    freeze: Mapping[str, str],
    samples: int | None,
) -> tuple[Mapping[str, int], Mapping[str, Shape], list[str]]:
    """What nobody gave a size has that of the samples; and what to say of it."""
    follow = free_sums(graph, buckets, dims)
    varied = {*varying(buckets, follow), *follow}
    if calib is None or not are_missing(graph, {**dims, **dict.fromkeys(varied, 1)}, given):
        return dims, given, []
    from hexport.quantization.data import sized_by_samples

    frozen = _parse_frozen(graph, freeze, {})
    return sized_by_samples(graph, dims, given, calib, frozen, limit=samples, varied=varied)


def _proposed(
    graph: Graph,
    calib: object,
    frozen: Mapping[str, NDArray[np.generic]],
    dims: Mapping[str, int],
    samples: int | None,
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Dims that are the same in all samples, and buckets for those that are not."""
    if calib is None:
        raise UsageError(
            "--bucket auto needs samples", why="it goes by their sizes", next="give --calib, or name sizes"
        )
    from hexport.quantization.data import sample_shapes

    found = propose(graph, sample_shapes(calib, graph, frozen, limit=samples))
    same = {dim: sizes[0] for dim, sizes in found.items() if len(sizes) == 1}
    differing = {dim: sizes for dim, sizes in found.items() if dim not in dims and dim not in same}
    if not differing:
        raise UsageError(
            "--bucket auto found nothing to propose",
            why="all samples have the same sizes",
            next="leave it out, and they are used; or name buckets of your own",
        )
    return {**same, **dims}, differing
