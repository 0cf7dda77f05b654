"""A loaded package: run it, ask what runs where, measure it, close it."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hexport.packaging.manifest import Bucket, Contract
from hexport.records import to_plain
from hexport.runtime.batches import join_batch, split_batch
from hexport.runtime.bucket_choice import choose_bucket, list_buckets, list_shapes
from hexport.runtime.choosing import CPU, NPU, SIMULATOR
from hexport.runtime.engine import Engine
from hexport.runtime.failures import BadInput, NoBucketFits, SessionClosed
from hexport.runtime.options import Tuning, absolute, run_options
from hexport.runtime.padding import cut, pad, pad_values
from hexport.runtime.planning import Place, Plan
from hexport.runtime.requests import Reception, Request
from hexport.runtime.siblings import Siblings
from hexport.runtime.timing import Bench, measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Description:
    """What runs where."""

    package: str
    backend: str
    target: str | None
    isolated: bool
    scheme: str
    places: tuple[Place, ...]
    runs: dict[str, int]
    """Bucket, or ``cpu`` → how many requests it has served."""
    rebuilt: int
    """How often the NPU or the worker was lost and made anew."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"schema_version": 1, **to_plain(self)}


class Session:
    """Made by :func:`hexport.load`. Safe to use from several threads; closing it frees everything."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        tell: Callable[[str], None],
        notes: list[str],
        *,
        isolated: bool,
        allow_cpu: bool,
        load_seconds: float,
        tuning: Tuning,
        again: Callable[[Tuning], Session],
    ) -> None:
        self._plan, self._engine, self._tell = plan, engine, tell
        self._isolated, self._allow_cpu = isolated, allow_cpu
        self._reception = Reception(plan.package.manifest.contract)
        self._values = pad_values(self.contract)
        self._buckets = plan.buckets
        self._names = tuple(tensor.name for tensor in self.contract.outputs)
        self._familiar: dict[tuple[tuple[int, ...], ...] | None, Bucket] = {}
        self._ready: set[str] = set()
        self._runs: dict[str, int] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._htp = plan.choice.backend in (NPU, SIMULATOR)
        self.load_seconds, self._tuning, self._again = load_seconds, tuning, again
        self._siblings = Siblings(again, tell)
        self.notes = notes

    @property
    def contract(self) -> Contract:
        """What is taken and given: the original model's signature."""
        return self._reception.contract

    @property
    def backend(self) -> str:
        return self._plan.choice.backend

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The compiled sizes; none on the CPU, which takes any."""
        return self._buckets

    @property
    def known_buckets(self) -> tuple[Bucket, ...]:
        """The sizes that the package was made for, wherever it runs."""
        return self._plan.package.manifest.buckets

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        performance: str | None = None,
        rpc_latency: int | None = None,
        priority: str | None = None,
        profiling: str | None = None,
        profiling_file: str | Path | None = None,
    ) -> dict[str, Array]:
        """The outputs, by name, at the sizes that the original would give them.

        QNN settles priority and profiling when a session is made: a call that asks for its own is answered
        by a further session, which is kept for the next.
        """
        if self._closed:
            raise SessionClosed("the session was closed", next="load the package again")
        if priority is not None or profiling is not None or profiling_file is not None:
            own = Tuning(None, priority, None, profiling, absolute(profiling_file))
            other = self._siblings.get(self._tuning.changed(own))
            return other.run(inputs, performance=performance, rpc_latency=rpc_latency)
        if performance is None and rpc_latency is None:
            known = self._familiar.get(self._reception.familiar_shapes(inputs))
            if known is not None and not self._without_number(inputs):
                return self._as_before(known, inputs)
        request = self._reception.take(inputs)
        options = {}
        if performance is not None or rpc_latency is not None:
            options = run_options(performance, rpc_latency, self.backend)
        if not self._buckets:
            return self._on_cpu(request)
        bucket = choose_bucket(self._buckets, request.shapes, self.contract)
        if bucket is not None:
            return self._in_bucket(request, bucket, options)
        pieces = split_batch(request, self._buckets, self.contract)
        if pieces is not None:
            return join_batch(pieces, [self._in_bucket(p.request, p.bucket, options) for p in pieces])
        return self._oversized(request)

    def run_async(self, inputs: Mapping[str, object], **options: Any) -> Future[dict[str, Array]]:
        """The same in a thread of the session's own, with the options of :meth:`run`."""
        with self._lock:
            if self._closed:
                raise SessionClosed("the session was closed", next="load the package again")
            if self._threads is None:
                self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="hexport")
            return self._threads.submit(self.run, inputs, **options)

    def describe(self) -> Description:
        """What runs where, and what was said."""
        choice, package = self._plan.choice, self._plan.package
        others = [other.describe() for other in self._siblings.all()]
        runs = Counter(self._runs)
        for other in others:
            runs.update(other.runs)
        return Description(
            str(package.folder),
            choice.backend,
            choice.target.name if choice.target else None,
            self._isolated,
            package.manifest.scheme,
            self._plan.places(),
            dict(runs),
            self._engine.rebuilt + sum(other.rebuilt for other in others),
            tuple(self.notes),
        )

    def bench(
        self,
        inputs: Mapping[str, object] | None = None,
        *,
        runs: int = 50,
        threads: int = 1,
    ) -> Bench:
        """Load, first and warm latency, throughput, memory; on ``inputs``, or on ones of a bucket's sizes."""
        if not self._runs:
            return measure(self, inputs, runs=runs, threads=threads)
        with self._again(self._tuning) as fresh:  # what has run already has no first run any more
            return measure(fresh, inputs, runs=runs, threads=threads)

    def close(self) -> None:
        """Free everything. Requests under way are answered first; those in the queue find it closed."""
        with self._lock:
            self._closed, threads = True, self._threads
        if threads is not None:
            threads.shutdown(wait=True)
        self._siblings.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def worker_pid(self) -> int | None:
        """Of an isolated session: its worker's process id."""
        return getattr(self._engine, "pid", None)

    def _as_before(self, bucket: Bucket, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Inputs like earlier ones that fitted a bucket exactly: most requests, with nothing more to do."""
        outputs = self._engine.run(f"bucket:{bucket.name}", inputs, {})
        self._count(bucket.name)
        return self._ordered(outputs)

    def _in_bucket(self, request: Request, bucket: Bucket, options: dict[str, str]) -> dict[str, Array]:
        if name := self._without_number(request.arrays):
            return self._no_number(request, name)
        part = f"bucket:{bucket.name}"
        if part not in self._ready:
            self._engine.add(self._plan.parts_for(bucket))
            self._ready.add(part)
        feeds, padded = {}, False
        for name, array in request.arrays.items():
            shape = bucket.input_shapes[name]
            padded = padded or array.shape != shape
            feeds[name] = pad(array, shape, self._values.get(name, {}))
        outputs = self._engine.run(part, feeds, options)
        self._count(bucket.name)
        if not padded:
            self._familiar[tuple(array.shape for array in request.arrays.values())] = bucket
        return self._ordered(cut(outputs, self.contract, request.dims) if padded else outputs)

    def _without_number(self, arrays: Mapping[str, Any]) -> str:
        """An input that the NPU would misread: there NaN and infinities become large numbers, of any sign."""
        return self._reception.without_number(arrays) if self._htp else ""

    def _no_number(self, request: Request, name: str) -> dict[str, Array]:
        if not (self._allow_cpu and self._plan.has_cpu_model):
            raise BadInput(
                f"input {name!r} holds NaN or an infinity",
                why="the NPU takes them for large numbers, and its answer would be wrong",
                next="replace them (a mask's -inf by -10000, for example), or allow the CPU",
            )
        self._tell(f"inputs with NaN or infinities run on the CPU, the NPU misreads them: {name!r}")
        return self._on_cpu(request)

    def _on_cpu(self, request: Request) -> dict[str, Array]:
        if CPU not in self._ready:
            self._engine.add([self._plan.cpu_part()])
            self._ready.add(CPU)
        feeds = {**self._reception.frozen, **request.arrays}
        outputs = self._engine.run(CPU, feeds, {})
        self._count(CPU)
        return self._ordered(outputs)

    def _oversized(self, request: Request) -> dict[str, Array]:
        given = list_shapes(request.shapes)
        if not (self._allow_cpu and self._plan.has_cpu_model):
            raise NoBucketFits(
                f"the inputs fit no bucket: {given}",
                why=f"there is {list_buckets(self._buckets)}; "
                "smaller sizes are taken along axes that the contract fills up",
                next="give inputs of a bucket's sizes, build with larger buckets, or allow the CPU",
            )
        if CPU not in self._runs:
            self._tell(f"inputs that fit no bucket run on the CPU: {given}")
        return self._on_cpu(request)

    def _ordered(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """In the order that the original gives them."""
        if tuple(outputs) == self._names:
            return outputs
        return {
            tensor.name: outputs[tensor.name] for tensor in self.contract.outputs if tensor.name in outputs
        }

    def _count(self, name: str) -> None:
        with self._lock:
            self._runs[name] = self._runs.get(name, 0) + 1
