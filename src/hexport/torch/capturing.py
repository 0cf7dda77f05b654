"""torch.export: one graph of the module, or which line of it stands in the way."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hexport.torch.dynamic_shapes import for_torch
from hexport.torch.failures import BadDynamicShapes, DataDependent, NotCaptured, TorchError
from hexport.torch.quiet import quiet
from hexport.torch.user_code import place_of_error

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from hexport.torch.description import TorchModel

_BRANCHLESS = (
    "write the choice into the graph with torch.where or torch.cond(predicate, true_fn, false_fn, operands), "
    "or take it out of forward: a plain argument (a number, a bool) is fixed in the graph"
)
_CHATTER = ("The error above occurred", "For ", "If you suspect", "Caused by: (_export", "consider using")


def capture(model: TorchModel, *, strict_first: bool = False) -> ExportedProgram:
    """The graph of a module that is in eval mode.

    Tracing without dynamo comes first: it takes a third of the time, does what eager does, and its errors
    have the user's own lines. dynamo takes some things that it refuses, numpy in forward for instance.
    """
    import torch

    module: Any = model.module
    if isinstance(module, torch.export.ExportedProgram):
        return module
    failures: list[Exception] = []
    for strict, loose in _attempts(model, strict_first=strict_first):
        shapes = for_torch(model, loose=loose)
        try:
            with tracing():
                return torch.export.export(
                    module, tuple(model.args), dict(model.kwargs), dynamic_shapes=shapes, strict=strict
                )
        except Exception as error:  # noqa: BLE001 - each of torch's layers has errors of its own
            failures.append(error)
    plain = failures[1 if strict_first else 0]
    raise _explained(plain, model) from plain


def _attempts(model: TorchModel, *, strict_first: bool) -> Iterator[tuple[bool, bool]]:
    """Whether with dynamo, and whether ranges are mere hints: torch refuses guards that always hold."""
    yield strict_first, False
    yield not strict_first, False
    if model.dynamic_shapes is not None:
        yield strict_first, True


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """torch at work on graphs: silent, and with an example of size 1 saying nothing about other sizes."""
    import torch.fx.experimental._config as config

    with quiet(), config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        yield


def _explained(error: Exception, model: TorchModel) -> TorchError:
    module: Any = model.module
    kind, place = type(error).__name__, str(place_of_error(error, module))
    text = _plain(str(error))
    if kind == "GuardOnDataDependentSymNode" or "data-dependent" in text.lower():
        return DataDependent(
            f"{model}: what is computed next depends on values that were computed",
            why=f"{place}\n{re.sub(r' *[(]unhinted.*', '', text.splitlines()[0]) if text else kind}".strip(),
            next=_BRANCHLESS,
        )
    if kind == "UserError" and re.search(r"dynamic|[Cc]onstraint|[Ss]pecializ", text):
        return BadDynamicShapes(
            f"{model}: the dynamic shapes do not go with what the module computes",
            why=_with_axes(text),
            next="leave those axes out of dynamic_shapes, which fixes them at the example's size, or give "
            'torch.export.Dim("name", min=…, max=…) a range that holds',
        )
    return NotCaptured(
        f"{model} cannot be captured as one graph",
        why=f"{kind}: {text}\n{place}".strip(),
        next="write that line with torch's own operators, or take it out of forward; "
        "torch.export.draft_export lists all such places at once",
    )


def _with_axes(text: str) -> str:
    """torch writes the second axis of x as ``L['x'].size()[1]``, and gives advice on options of its own."""
    text = re.sub(r"L\['(\w+)'\]((?:\[[^]]+\])*)\.size\(\)\[(\d+)\]", r"axis \3 of \1\2", text)
    return re.sub(r" If you're using mark_dynamic.*", "", text)


def _plain(text: str) -> str:
    """torch's message without its advice on how to debug torch."""
    lines = []
    for line in text.splitlines():
        if line.startswith(_CHATTER):
            continue
        if line.startswith(("User Stack", "Potential framework code culprit", "The following call")):
            break
        if line.strip():
            lines.append(re.sub(r" For more information, run with TORCH_LOGS=\S+", "", line.rstrip()))
    return "\n".join(lines[:12])
