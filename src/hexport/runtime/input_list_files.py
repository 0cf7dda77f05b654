"""Where a run has its inputs from and puts its outputs: one file of arrays, or a list and a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
from hexport.packaging.manifest import Tensor
from hexport.runtime.array_files import join_samples, read_arrays, split_samples, write_arrays
from hexport.runtime.input_list import read_input_list
from hexport.runtime.input_list_outputs import refuse_folder, write_outputs
from hexport.whole_file import refuse_missing_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Given:
    """The inputs of a run."""

    samples: tuple[dict[str, Array], ...]
    raw: bool = False
    """Whether they came from files of plain numbers."""


@dataclass(frozen=True)
class Files:
    """What the user named."""

    inputs: str | Path | None
    input_list: str | Path | None
    samples: bool
    output: str | Path | None
    output_folder: str | Path | None

    def check(self, bench: bool) -> None:
        """Say before the work what does not go together, or has no place to be in."""
        if self.inputs is None and self.input_list is None and not bench:
            raise UsageError(
                "there is nothing to run on", next="give --inputs F.npz, --input-list FILE, or --bench"
            )
        if self.inputs is not None and self.input_list is not None:
            raise UsageError("--inputs and --input-list both name inputs", next="give one of them")
        if self.samples and self.input_list is not None:
            raise UsageError(
                "--samples has no meaning with --input-list", why="each of its lines is one sample"
            )
        if self.output is not None:
            refuse_missing_folder(Path(self.output))
        if self.output_folder is not None:
            refuse_folder(Path(self.output_folder))

    def read(self, tensors: Callable[[], Sequence[Tensor]]) -> Given:
        """The inputs; ``tensors`` tells what the model takes, if that is needed to read them."""
        if self.input_list is not None:
            found = read_input_list(Path(self.input_list), tensors())
            return Given(found.samples, found.raw)
        if self.inputs is None:
            return Given(())
        arrays = read_arrays(Path(self.inputs))
        return Given(tuple(split_samples(arrays, Path(self.inputs))) if self.samples else (arrays,))

    def keep(
        self, results: Sequence[Mapping[str, Array]], given: Given
    ) -> tuple[Mapping[str, Array], tuple[str, ...]]:
        """Write what came out where it was wanted; gives it as one file of arrays has it, and what to say."""
        if not results:
            return {}, ()
        notes: tuple[str, ...] = ()
        if self.output_folder is not None:
            notes = write_outputs(Path(self.output_folder), results, raw=given.raw)
        stacked = self.samples or self.input_list is not None
        arrays = join_samples(results) if stacked else results[0]
        if self.output is not None:
            write_arrays(Path(self.output), arrays)
        return arrays, notes
