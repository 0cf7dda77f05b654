"""``prepare`` with a memory: the same model with the same wishes is prepared once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport import facts
from hexport.model import Model
from hexport.model.digests import digest_of
from hexport.model.dims import Shape
from hexport.preparation.verb import prepare
from hexport.storage import Store, file_digest, key_of
from hexport.toolchain import Limits

_MODEL, _REPORT = "prepared.onnx", "preparation.json"


@dataclass(frozen=True)
class Prepared:
    """A prepared model in the store."""

    path: Path
    report: dict[str, Any]
    """The document of ``hexport prepare --json``."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.report["warnings"])

    @property
    def cures(self) -> tuple[str, ...]:
        """The rules that changed it."""
        return tuple(self.report["cures"])


def prepared(
    source: Model,
    soc: facts.Soc,
    shapes: Mapping[str, Shape],
    freeze: Mapping[str, str],
    proofs: Path | None,
    proofs_digest: str,
    limits: Limits,
    say: Callable[[str], None],
    name: str | Path | None = None,
    cures: Collection[str] = (),
) -> Prepared:
    """The model as ``prepare`` makes it, from the store if it is there.

    ``name``: what the user calls it; ``cures``: the rules that were kept at another of its sizes.
    """

    def make(folder: Path) -> None:
        say("preparing")
        result = prepare(
            name or source.path,
            output=folder / _MODEL,
            target=soc.soc_model,
            input_shapes=shapes,
            freeze=freeze,
            calib=proofs,
            cures=cures,
            limits=limits,
        )
        (folder / _REPORT).write_text(json.dumps(result.to_json()), "utf-8")

    key = key_of(
        "prepare",
        model=digest_of(source),
        proofs=proofs_digest,
        target=soc.soc_model,
        shapes=dict(shapes),
        freeze=_by_content(freeze),
        cures=sorted(cures),
    )

    def waiting() -> None:
        say("another process prepares the same model; waiting for it")

    folder, _ = Store().get("prepare", key, make, waiting)
    return Prepared(folder / _MODEL, json.loads((folder / _REPORT).read_text("utf-8")))


def _by_content(freeze: Mapping[str, str]) -> dict[str, str]:
    """A value in a file is what is in the file."""
    return {n: file_digest(Path(text[1:])) if text.startswith("@") else text for n, text in freeze.items()}
