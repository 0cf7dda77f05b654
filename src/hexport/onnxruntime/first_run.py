"""The first answer of a session beside the CPU's: a model was prepared on random inputs, and these are real.

What fp16 cannot hold depends on the numbers, so random ones may miss it. A session whose first answer is
wrong is prepared again on what it was given. A model that was right once is not looked at again.
"""

from __future__ import annotations

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

    def is_right(
        self, session: Any, names: Sequence[str] | None, feeds: Mapping[str, Any], results: Sequence[Any]
    ) -> bool:
        """Whether the CPU gives the same, as far as fp16 or the quantisation can; asked once for a model."""
        try:
            self._refuse_changed()
            names = names or [output.name for output in session.get_outputs()]
            with ExitStack() as files:
                model = read(self.model(files))
                if not random_nodes(model.graph):
                    Store().get("first-run", self._key(model), lambda _: self._ask(names, feeds, results))
        except _Wrong as wrong:
            warn(
                f"the NPU's first answer is {wrong.args[0]:.0f} dB from the CPU's, though it was right on "
                "random inputs: the model is prepared again on the inputs it was given"
            )
            return False
        except HexportError as error:
            warn(f"the first answer could not be compared with the CPU's: {error.what}")
        return True

    def _refuse_changed(self) -> None:
        if self.given is not None and stamp(self.given) != self.stamp:
            raise UnreadableModel(f"{self.given} is not what the session was made from any more")

    def _key(self, model: Model) -> str:
        chip, options = self.wish.chip.soc_model, self.wish.compiler_options
        return key_of("first-run", model=digest_of(model), chip=chip, options=options)

    def _ask(self, names: Sequence[str], feeds: Mapping[str, Any], results: Sequence[Any]) -> None:
        near = self._decibels(names, feeds, results)
        if near < USABLE_DB:
            raise _Wrong(near)

    def _decibels(self, names: Sequence[str], feeds: Mapping[str, Any], results: Sequence[Any]) -> float:
        import numpy as np

        with ExitStack() as files:
            path = self.model(files)
            sample = {name: np.asarray(value) for name, value in feeds.items()}
            plain = scheme_of(read(path).graph, {}) == "fp16"
            expected = run_on_cpu(path, [sample], optimize=plain).outputs[0]
        got = {name: np.asarray(result) for name, result in zip(names, results, strict=True)}
        return compare([{name: expected[name] for name in got}], [got]).sqnr_db


class _Wrong(Exception):
    """Only to leave the store without an entry."""
