"""The prepared model of one bucket, for a build in float."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hexport import facts
from hexport.building.buckets import Sizes
from hexport.building.inputs import Inputs
from hexport.model import Model, read
from hexport.model.external import data_files
from hexport.preparation.kept import prepared
from hexport.quantization.readying import write_proofs
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.zoo.models import PREFIX


def prepare_into(
    output: Path,
    source: Model,
    name: str,
    soc: facts.Soc,
    sizes: Sizes,
    freeze: Mapping[str, str],
    inputs: Inputs,
    limits: Limits,
    say: Callable[[str], None],
    cures: Collection[str],
) -> dict[str, Any]:
    """Write ``output``; gives the report. Changes are proved on ``inputs`` if they have data.

    ``cures``: the rules that were kept in the bucket with which it shares its weights.
    """
    with temporary_folder() as folder:
        proofs, digest = None, inputs.digest
        if inputs.data is not None:
            proofs = folder / "proofs.npz"
            free = [i for i in source.graph.inputs if i not in inputs.frozen]
            digest = write_proofs(inputs.data, free, proofs)
        called = name if name.startswith(PREFIX) else None
        found = prepared(source, soc, sizes.shapes, freeze, proofs, digest, limits, say, called, cures)
    for data in data_files(read(found.path)):
        shutil.copyfile(data, output.parent / data.name)
    shutil.copyfile(found.path, output)
    return found.report
