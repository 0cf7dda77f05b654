"""A captured graph in ONNX, with the names that the user knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from hexport.torch.capturing import tracing
from hexport.torch.failures import HasState, NoOnnxForm, NotCaptured, TorchError
from hexport.torch.layer_names import forget_scopes, name_layers, name_strays
from hexport.torch.quiet import quiet
from hexport.torch.recurrent import translations
from hexport.torch.signature import Signature
from hexport.torch.user_code import Place, place_of_node

if TYPE_CHECKING:
    from torch.export import ExportedProgram

OPSET = 18
"""What torch writes without a conversion step."""
_OF_WEIGHTS = frozenset(["Gather", "Concat", "Unsqueeze", "Transpose"])


def to_onnx(
    program: ExportedProgram, signature: Signature, outputs: Sequence[str], said: str
) -> tuple[ir.Model, list[str]]:
    """The graph as torch writes it, with our names, and what to say of it.

    torch's optimiser is left out: it takes ``x + 1e-8`` for ``x``, also in front of a logarithm.
    """
    import torch

    try:
        with tracing():
            found = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
                custom_translation_table=translations(),
            )
    except Exception as error:
        raise _explained(error, said) from error
    assert found is not None
    notes = _look_at_state(found.exported_program, program, said)
    model: ir.Model = found.model
    passes.InlinePass()(model)
    name_layers(model)
    _name_inputs(model, signature)
    _name_outputs(model, outputs)
    _name_dims(model, signature)
    forget_scopes(model)
    return model, notes


def tidied(model: ir.Model) -> ir.Model:
    """The same without shape arithmetic and doubles; weights of recurrent layers are put in order now."""
    from onnxscript import optimizer

    from hexport.preparation.cleaning import fold, tidy

    with quiet():
        optimizer.fold_constants(model, should_fold=_is_of_weights)
        model = tidy(fold(model, Path()), Path())
    name_strays(model)
    return model


def _is_of_weights(node: ir.Node) -> bool | None:
    """Large weights are folded too, where only their order changes."""
    if node.op_type not in _OF_WEIGHTS:
        return None
    return True if all(v is None or v.is_initializer() or _is_constant(v) for v in node.inputs) else None


def _is_constant(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is not None and producer.op_type == "Constant"


def _name_inputs(model: ir.Model, signature: Signature) -> None:
    for value, one in zip(model.graph.inputs, signature.inputs, strict=True):
        value.name = one.name


def _name_outputs(model: ir.Model, names: Sequence[str]) -> None:
    """Each is a value of its own; what is an input, a weight or an output already goes through Identity."""
    graph = model.graph
    if len(names) != len(graph.outputs):
        raise NotCaptured(
            f"the graph has {len(graph.outputs)} outputs, and the module {len(names)}",
            next="return tensors only, in tuples, lists and dicts",
        )
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    seen: set[int] = {id(value) for value in graph.inputs}
    for index, (value, wanted) in enumerate(zip(tuple(graph.outputs), names, strict=True)):
        name = wanted
        while name in taken:
            name += "_out"
        taken.add(name)
        if id(value) in seen or value.is_initializer():
            node = ir.node("Identity", [value], name=f"/Identity_{name}")
            graph.append(node)
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            graph.outputs[index] = value = node.outputs[0]
        seen.add(id(value))
        value.name = name


def _name_dims(model: ir.Model, signature: Signature) -> None:
    for value in _values(model):
        if value.shape is not None:
            dims = [
                signature.renamed(str(d.value)) if isinstance(d, ir.SymbolicDim) else d for d in value.shape
            ]
            value.shape = ir.Shape(dims)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs


def _look_at_state(decomposed: Any, program: Any, said: str) -> list[str]:
    """A buffer that changes would keep its first value in the graph; an input that does is the caller's."""
    notes = []
    for spec in decomposed.graph_signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            place = str(_writer_of(program, spec.target))
            raise HasState(
                f"{said} changes its buffer {spec.target} when it runs",
                why=f"{place}\nthe graph would begin with the same value every time".strip(),
                next=f"make {spec.target} an input of forward, and its new value an output",
            )
        if spec.kind.name == "USER_INPUT_MUTATION":
            notes.append(
                f"forward writes into its input {spec.target}; the exported graph leaves it as it is"
            )
    return notes


def _writer_of(program: Any, buffer: str) -> Place:
    """The first operator that writes into a buffer, or into a view of it."""
    held = {n for n, target in program.graph_signature.inputs_to_buffers.items() if target == buffer}
    for node in program.graph.nodes:
        first = node.args[0] if node.args else None
        if getattr(first, "name", None) not in held:
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            return place_of_node(node)
        held.add(node.name)
    return Place()


def _explained(error: Exception, said: str) -> TorchError:
    chain = list(_causes(error))
    node = next((found for one in chain if (found := _node_of(one)) is not None), None)
    last = str(chain[-1]).splitlines()[0] if str(chain[-1]) else type(chain[-1]).__name__
    if node is None:
        return NoOnnxForm(
            f"{said} cannot be written in ONNX",
            why=f"{type(chain[-1]).__name__}: {last}",
            next="please report it, with the model if you may",
        )
    op = re.sub(r"\.default$", "", str(node.target))
    reason = "" if type(chain[-1]).__name__ == "DispatchError" else f"\n{last}"
    return NoOnnxForm(
        f"{said}: torch's operator {op} has no form in ONNX",
        why=f"{place_of_node(node)}{reason}".strip(),
        next="write that line with other operators, or compute it outside of the model",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _node_of(error: BaseException) -> Any:
    """The operator that the exporter was at: it says its name, and has the node itself in its hands."""
    import torch

    trace = error.__traceback__
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        if isinstance(node, torch.fx.Node) and node.op == "call_function":
            return node
        trace = trace.tb_next
    return None
