"""What is to be built: everything that can be wrong with it is found here, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts, zoo
from hexport.building.buckets import Sizes, expand, propose
from hexport.building.signature import Places, named, places
from hexport.building.wishes import Wishes
from hexport.errors import UsageError
from hexport.model import Graph, Model, read
from hexport.model.dims import Shape
from hexport.packaging.manifest import Number
from hexport.packaging.writing import refuse_place
from hexport.preparation.freezing import parse_frozen
from hexport.preparation.verb import zoo_defaults
from hexport.quantization.data import sample_shapes
from hexport.zoo.models import PREFIX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AUTO = "auto"


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
    """The dims that differ between buckets, or may be filled up."""
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
    def fill(self) -> dict[str, dict[int, Number]]:
        """Input -> axis -> what smaller samples are filled up with."""
        found: dict[str, dict[int, Number]] = {}
        for dim in self.varied:
            for name, axis in self.places[dim]:
                found.setdefault(name, {})[axis] = self.pad.get(name, 0)
        return found

    @property
    def is_integer(self) -> bool:
        return self.wishes.scheme != "fp16"


def take_order(
    model: str | Path,
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
    source = read(zoo.resolve(model))
    graph = named(source.graph)
    # Buckets are sizes, too: with them the zoo's own are not taken.
    sized = dims or ({AUTO: 0} if buckets else {})
    given, freeze, notes = zoo_defaults(model, sized, input_shapes, freeze)
    command = f"hexport build '{model}' -o '{output}' --target {chips[0].chip}"
    wishes, calib, said = _settled(model, source, wishes, calib, chips)
    frozen = parse_frozen(graph, freeze or {}, {})
    if buckets == AUTO:
        buckets = _proposed(graph, calib, frozen, dims, samples)
        told = "; ".join(f"{dim}={','.join(map(str, sizes))}" for dim, sizes in buckets.items())
        notes.append(f"buckets, from the samples' sizes: {told}")
    if isinstance(buckets, str):
        raise UsageError(f"--bucket {buckets}: neither NAME=SIZES nor auto")
    sizes = expand(graph, buckets or {}, dims, given or {}, command)
    _refuse_unknown(pad, graph)
    return Order(
        source,
        str(model),
        output,
        chips,
        graph,
        sizes,
        tuple(buckets or {}),
        parse_frozen(source.graph, freeze or {}, sizes[-1].shapes),
        dict(freeze or {}),
        pad,
        wishes,
        calib,
        (*notes, *said),
    )


def _settled(
    model: str | Path, source: Model, wishes: Wishes, calib: object, chips: Sequence[facts.Soc]
) -> tuple[Wishes, object, list[str]]:
    """The scheme, where the user gave none; and what to say of it."""
    quantised = any(node.op in ("QuantizeLinear", "DequantizeLinear") for node in source.graph.walk())
    if quantised:
        if wishes.scheme not in ("", "fp16"):
            raise UsageError(
                f"{model} is quantised already, and --scheme asks for {wishes.scheme}",
                why="rounding what is rounded only loses",
                next="leave --scheme and --calib out to build it as it is, or give the float model",
            )
        return replace(wishes, scheme="fp16"), calib, ["it is quantised already, and built as it is"]
    if calib is None and wishes.scheme in ("", "fp16"):
        if lacking := [chip.chip for chip in chips if not chip.float]:
            raise UsageError(
                f"{lacking[0]} has no float arithmetic on its NPU, so the model has to be quantised",
                why="and that needs real inputs to measure ranges on",
                next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; docs/calibration.md has all of it",
            )
        said = [] if wishes.scheme else ["no --calib was given, so it is built in fp16"]
        return replace(wishes, scheme="fp16"), None, said
    if calib is None:
        if not str(model).startswith(PREFIX):
            raise UsageError(
                f"--scheme {wishes.scheme} needs calibration data",
                why="the ranges of integers are those of real inputs",
                next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; docs/calibration.md has all of it",
            )
        calib = str(model)
    return replace(wishes, scheme=wishes.scheme or "auto"), calib, []


def _proposed(
    graph: Graph,
    calib: object,
    frozen: Mapping[str, NDArray[np.generic]],
    dims: Mapping[str, int],
    samples: int | None,
) -> dict[str, list[int]]:
    if calib is None:
        raise UsageError(
            "--bucket auto needs samples", why="it goes by their sizes", next="give --calib, or name sizes"
        )
    found = propose(graph, sample_shapes(calib, graph, frozen, limit=samples))
    found = {dim: sizes for dim, sizes in found.items() if dim not in dims}
    if not found:
        raise UsageError(
            "--bucket auto found nothing to propose",
            why="all samples have the same sizes",
            next="give the sizes with --dim or --input-shape, or buckets of your own",
        )
    return found


def _refuse_unknown(pad: Mapping[str, Number], graph: Graph) -> None:
    for name in pad:
        if name not in graph.inputs:
            raise UsageError(
                f"--pad {name}: the model has no such input", why=f"it has: {', '.join(graph.inputs)}"
            )
