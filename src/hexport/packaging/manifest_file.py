"""``hexport.json`` as bytes: written the same every time, and read as if an enemy had written it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from math import isfinite, prod
from pathlib import Path
from typing import Any, NoReturn

from hexport.packaging.failures import NotAPackage, PackageTooNew
from hexport.packaging.manifest import MANIFEST, ROLES, SCHEMA_VERSION, Manifest
from hexport.packaging.relative_path import check_relative_path
from hexport.records import RecordError, from_plain, to_plain

MOST_BYTES = 64 * 2**20
"""A manifest is kilobytes; only a crafted one is larger."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def to_bytes(manifest: Manifest) -> bytes:
    """The file's content."""
    check(manifest, MANIFEST)
    plain: dict[str, Any] = to_plain(manifest)
    # The version comes first, for people and for readers that look no further.
    document = {"schema_version": plain.pop("schema_version"), **plain}
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def from_bytes(data: bytes, where: str) -> Manifest:
    """The manifest, or an error that says what is wrong with it; ``where`` names it for people."""
    try:
        document = json.loads(
            data.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_no_constant, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        _refuse(where, f"it is not JSON: {error}")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        _refuse(where, "it has no schema_version")
    if version > SCHEMA_VERSION:
        raise PackageTooNew(
            f"{where} has schema version {version}",
            why=f"this hexport knows versions up to {SCHEMA_VERSION}",
            next="pip install --upgrade hexport",
        )
    try:
        manifest = from_plain(Manifest, document, where)
    except RecordError as error:
        _refuse(where, str(error))
    check(manifest, where)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the package in ``folder``."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotAPackage(
            f"{folder} is not a package",
            why=f"{MANIFEST} cannot be read: {error}",
            next="name the folder that `hexport build` wrote",
        ) from error
    if len(data) > MOST_BYTES:
        _refuse(str(path), f"it is larger than {MOST_BYTES >> 20} MiB")
    return from_bytes(data, str(path))


def check(manifest: Manifest, where: str) -> None:
    """What types cannot say: safe and distinct paths, and names that exist."""
    _check_paths(manifest, where)
    _unique(where, "target", (target.name for target in manifest.targets))
    _unique(where, "bucket", (bucket.name for bucket in manifest.buckets))
    targets = {target.name for target in manifest.targets}
    buckets = {bucket.name for bucket in manifest.buckets}
    for artefact in manifest.artefacts:
        if artefact.role not in ROLES:
            _refuse(where, f"{artefact.path} has the unknown role {artefact.role!r}")
        if artefact.bytes < 0 or not _SHA256.fullmatch(artefact.sha256):
            _refuse(where, f"size or SHA-256 of {artefact.path} is none")
        _known(where, "target", artefact.targets, targets)
        _known(where, "bucket", artefact.buckets, buckets)
    for verified in manifest.verification:
        _known(where, "target", (verified.target,), targets)
        _known(where, "bucket", (verified.bucket,), buckets)
    _check_contract(manifest, where)


def _check_paths(manifest: Manifest, where: str) -> None:
    paths = [check_relative_path(artefact.path, where) for artefact in manifest.artefacts]
    # Names that differ in case only are one file on Windows and macOS.
    _unique(where, "file", (path.casefold() for path in [*paths, MANIFEST]))
    files = {path.casefold() for path in paths}
    for path in files:
        if any(str(parent) in files for parent in _parents(path)):
            _refuse(where, f"{path!r} lies in a folder that is a file")
        if path.split("/", 1)[0] == MANIFEST:
            _refuse(where, f"{path!r} lies in {MANIFEST}")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _check_contract(manifest: Manifest, where: str) -> None:
    contract = manifest.contract
    inputs = {tensor.name: tensor for tensor in contract.inputs}
    outputs = {tensor.name: tensor for tensor in contract.outputs}
    _unique(where, "input", [*(t.name for t in contract.inputs), *(f.name for f in contract.frozen)])
    _unique(where, "output", (tensor.name for tensor in contract.outputs))
    _known(where, "input", (padding.input for padding in contract.padding), set(inputs))
    _known(where, "output", (crop.output for crop in contract.crops), set(outputs))
    if any(crop.divide < 1 for crop in contract.crops):
        _refuse(where, "a crop divides by less than 1")
    for frozen in contract.frozen:
        count = prod(frozen.shape)
        if count != len(frozen.values):
            _refuse(where, f"frozen input {frozen.name!r} has {len(frozen.values)} values for {count}")
    for bucket in manifest.buckets:
        for tensors, shapes in ((inputs, bucket.input_shapes), (outputs, bucket.output_shapes)):
            _known(where, "tensor", shapes, set(tensors))
            for name, shape in shapes.items():
                dims = tensors[name].dims
                if min(shape, default=0) < 0 or (dims is not None and len(dims) != len(shape)):
                    _refuse(where, f"bucket {bucket.name!r} has no possible shape for {name!r}")


def _unique(where: str, what: str, names: Iterable[str]) -> None:
    name, times = next(iter(Counter(names).most_common(1)), ("", 1))
    if times > 1:
        _refuse(where, f"the {what} {name!r} is there {times} times")


def _known(where: str, what: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            _refuse(where, f"it speaks of the {what} {name!r}, which it does not have")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two programs may each believe another one of two fields of one name."""
    if len(result := dict(pairs)) != len(pairs):
        raise ValueError("a field is there twice")
    return result


def _float(text: str) -> float:
    """``1e999`` is good JSON, and infinity to Python."""
    value = float(text)
    return value if isfinite(value) else _no_constant(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _refuse(where: str, why: str) -> NoReturn:
    raise NotAPackage(f"{where} is not a sound manifest", why=why, next="build the package again")
