"""From inputs to outputs: which bucket answers, filled up and cut; or the CPU, which is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hexport.packaging.manifest import Bucket, Contract
from hexport.runtime.batches import join_batch, split_batch
from hexport.runtime.bucket_choice import choose_bucket, list_buckets, list_shapes
from hexport.runtime.choosing import CPU, NPU, SIMULATOR
from hexport.runtime.engine import Engine
from hexport.runtime.failures import BadInput, NoBucketFits
from hexport.runtime.once import Once
from hexport.runtime.options import run_options
from hexport.runtime.padding import cut, pad, pad_values
from hexport.runtime.planning import Plan
from hexport.runtime.requests import Reception, Request
from hexport.toolchain import only_here

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.runtime.deadline import Deadline
    from hexport.runtime.options import Tuning

    Array = NDArray[Any]

_MAKING_READY = "what it needs was still being made ready"


class Answering:
    """Safe to use from several threads."""

    def __init__(self, plan: Plan, engine: Engine, tell: Callable[[str], None], *, allow_cpu: bool) -> None:
        self._plan, self._engine, self._tell, self._allow_cpu = plan, engine, tell, allow_cpu
        self._reception = Reception(plan.package.manifest.contract)
        self._values = pad_values(self.contract)
        self.buckets = plan.buckets
        """The compiled sizes; none on the CPU, which takes any."""
        self._names = tuple(tensor.name for tensor in self.contract.outputs)
        self._familiar: dict[tuple[tuple[int, ...], ...] | None, Bucket] = {}
        self._ready = Once()
        self.runs: dict[str, int] = {}
        """Bucket, or ``cpu`` → how many requests it has served."""
        self._lock = threading.Lock()
        self._htp = plan.choice.backend in (NPU, SIMULATOR)

    @property
    def contract(self) -> Contract:
        """What is taken and given: the original model's signature."""
        return self._reception.contract

    def answer(
        self, inputs: Mapping[str, object], tuning: Tuning | None, deadline: Deadline | None
    ) -> dict[str, Array]:
        """The outputs, by name, at the sizes that the original would give them."""
        if tuning is None:
            known = self._familiar.get(self._reception.familiar_shapes(inputs))
            if known is not None and not self._without_number(inputs):
                return self._as_before(known, inputs, deadline)
        request = self._reception.take(inputs)
        options = self._options(tuning) if tuning is not None else {}
        if not self.buckets:
            return self._on_cpu(request, deadline)
        bucket = choose_bucket(self.buckets, request.shapes, self.contract)
        if bucket is not None:
            return self._in_bucket(request, bucket, options, deadline)
        pieces = split_batch(request, self.buckets, self.contract)
        if pieces is not None:
            answers = [self._in_bucket(p.request, p.bucket, options, deadline) for p in pieces]
            return join_batch(pieces, answers)
        return self._oversized(request, deadline)

    def close(self) -> None:
        """Wait for what requests have begun, and may have given up since."""
        self._ready.wait()

    def _options(self, tuning: Tuning) -> dict[str, str]:
        if tuning.performance is None and tuning.rpc_latency is None:
            return {}
        with only_here(self._plan.interpreter):
            return run_options(tuning.performance, tuning.rpc_latency, self._plan.choice.backend)

    def _as_before(
        self, bucket: Bucket, inputs: Mapping[str, Any], deadline: Deadline | None
    ) -> dict[str, Array]:
        """Inputs like earlier ones that fitted a bucket exactly: most requests, with nothing more to do."""
        outputs = self._engine.run(f"bucket:{bucket.name}", inputs, {}, deadline)
        self._count(bucket.name)
        return self._ordered(outputs)

    def _in_bucket(
        self, request: Request, bucket: Bucket, options: dict[str, str], deadline: Deadline | None
    ) -> dict[str, Array]:
        if name := self._without_number(request.arrays):
            return self._no_number(request, name, deadline)
        part = f"bucket:{bucket.name}"
        self._ready.do(part, lambda: self._engine.add(self._plan.parts_for(bucket)), deadline, _MAKING_READY)
        feeds, padded = {}, False
        for name, array in request.arrays.items():
            shape = bucket.input_shapes[name]
            padded = padded or array.shape != shape
            feeds[name] = pad(array, shape, self._values.get(name, {}))
        outputs = self._engine.run(part, feeds, options, deadline)
        self._count(bucket.name)
        if not padded:
            self._familiar[tuple(array.shape for array in request.arrays.values())] = bucket
        return self._ordered(cut(outputs, self.contract, request.dims) if padded else outputs)

    def _without_number(self, arrays: Mapping[str, Any]) -> str:
        """An input that the NPU would misread: there NaN and infinities become large numbers, of any sign."""
        return self._reception.without_number(arrays) if self._htp else ""

    def _no_number(self, request: Request, name: str, deadline: Deadline | None) -> dict[str, Array]:
        if not (self._allow_cpu and self._plan.has_cpu_model):
            raise BadInput(
                f"input {name!r} holds NaN or an infinity",
                why="the NPU takes them for large numbers, and its answer would be wrong",
                next="replace them (a mask's -inf by -10000, for example), or allow the CPU",
            )
        self._tell(f"inputs with NaN or infinities run on the CPU, the NPU misreads them: {name!r}")
        return self._on_cpu(request, deadline)

    def _on_cpu(self, request: Request, deadline: Deadline | None) -> dict[str, Array]:
        self._ready.do(CPU, lambda: self._engine.add([self._plan.cpu_part()]), deadline, _MAKING_READY)
        feeds = {**self._reception.frozen, **request.arrays}
        outputs = self._engine.run(CPU, feeds, {}, deadline)
        self._count(CPU)
        return self._ordered(outputs)

    def _oversized(self, request: Request, deadline: Deadline | None) -> dict[str, Array]:
        given = list_shapes(request.shapes)
        if not (self._allow_cpu and self._plan.has_cpu_model):
            raise NoBucketFits(
                f"the inputs fit no bucket: {given}",
                why=f"there is {list_buckets(self.buckets)}; "
                "smaller sizes are taken along axes that the contract fills up",
                next="give inputs of a bucket's sizes, build with larger buckets, or allow the CPU",
            )
        if CPU not in self.runs:
            self._tell(f"inputs that fit no bucket run on the CPU: {given}")
        return self._on_cpu(request, deadline)

    def _ordered(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """In the order that the original gives them."""
        if tuple(outputs) == self._names:
            return outputs
        return {name: outputs[name] for name in self._names if name in outputs}

    def _count(self, name: str) -> None:
        with self._lock:
            self.runs[name] = self.runs.get(name, 0) + 1
