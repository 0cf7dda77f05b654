"""The models to compile: read, with sizes fixed, and a name that their files will have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hexport import zoo
from hexport.compiling.channels_last import channels_last, turned_shapes
from hexport.compiling.refusals import AlreadyCompiled
from hexport.errors import UsageError
from hexport.model import Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.labels import COMPILED_OP
from hexport.zoo.models import PREFIX, stem_of


@dataclass(frozen=True)
class Source:
    """One model that is to be compiled."""

    given: str
    """What the user called it."""
    name: str
    """What its files begin with."""
    plain: Model
    """As it is in the file."""
    model: Model
    """As it is compiled: with inputs turned, if that was asked for."""
    shapes: dict[str, Shape]
    """Of the inputs of ``model``."""
    plain_shapes: dict[str, Shape]
    notes: tuple[str, ...] = ()


def read_sources(
    models: Sequence[str | Path],
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    nhwc_inputs: Collection[str],
    *,
    any_operator: bool = False,
) -> tuple[Source, ...]:
    """Every model, or the first thing that is wrong with one of them.

    ``any_operator`` for models whose operators come with a library.
    """
    if not models:
        raise UsageError("there is no model to compile", next="name an ONNX file")
    sources = tuple(_source(model, dims, input_shapes, nhwc_inputs, any_operator) for model in models)
    seen: dict[str, str] = {}
    for source in sources:
        # File systems that take upper and lower case for one are common.
        if (key := source.name.lower()) in seen:
            raise UsageError(
                f"{seen[key]} and {source.given} would be written to the same file",
                why=f"both are called {source.name!r}",
                next="rename one, or compile them into two folders",
            )
        seen[key] = source.given
    return sources


def _source(
    given: str | Path,
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    nhwc: Collection[str],
    any_operator: bool,
) -> Source:
    text = str(given)
    plain = read(zoo.resolve(given), any_operator=any_operator)
    _refuse_compiled(plain, text)
    notes: list[str] = []
    if text.startswith(PREFIX) and not dims and not input_shapes:
        input_shapes = zoo.entry(text.removeprefix(PREFIX)).input_shapes
        notes.append(f"{text}: no sizes were given; the zoo's own are used")
    shapes = fix_shapes(plain.graph, dims, input_shapes, f"hexport compile '{text}'")
    name = stem_of(text)
    turned = turned_shapes(shapes, nhwc)
    notes += [_contract_note(text, i, shapes[i], turned[i]) for i in nhwc if i in shapes]
    model = channels_last(plain, nhwc) if nhwc else plain
    return Source(text, name, plain, model, turned, shapes, tuple(notes))


def _contract_note(given: str, name: str, before: Shape, after: Shape) -> str:
    return (
        f"{given}: input {name!r} takes channels last now, {_listed(after)} instead of {_listed(before)}; "
        "callers must give it so"
    )


def _listed(shape: Shape) -> str:
    return "×".join(map(str, shape))


def _refuse_compiled(model: Model, given: str) -> None:
    if any(node.op == COMPILED_OP for node in model.graph.walk()):
        raise AlreadyCompiled(
            f"{given} is compiled already",
            why="it calls a context binary (an EPContext node), which holds code for one chip and no model",
            next="compile the ONNX model that it was made from",
        )
