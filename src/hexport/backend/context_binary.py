"""Reading a context binary: for which chip Qualcomm's compiler really made it, and what is inside.

The wrapper model's metadata repeats the options that were asked for. The binary carries what the compiler
resolved them to: `htp_arch=85` and a misspelt chip name both read back as v68 and no SoC (measured, 2.7.0).

`libQnnSystem.so` reads it without a device. It is native code fed with a file, so this runs in a worker
only: a damaged file can crash it. The layouts below follow QNN's C headers (system API 1.x). Each structure
begins with a version; one this file does not know is an error, not a guess.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, byref, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve


@dataclass(frozen=True)
class ContextTensor:
    name: str
    dtype: str
    """As the NPU sees it: ``float16``, ``int32``, ``ufixed8`` (quantised, unsigned), ``sfixed16``, …"""
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ContextGraph:
    name: str
    inputs: tuple[ContextTensor, ...]
    outputs: tuple[ContextTensor, ...]
    vtcm_mb: int | None = None
    spill_fill_bytes: int | None = None
    optimization_level: int | None = None  # the finalization mode; 0 is the compiler's own choice


@dataclass(frozen=True)
class ContextBinary:
    """What one context binary says of itself. None: it does not say."""

    build_id: str
    backend_id: int
    backend_api: str
    blob_version: str
    blob_bytes: int
    soc_model: int | None
    htp_arch: int | None
    graphs: tuple[ContextGraph, ...]

    @property
    def sdk(self) -> str:
        """``2.51.0`` of the build id ``v2.51.0.260929181845``."""
        return ".".join(self.build_id.removeprefix("v").split(".")[:3])


@dataclass(frozen=True)
class ContextRequest:
    binary: str
    system_library: str = ""
    """Empty: the one of the onnxruntime-qnn that is installed beside the worker."""


@dataclass(frozen=True)
class ContextReply:
    binaries: tuple[ContextBinary, ...]
    """One; or one a chip, if the file is a multi-SoC container."""


def read_context(arguments: dict[str, Any]) -> dict[str, Any]:
    """The worker's job around :func:`read_context_binaries`."""
    request = from_plain(ContextRequest, arguments)
    library = request.system_library
    if not library:
        import onnxruntime_qnn

        library = onnxruntime_qnn.get_library_path().replace("onnxruntime_providers_qnn", "QnnSystem")
    plain: dict[str, Any] = to_plain(ContextReply(read_context_binaries(Path(request.binary), Path(library))))
    return plain


def read_context_binaries(path: Path, system_library: Path) -> tuple[ContextBinary, ...]:
    """Read every context binary in a file, multi-SoC container or not."""
    system = _System(system_library)
    try:
        with path.open("rb") as stream:
            # Private: a binary of gigabytes costs no memory, and no write could reach the file.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        _unreadable(str(error))
    return tuple(_read_one(system, data, start, size) for start, size in _sections(path, data))


_ZIP_MAGIC, _ZIP_LOCAL_HEADER = b"PK\x03\x04", struct.Struct("<4s22xHH")


def _sections(path: Path, data: mmap.mmap) -> list[tuple[int, int]]:
    """Where the context binaries are: a multi-SoC file is a zip with one `htp.cache.<chip>.<n>` a chip.

    libQnnSystem calls such a file malformed, but reads the entries. They are stored as they are, with a
    checksum of 0, which Python's own zip reader refuses; so only its table of contents is used.
    """
    if data[:4] != _ZIP_MAGIC:
        return [(0, len(data))]
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.startswith("htp.cache.")]
        sections = [_section(data, entry) for entry in entries]
    except (OSError, zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
        _unreadable(f"the multi-SoC container is damaged: {error}")
    return sections or _unreadable("the container holds no HTP context binary")


def _section(data: mmap.mmap, entry: zipfile.ZipInfo) -> tuple[int, int]:
    magic, name_size, extra_size = _ZIP_LOCAL_HEADER.unpack_from(data, entry.header_offset)
    start = entry.header_offset + _ZIP_LOCAL_HEADER.size + name_size + extra_size
    stored = magic == _ZIP_MAGIC and entry.compress_type == zipfile.ZIP_STORED
    if not stored or start < 0 or start + entry.file_size > len(data):
        raise zipfile.BadZipFile(f"entry {entry.filename}")
    return start, entry.file_size


def _read_one(system: _System, data: mmap.mmap, start: int, size: int) -> ContextBinary:
    section = (ctypes.c_uint8 * size).from_buffer(data, start)
    with system.context() as handle:
        # All that is given back belongs to the handle, and is copied out before that is freed.
        info = c_void_p()
        code = system.get_metadata(handle, byref(section), size, byref(info))
        if code or not info.value:
            _unreadable(f"libQnnSystem refused it with code {code & 0xFFFF}")
        binary = _binary(info.value)
    if binary.blob_bytes > size:
        _unreadable(f"it is cut short: {size} bytes, and its code alone has {binary.blob_bytes}")
    return binary


class _System:
    """The three functions of libQnnSystem that are needed here."""

    def __init__(self, library: Path) -> None:
        # First: loaded after libQnnSystem and its unwinder, onnxruntime crashes at its first exception.
        import onnxruntime  # noqa: F401

        try:
            get_providers = ctypes.CDLL(str(library)).QnnSystemInterface_getProviders
        except (OSError, AttributeError) as error:
            raise JobError("SystemLibraryUnusable", str(error)) from error
        get_providers.restype = c_uint64
        providers, count = ctypes.POINTER(c_void_p)(), c_uint32()
        code = get_providers(byref(providers), byref(count))
        if code or not count.value or not providers or not providers[0]:
            raise JobError("SystemLibraryUnusable", f"{library.name} offers no interface (code {code})")
        _, _, *api, create, _, get_metadata, free = _unpack(_PROVIDER, providers[0])
        # The layouts below were read from 1.5's headers and measured with 1.15 (SDK 2.51).
        if api[0] != 1 or api[1] < 5 or not (create and get_metadata and free):
            raise JobError("SystemLibraryUnusable", f"{library.name} has system API {_dotted(api)}")
        self._create = CFUNCTYPE(c_uint64, c_void_p)(create)
        self.get_metadata = CFUNCTYPE(c_uint64, c_void_p, c_void_p, c_uint64, c_void_p)(get_metadata)
        self._free = CFUNCTYPE(c_uint64, c_void_p)(free)

    @contextmanager
    def context(self) -> Iterator[c_void_p]:
        handle = c_void_p()
        if code := self._create(byref(handle)):
            raise JobError("SystemLibraryUnusable", f"creating a system context failed with code {code}")
        try:
            yield handle
        finally:
            self._free(handle)


# C layouts, aligned as C does ("@"); P is a pointer, and a list is its length and a pointer.
_PROVIDER = struct.Struct("@IP3I4P")  # backend, name, API, create, getBinaryInfo (old), getMetadata, free
# version, backend, build id, core API, backend API, SoC name (empty for HTP) …
_BINARY = struct.Struct("@I4xIP3I3IP")
# … then, in 1 and 2: hardware version, blob version, hardware list, blob size, tensors, graphs;
_BINARY_1 = struct.Struct("@3I3IIPQIPIP")
# in 3 (from SDK 2.28): blob version and size, tensors, graphs, platform, metadata, SoC model.
_BINARY_3 = struct.Struct("@3IQIPIPPIPI")
# version, name, inputs, outputs; in 2 updateable tensors too; in 3 a blob and two op numbers too.
_GRAPH = struct.Struct("@I4xPIPIPIPIPII")
# version, id, name, type, format, dtype, (quantisation), rank, dims, (rest of 2, which 1 leaves unused).
_TENSOR, _DIM = struct.Struct("@I4xIPIII44xIP48x"), struct.Struct("@I")
# HTP's own blobs, which begin with their version: a context's arch; a graph's spill-fill, VTCM, mode, more.
_HTP_CONTEXT, _HTP_GRAPH = struct.Struct("@II"), struct.Struct("@IQII")
_HTP = 6
# Far above what a compiler makes: a larger count is a damaged file, or a layout that has changed.
_MOST_GRAPHS, _MOST_TENSORS, _MOST_DIMS, _MOST_BLOB_BYTES = 4096, 65536, 64, 65536


def _binary(address: int) -> ContextBinary:
    version, backend, build_id, _, _, _, *backend_api, _ = _unpack(_BINARY, address)
    if version not in (1, 2, 3):
        _unreadable(f"its description has version {version}; 1 to 3 are known")
    address += _BINARY.size
    soc_model, metadata = 0, b""
    if version == 3:
        *blob_version, blob_bytes, _, _, count, graphs, _, size, at, soc_model = _unpack(_BINARY_3, address)
        metadata = _blob(at, size)
    else:
        _, _, _, *blob_version, _, _, blob_bytes, _, _, count, graphs = _unpack(_BINARY_1, address)
    arch = _htp(_HTP_CONTEXT, metadata)[0] if backend == _HTP else None
    return ContextBinary(
        build_id=_text(build_id, "build id"),
        backend_id=backend,
        backend_api=_dotted(backend_api),
        blob_version=_dotted(blob_version),
        blob_bytes=blob_bytes,
        soc_model=soc_model or None,
        htp_arch=arch or None,
        graphs=tuple(_graph(at, backend) for at in _places(_GRAPH, graphs, count, _MOST_GRAPHS, "graphs")),
    )


def _graph(address: int, backend: int) -> ContextGraph:
    version, name, inputs, input_at, outputs, output_at, _, _, size, at, _, _ = _unpack(_GRAPH, address)
    if version not in (1, 2, 3):
        _unreadable(f"a graph's description has version {version}; 1 to 3 are known")
    blob = _blob(at, size) if version == 3 and backend == _HTP else b""
    spill_fill, vtcm, level = _htp(_HTP_GRAPH, blob)
    return ContextGraph(
        name=_text(name, "graph name"),
        inputs=tuple(map(_tensor, _places(_TENSOR, input_at, inputs, _MOST_TENSORS, "inputs"))),
        outputs=tuple(map(_tensor, _places(_TENSOR, output_at, outputs, _MOST_TENSORS, "outputs"))),
        # The header says MB, 2.51 writes bytes (measured: vtcm_mb=2 reads 2097152).
        vtcm_mb=vtcm >> 20 if vtcm is not None and vtcm >= 2**20 else vtcm,
        spill_fill_bytes=spill_fill,
        optimization_level=level,
    )


def _tensor(address: int) -> ContextTensor:
    version, _, name, _, _, dtype, rank, dims = _unpack(_TENSOR, address)
    if version not in (1, 2):
        _unreadable(f"a tensor's description has version {version}; 1 and 2 are known")
    shape = tuple(_unpack(_DIM, at)[0] for at in _places(_DIM, dims, rank, _MOST_DIMS, "dims"))
    return ContextTensor(_text(name, "tensor name"), _dtype(dtype), shape)


def _dtype(code: int) -> str:
    """0x0216 is float16: the kind, then the bits as decimal digits."""
    kinds = ("int", "uint", "float", "sfixed", "ufixed", "bool")
    return f"{kinds[code >> 8]}{code & 0xFF:x}" if code >> 8 < len(kinds) else f"qnn_{code:#06x}"


def _htp(layout: struct.Struct, blob: bytes) -> tuple[Any, ...]:
    """The values of a blob of version 1, or as many Nones."""
    version, *values = layout.unpack_from(blob.ljust(layout.size, b"\0"))
    return tuple(values) if version == 1 else (None,) * len(values)


def _places(layout: struct.Struct, start: int, count: int, most: int, what: str) -> range:
    if count > most or (count and not start):
        _unreadable(f"it claims {count} {what}" + ("" if start else ", and has no list of them"))
    return range(start, start + count * layout.size, layout.size)


def _unpack(layout: struct.Struct, address: int) -> tuple[Any, ...]:
    return layout.unpack(ctypes.string_at(address, layout.size))


def _blob(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size) if address and size <= _MOST_BLOB_BYTES else b""


def _text(address: int, what: str) -> str:
    raw = ctypes.string_at(address) if address else b""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        _unreadable(f"its {what} is not text: {raw!r:.80}")


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))


def _unreadable(why: str) -> NoReturn:
    raise JobError("ContextUnreadable", f"not a sound context binary: {why}")


if __name__ == "__main__":
    serve({"read_context": read_context})
