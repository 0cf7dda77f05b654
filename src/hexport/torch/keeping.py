"""Exported graphs in hexport's store, by what they were made from: the captured program, never source text.

A factory can read files, draw numbers and import what it likes, so its text says nothing about its model. It
is called each time, and the module captured each time; writing ONNX, the longer part, is done once.
"""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.storage import Store, key_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

STEP = "torch"
_held: dict[Path, ExitStack] = {}


def kept(program: ExportedProgram, make: Callable[[Path], None], **parts: object) -> Path:
    """The folder that ``make`` fills for ``program``; it stays until this process ends."""
    import torch

    store = Store()
    _hold(store)
    key = key_of(STEP, program=program_digest(program), torch=torch.__version__, **parts)
    folder, _ = store.get(STEP, key, make)
    return folder


def program_digest(program: ExportedProgram) -> str:
    """Graphs, the modules that their operators are from, and every number in it."""
    total = hashlib.sha256()
    for name, graph in _graphs(program.graph_module):
        total.update(f"{name}\n{graph.print_readable(print_output=False)}\n".encode())
        for node in graph.graph.nodes:
            stack = node.meta.get("nn_module_stack") or {}
            total.update(f"{node.name} {[path for path, _ in stack.values()]}\n".encode())
    total.update(f"{program.graph_signature}\n{program.range_constraints}\n{program.call_spec}".encode())
    for name, tensor in sorted({**program.state_dict, **program.constants}.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(_bytes(tensor))
    return total.hexdigest()


def _graphs(module: Any) -> list[tuple[str, Any]]:
    """The graph and those that its operators hold, the branches of a torch.cond for instance."""
    return [(name, part) for name, part in module.named_modules() if hasattr(part, "graph")]


def _bytes(tensor: Any) -> memoryview:
    import torch

    plain = tensor.detach().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy())


def _hold(store: Store) -> None:
    """Keep others from clearing away what this process has been given a path to."""
    if store.root not in _held:
        stack = ExitStack()
        stack.enter_context(store.using())
        _held[store.root] = stack
        atexit.register(stack.close)
