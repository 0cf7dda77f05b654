"""The first answer of a session beside the CPU's: a model was prepared on random inputs, and these are real.

What fp16 cannot hold depends on the numbers, so random ones may miss it. A session whose first answer is
wrong is prepared again on what it was given, and goes to the CPU if that does not help. A model that was
right once is not looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.backend.running import run_on_cpu
from hexport.errors import HexportError
from hexport.model import Model, read
from hexport.model.digests import digest_of
from hexport.model.file import UnreadableModel
from hexport.model.scheme import scheme_of
from hexport.model.soundness import random_nodes
from hexport.observe.comparing import compare
from hexport.observe.decibels import USABLE_DB
from hexport.onnxruntime.asking import PREPARE, Wish
from hexport.onnxruntime.contexts import temporary_folder
from hexport.onnxruntime.fallback import warn
from hexport.storage import Store, key_of

_FEW = 0.01
"""The share of whole numbers that may be others: two that are nearly equal, of which the largest is taken."""


def stamp(file: Path) -> tuple[int, int]:
    """Size and time of a file; zeros when it is not there."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class FirstRun:
    """What a session was made from."""

    content: bytes | None
    """The model, when it was not given as a file."""
    given: Path | None
    stamp: tuple[int, int]
    """Of the file, when the session was made."""
    options: Any
    wish: Wish

    @property
    def is_due(self) -> bool:
        return self.wish.session.get(PREPARE) != "0"

    def model(self, files: ExitStack) -> Path:
        """The model as a file."""
        if self.given is not None:
            return self.given
        assert self.content is not None
        file = Path(files.enter_context(temporary_folder()), "model.onnx")
        file.write_bytes(self.content)
        return file

    def samples(self, feeds: Mapping[str, Any], files: ExitStack) -> Path:
        """The inputs in the form that ``prepare`` takes them: the leading axis counts samples."""
        import numpy as np

        file = Path(files.enter_context(temporary_folder()), "first.npz")
        np.savez(file, **{name: np.asarray(value)[None] for name, value in feeds.items()})  # type: ignore[arg-type]
        return file

    def doubt(
        self, session: Any, names: Sequence[str] | None, feeds: Mapping[str, Any], results: Sequence[Any]
    ) -> str:
        """How the answer differs from the CPU's by more than fp16 or the quantisation explain; empty if it
        does not. Asked until it was right once for a model."""
        try:
            self._refuse_changed()
            names = names or [output.name for output in session.get_outputs()]
            with ExitStack() as files:
                model = read(self.model(files))
                if not random_nodes(model.graph):
                    Store().get("first-run", self._key(model), lambda _: self._ask(names, feeds, results))
        except _Wrong as wrong:
            return str(wrong)
        except HexportError as error:
            warn(f"the first answer could not be compared with the CPU's: {error.what}")
        return ""

    def _refuse_changed(self) -> None:
        if self.given is not None and stamp(self.given) != self.stamp:
            raise UnreadableModel(f"{self.given} is not what the session was made from any more")

    def _key(self, model: Model) -> str:
        chip, options = self.wish.chip.soc_model, self.wish.compiler_options
        return key_of("first-run", model=digest_of(model), chip=chip, options=options)

    def _ask(self, names: Sequence[str], feeds: Mapping[str, Any], results: Sequence[Any]) -> None:
        import numpy as np

        with ExitStack() as files:
            path = self.model(files)
            sample = {name: np.asarray(value) for name, value in feeds.items()}
            in_float = scheme_of(read(path).graph, {}) == "fp16"
            expected = run_on_cpu(path, [sample], optimize=in_float).outputs[0]
        got = {name: np.asarray(result) for name, result in zip(names, results, strict=True)}
        near = compare([{name: expected[name] for name in got}], [got]).sqnr_db
        if near < USABLE_DB:
            raise _Wrong(f"the NPU's first answer is {near:.0f} dB from the CPU's")
        others = [others_in(name, expected[name], got[name]) for name in got if in_float]
        if any(others):
            raise _Wrong(f"in the NPU's first answer, {'; '.join(filter(None, others))}")


def others_in(name: str, want: Any, have: Any) -> str:
    """What decibels do not tell: numbers in place of infinities, and whole numbers that are others."""
    import numpy as np

    from hexport.preparation.nearness import nearness  # brings onnxscript, which importing this must not

    if want.dtype.kind != "f":
        count = int(np.sum(want != have))
        return f"{count} of {want.size} numbers of {name!r} are others" if count > _FEW * want.size else ""
    broken = nearness({name: want}, {name: have}) == -math.inf
    return f"{name!r} has other infinities than on the CPU" if broken else ""


class _Wrong(Exception):
    """Only to leave the store without an entry."""
