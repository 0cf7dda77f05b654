"""Which dims of the zoo's models have buckets in ``build.py``, and how large several are beside the largest.

The largest size is the zoo's own wherever that leaves a smaller one, so that its real inputs serve; they are
cut for the others. Models with nothing but a batch to vary are built in float only, on random inputs. Those
that are not listed take one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command import why
from timed_child import Ended

Build = Callable[[Path, Sequence[str]], tuple[Ended, dict[str, Any]]]
"""A package's place and more words -> how it ended, and its document."""
DONE = (0, 1)
"""Exit codes with which ``hexport build`` leaves a package."""


@dataclass(frozen=True)
class Varied:
    """One dim, its sizes, and what the other dims are."""

    dim: str
    sizes: tuple[int, ...]
    others: tuple[str, ...] = ()
    calibrated: bool = True
    """Whether the zoo's calibration inputs have the largest of the sizes."""

    @property
    def listed(self) -> str:
        return ",".join(map(str, self.sizes))


_FLAT = ("DynamicDimension.0=1", "DynamicDimension.1=320")
BUCKETS: dict[str, Varied] = {
    "ppocrv4-det": Varied(
        "p2o.DynamicDimension.2", (160, 320), ("p2o.DynamicDimension.0=1", "p2o.DynamicDimension.1=320")
    ),
    "ppocrv4-rec": Varied("p2o.DynamicDimension.1", (160, 320), ("p2o.DynamicDimension.0=1", "x.2=48")),
    "ppocrv2-cls": Varied("x.3", (96, 192), ("x.0=1", "x.2=48")),
    "ppocrv6-det": Varied("DynamicDimension.2", (160, 320), _FLAT),
    "ppocrv5-rec": Varied("DynamicDimension.1", (160, 320), ("DynamicDimension.0=1",)),
    "ppocrv4-seal-det": Varied("DynamicDimension.2", (160, 320), _FLAT),
    "slanet-plus": Varied(
        "DynamicDimension.2", (244, 488), ("DynamicDimension.0=1", "DynamicDimension.1=488")
    ),
    "silero-vad-v6": Varied("seq_len", (8, 16)),
    "oww-melspectrogram": Varied("samples", (8000, 16000), ("batch_size=1",)),
    "oww-embedding": Varied("unk__316", (1, 2), calibrated=False),
    "nsnet2-48k": Varied("time", (50, 100), ("batch_size=1",)),
    "basic-pitch": Varied("unk__749", (1, 2), calibrated=False),
    "swift-f0": Varied("samples", (8000, 16000)),
    "whisper-mel80": Varied("N", (16000, 32000), ("batch_size=1",)),
    "magika": Varied("unk__214", (1, 2), calibrated=False),
    "minilm": Varied("sequence", (16, 32, 64), ("batch=1",)),
    "efficientnet-lite0": Varied("batch", (1, 2), calibrated=False),
}


def has_buckets(name: str, *, calibrated: bool) -> bool:
    """Whether the model is built in several sizes."""
    return name in BUCKETS and (BUCKETS[name].calibrated or not calibrated)


def measure_buckets(name: str, folder: Path, build: Build) -> dict[str, Any]:
    """All sizes in one package, and the largest alone."""
    varied = BUCKETS[name]
    fixed = [word for other in varied.others for word in ("--dim", other)]
    found: dict[str, Any] = {"dim": varied.dim, "sizes": varied.listed}
    several, every = build(folder / "all", [*fixed, "--bucket", f"{varied.dim}={varied.listed}"])
    if several.code not in DONE:
        return {**found, "failure": why(several, every)}
    one, largest = build(folder / "one", [*fixed, "--dim", f"{varied.dim}={max(varied.sizes)}"])
    if one.code not in DONE:
        return {**found, "failure": f"the largest alone: {why(one, largest)}"}
    return {
        **found,
        "all_bytes": binaries(every),
        "largest_bytes": binaries(largest),
        "all_package_bytes": every["bytes_after"],
        "largest_package_bytes": largest["bytes_after"],
        "seconds": several.seconds,
        "met": every["met"],
        "padding": every["padding"],
    }


def binaries(document: Mapping[str, Any]) -> int:
    """Bytes of the context binaries of a package."""
    return sum(one["bytes"] for one in document["artefacts"] if one["role"] == "context_binary")
