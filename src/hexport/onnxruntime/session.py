"""``InferenceSession`` for the QNN provider by its name, which plain onnxruntime no longer knows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from hexport.backend import failures
from hexport.backend.calling import cure
from hexport.backend.options import validate_options
from hexport.backend.sessions import add_provider, classify, import_onnxruntime
from hexport.errors import BadSamples
from hexport.facts import current_platform, simulates_npu
from hexport.onnxruntime import asking, dumping, rehearsal
from hexport.onnxruntime.asking import CPU, Wish
from hexport.onnxruntime.contexts import compiled
from hexport.onnxruntime.fallback import settle, warn
from hexport.onnxruntime.first_run import FirstRun, stamp
from hexport.onnxruntime.libraries import library_file, library_name
from hexport.onnxruntime.options import SessionOptions, copy_of, dims_of, entries_of
from hexport.toolchain import WorkerError
from hexport.toolchain.serving import JobError

_ort = import_onnxruntime()
_LAST: WeakValueDictionary[str, InferenceSession] = WeakValueDictionary()
"""Binary → the latest of the sessions that share it."""


class InferenceSession(_ort.InferenceSession):  # type: ignore[misc, name-defined]  # onnxruntime has no types
    """The real session; on the QNN provider it runs a context that a worker compiled."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._only_records = False
        self._first: FirstRun | None = None
        self._prepared = False
        self.cpu_nodes: tuple[str, ...] = ()
        """What of a session on the NPU is left to the CPU, with the reasons."""
        asked = asking.qnn_options(providers, provider_options)
        if asked is None:
            super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)
            return
        options = SessionOptions() if sess_options is None else sess_options
        wish = asking.understand(asked, entries_of(options))
        with ExitStack() as files:
            if isinstance(path_or_bytes, bytes):
                first = FirstRun(path_or_bytes, None, (0, 0), options, wish)
            else:
                file = Path(path_or_bytes).absolute()
                first = FirstRun(None, file, stamp(file), options, wish)
            self._make(first.model(files), first.given, options, wish, files)
        if self._prepared and first.is_due:
            self._first = first

    def __del__(self) -> None:
        # The native session goes before the one that it shares a context with, which is let go after this.
        self.__dict__.pop("_sess", None)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """As the real one."""
        self._refuse_recorder()
        results = super().run(output_names, input_feed, run_options)
        first, self._first = self._first, None
        doubt = first.doubt(self, output_names, input_feed, results) if first is not None else ""
        if first is None or not doubt:
            return results
        warn(
            f"{doubt}, though it was right on random inputs: "
            "the model is prepared again on the inputs it was given"
        )
        return self._mended(first, output_names, input_feed, run_options)

    def _mended(self, first: FirstRun, output_names: Any, input_feed: Any, run_options: Any) -> Any:
        """Prepared on these inputs; on the CPU, if they are no inputs to prepare on, or do not help."""
        with ExitStack() as files:
            model = first.model(files)
            samples = first.samples(input_feed, files)
            try:
                self._compile(model, first.given, first.options, first.wish, files, samples)
                results = super().run(output_names, input_feed, run_options)
                doubt = first.doubt(self, output_names, input_feed, results)
            except BadSamples as error:
                doubt = f"it cannot be prepared on its inputs: {error.what.rpartition(': ')[2]}"
            if doubt:
                name = first.given or "the model"
                advice = _advice(first.given, first.wish, dynamic=False)
                settle(f"every node of {name} is on the CPU now", [doubt], advice, refused=first.wish.no_cpu)
                self.cpu_nodes = (doubt,)
                self._on_cpu(model, first.options, first.wish)
                results = super().run(output_names, input_feed, run_options)
            return results

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As the real one."""
        self._refuse_recorder()
        super().run_with_iobinding(iobinding, run_options)

    def run_with_ort_values(self, output_names: Any, values: Any, run_options: Any = None) -> Any:
        """As the real one."""
        self._refuse_recorder()
        return super().run_with_ort_values(output_names, values, run_options)

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """As the real one, checked first."""
        validate_options({}, dynamic=options)
        super().set_ep_dynamic_options(options)

    def _make(self, model: Path, given: Path | None, options: Any, wish: Wish, files: ExitStack) -> None:
        """``files`` are temporary ones; a session has read what it needs when it is made."""
        if wish.recorded_only:
            self._only_records = True
            self._start(model, options, wish)
        elif wish.backend != "htp":
            self._on_other_backend(model, options, wish)
        elif rehearsal.is_context(model):
            self._load(model, options, wish)
        else:
            self._compile(model, given, options, wish, files)

    def _compile(
        self,
        model: Path,
        given: Path | None,
        options: Any,
        wish: Wish,
        files: ExitStack,
        samples: Path | None = None,
    ) -> None:
        if samples is None:
            asking.warn_of_chip(wish)
        done = compiled(model, wish, dims_of(options), files, samples)
        self._prepared = done.context is not None and not done.dynamic
        self.cpu_nodes = done.on_cpu
        if done.context is None:
            none = f"nothing of {given or 'the model'} runs on the NPU: every node is on the CPU"
            settle(none, done.on_cpu, _advice(given, wish, dynamic=done.dynamic), refused=wish.no_cpu)
            self._on_cpu(model, options, wish)
            return
        if done.on_cpu:
            some = f"{len(done.on_cpu)} nodes of {given or 'the model'} run on the CPU"
            settle(some, done.on_cpu, _advice(given, wish, dynamic=done.dynamic), refused=wish.no_cpu)
        rehearsal.rehearse_context(done.context, wish)
        dumping.dump(done, given, wish)
        self._start(done.context, options, wish)

    def _refuse_recorder(self) -> None:
        if self._only_records:
            raise failures.SaverOnlyRecords(
                "the Saver backend gives no results",
                why="it writes calls to a file; the numbers it returns mean nothing",
                next="use QnnHtp for numbers",
            )

    def _load(self, model: Path, options: Any, wish: Wish) -> None:
        """A context model; it has been compiled, so there is nothing to prepare."""
        if left := rehearsal.cpu_nodes(model):
            self.cpu_nodes = left
            settle(
                f"{len(left)} nodes of {model} run on the CPU",
                left,
                "they were left over when it was compiled",
                refused=wish.no_cpu,
            )
        try:
            rehearsal.rehearse_context(model, wish)
        except WorkerError as error:  # the simulator dies of weight-shared binaries, or refuses them
            if not wish.sharing or not simulates_npu(current_platform()):
                raise
            model = dumping.apart(model, error)
            self._start(model, options, wish)
            return
        self._start(model, options, wish, wish.sharing)
        if wish.sharing:
            # The first of the sessions that share a binary has to end last.
            binary = rehearsal.binaries(model)[:1] or [model]
            key = str(binary[0].resolve())
            self._shared_with = _LAST.get(key)
            _LAST[key] = self

    def _on_other_backend(self, model: Path, options: Any, wish: Wish) -> None:
        advice = "use QnnHtp; `hexport doctor` says what this machine has"
        if library_file(wish.backend) is None:
            why = f"the installed onnxruntime-qnn has no {library_name(wish.backend)}"
        else:
            self.cpu_nodes, why = rehearsal.on_backend(model, wish)
        if why:
            settle(
                f"the {wish.backend} backend did not start: every node is on the CPU",
                [why],
                cure(why) or advice,
                refused=wish.no_cpu,
            )
            self._on_cpu(model, options, wish)
            return
        if self.cpu_nodes:
            settle(f"{len(self.cpu_nodes)} nodes run on the CPU", self.cpu_nodes, advice, refused=wish.no_cpu)
        self._start(model, options, wish)

    def _start(
        self, model: Path, options: Any, wish: Wish, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        copy = copy_of(options, {**wish.session_entries, **more})
        try:
            add_provider(_ort, copy, wish.context_provider if wish.backend == "htp" else dict(wish.provider))
            # With its own fallback on, onnxruntime would go on with the CPU and only print.
            super().__init__(str(model), copy, enable_fallback=0)
        except JobError as error:
            raise _named(error.kind, error.text) from error
        except Exception as error:
            raise _named(classify(str(error)), str(error)) from error

    def _on_cpu(self, model: Path, options: Any, wish: Wish) -> None:
        super().__init__(str(model), copy_of(options, wish.session_entries), [CPU])


def _advice(given: Path | None, wish: Wish, *, dynamic: bool) -> str:
    name = given or "MODEL"
    if dynamic:
        return (
            "the NPU needs fixed sizes: make them fixed, or build a package for several of them: "
            f"hexport build '{name}' --target {wish.chip.chip} --bucket NAME=SIZE"
        )
    return f"hexport check '{name}' --target {wish.chip.chip} says more of each"


def _named(kind: str, text: str) -> failures.BackendError:
    found: type[failures.BackendError] = getattr(failures, kind, failures.BackendError)
    return found(
        "the session could not be made", why=text, next=cure(text) or "run `hexport doctor`", native_log=()
    )
