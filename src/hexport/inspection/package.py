"""A package, as a folder or packed: its contract, what it is for, its files, and what was proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexport.inspection.section import Section, TensorInfo, amount, section, signature
from hexport.packaging import Manifest, open_package, read_packed


@dataclass(frozen=True)
class PackageInfo:
    """The manifest, and whether the files were compared with it."""

    manifest: Manifest
    packed: bool
    verified: bool
    """Whether every file has the SHA-256 of the manifest."""

    def sections(self) -> Iterator[Section]:
        """For people."""
        manifest, tools = self.manifest, self.manifest.toolchain
        state = "sizes and SHA-256 are right" if self.verified else "packed: files were not compared"
        yield section(
            "",
            [
                ("made from", f"{manifest.source.name}, {amount(manifest.source.bytes)}"),
                ("scheme", manifest.scheme),
                ("files", f"{amount(sum(a.bytes for a in manifest.artefacts))}; {state}"),
                ("made by", f"hexport {tools.hexport}, onnxruntime {tools.onnxruntime}, "
                 f"onnxruntime-qnn {tools.onnxruntime_qnn}, QNN SDK {tools.qnn_sdk}"),
                ("command", " ".join(manifest.command)),
                *(("note", note) for note in manifest.notes),
            ],
        )  # fmt: skip
        inputs, outputs = (
            [TensorInfo(tensor.name, tensor.dtype, tensor.dims) for tensor in tensors]
            for tensors in (manifest.contract.inputs, manifest.contract.outputs)
        )
        yield signature("Signature", inputs, outputs)
        frozen = [(f.name, f"{f.dtype}{list(f.shape)}", _few(f.values)) for f in manifest.contract.frozen]
        yield section("Frozen inputs", frozen, "name", "type", "value")
        rows = [(t.name, t.soc_model, f"v{t.htp_arch}", t.backend) for t in manifest.targets]
        yield section("Targets", rows, "chip", "SoC", "Hexagon", "backend")
        yield section("Buckets", self._bucket_rows(), "bucket", "input", "shape")
        files = [
            (a.path, a.role, amount(a.bytes), " ".join(a.targets) or "any", " ".join(a.buckets) or "any")
            for a in manifest.artefacts
        ]
        yield section("Files", files, "path", "role", "size", "target", "bucket")
        yield section(
            "Verified", self._verification_rows(), "target", "bucket", "on", "samples", "output", "SQNR", ""
        )

    def _bucket_rows(self) -> Iterator[tuple[str, str, str]]:
        for bucket in self.manifest.buckets:
            for name, shape in bucket.input_shapes.items():
                yield bucket.name, name, "×".join(map(str, shape))

    def _verification_rows(self) -> Iterator[tuple[str, ...]]:
        for found in self.manifest.verification:
            padded = "".join(f", padded from {name}={size}" for name, size in found.true_dims.items())
            for output in found.outputs:
                sqnr = output.sqnr_db if isinstance(output.sqnr_db, str) else f"{output.sqnr_db:.1f} dB"
                verdict = ("passed" if found.passed else "FAILED") + padded
                where = (found.target, found.bucket, found.backend, str(found.samples))
                yield (*where, output.name, sqnr, verdict)


def inspect_package(folder: Path) -> PackageInfo:
    """Open the package; one that was tampered with is refused, not described."""
    return PackageInfo(open_package(folder).manifest, packed=False, verified=True)


def inspect_packed(path: Path) -> PackageInfo:
    """Read the manifest in a zip."""
    return PackageInfo(read_packed(path), packed=True, verified=False)


def _few(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values[:4])) + (" …" if len(values) > 4 else "")
