"""From a package and a choice of backend to the sessions that serve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hexport.backend.context_model import read_context_model
from hexport.backend.options import validate_options
from hexport.packaging import Package
from hexport.packaging.manifest import (
    CONTEXT_MODEL,
    CPU_MODEL,
    MODEL_DATA,
    Artefact,
    Bucket,
    Target,
)
from hexport.runtime.choosing import CPU, GPU, SIMULATOR, Choice
from hexport.runtime.failures import Incompatible
from hexport.runtime.parts import Part
from hexport.runtime.simulating import binary_of, compiled_apart, simulator_refusal
from hexport.toolchain import Interpreter, Limits, only_here


@dataclass(frozen=True)
class Place:
    """Where a part runs, for people."""

    part: str
    file: str
    backend: str
    npu_graphs: int
    cpu_nodes: int | None
    """Beside the NPU's graphs; None: not counted, all of it is on the CPU."""


class Plan:
    """What is opened for which bucket. Files are compared with the manifest before they are named here."""

    def __init__(
        self,
        package: Package,
        choice: Choice,
        options: dict[str, str],
        say: Callable[[str], None],
        limits: Limits | None = None,
        interpreter: Interpreter | None = None,
    ) -> None:
        self.package, self.choice, self.interpreter = package, choice, interpreter
        self._options, self._say, self._limits = options, say, limits
        self._models: dict[str, Artefact] = {}
        self._groups: dict[str, str] = {}
        if choice.target is not None:
            self._look_at(choice.target)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Those that can be run; none on the CPU, which takes any size."""
        manifest = self.package.manifest
        return tuple(bucket for bucket in manifest.buckets if bucket.name in self._models)

    @property
    def has_cpu_model(self) -> bool:
        return bool(self.package.find(CPU_MODEL))

    def parts_for(self, bucket: Bucket) -> tuple[Part, ...]:
        """The part of that bucket, and all that must be opened with it."""
        group = self._groups[bucket.name]
        alone = not group or self.choice.backend == SIMULATOR
        together = [other for other in self.buckets if self._groups[other.name] == group]
        # Options are checked, and buckets compiled, for the release that runs them.
        with only_here(self.interpreter):
            if alone:
                return (self._part(bucket, ""),)
            return tuple(self._part(other, group) for other in together)

    def cpu_part(self) -> Part:
        """The model for the CPU."""
        (path, *_) = self.package.verified(*self.package.find(CPU_MODEL)[:1], *self.package.find(MODEL_DATA))
        return Part(CPU, str(path.resolve()))

    def places(self) -> tuple[Place, ...]:
        """What runs where, bucket by bucket."""
        backend, found = self.choice.backend, []
        for bucket in self.buckets:
            model = self._models[bucket.name]
            content = read_context_model(self.package.path(model))
            file = model.path
            if self._apart(bucket):
                file = f"{model.path}, compiled anew for the simulator"
            found.append(Place(bucket.name, file, backend, len(content.calls), len(content.cpu_nodes)))
        if self.has_cpu_model:
            found.append(Place(CPU, self.package.find(CPU_MODEL)[0].path, CPU, 0, None))
        return tuple(found)

    def _look_at(self, target: Target) -> None:
        needed: list[Artefact] = []
        for bucket in self.package.manifest.buckets:
            models = self.package.find(CONTEXT_MODEL, target=target.name, bucket=bucket.name)
            if models:
                self._models[bucket.name] = models[0]
                needed.append(models[0])
        if not needed:
            raise Incompatible(f"{self.package.folder} has nothing compiled for {target.name}")
        self.package.verify(needed)
        for bucket in self.buckets:
            model = self._models[bucket.name]
            binary = binary_of(self.package, model, target, bucket)
            shared = binary is not None and bool(set(binary.graphs) - set(model.graphs))
            self._groups[bucket.name] = binary.path if binary is not None and shared else ""
            needed += [binary] if binary is not None else []
        self.package.verify({artefact.path: artefact for artefact in needed}.values())

    def _apart(self, bucket: Bucket) -> str:
        target = self.choice.target
        if target is None or self.choice.backend != SIMULATOR:
            return ""
        return simulator_refusal(self.package, self._models[bucket.name], target, bucket)

    def _part(self, bucket: Bucket, group: str) -> Part:
        target = self.choice.target
        assert target is not None
        if reason := self._apart(bucket):
            path = compiled_apart(self.package, target, bucket, reason, self._say, self._limits)
        else:
            (path,) = self.package.verified(self._models[bucket.name])
        return Part(f"bucket:{bucket.name}", str(Path(path).resolve()), self._provider(target), group)

    def _provider(self, target: Target) -> dict[str, str]:
        backend = self.choice.backend
        options = {"backend_type": "gpu" if backend == GPU else "htp"}
        if backend == SIMULATOR:
            # The simulator computes as one chip does; a device knows its own.
            options["soc_model"] = str(target.soc_model)
        return dict(validate_options({**options, **target.load_options, **self._options}))
