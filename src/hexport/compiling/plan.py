"""Which binaries are made: one for each model and chip, or fewer where models or chips share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexport.compiling.options import CompileOptions
from hexport.compiling.sources import Source
from hexport.errors import UsageError
from hexport.facts import Soc


@dataclass(frozen=True)
class Job:
    """One binary: the models that go into it, and the chips that it serves."""

    sources: tuple[Source, ...]
    chips: tuple[Soc, ...]
    provider: dict[str, str]

    def __str__(self) -> str:
        models = ", ".join(source.given for source in self.sources)
        return f"{models} for {', '.join(chip.chip for chip in self.chips)}"

    def file_of(self, source: Source) -> str:
        """The name of the EPContext model; its binary's is made from it by ONNX Runtime."""
        return f"{source.name}.{'-'.join(chip.chip for chip in self.chips)}_ctx.onnx"


def plan_jobs(
    sources: tuple[Source, ...],
    chips: tuple[Soc, ...],
    options: CompileOptions,
    *,
    share_weights: bool,
    multi_soc: bool,
    embed: bool,
) -> tuple[Job, ...]:
    """The jobs, their options checked: what cannot be compiled is refused before anything is."""
    _refuse_misuse(sources, chips, share_weights, multi_soc)
    groups = [sources] if share_weights else [(source,) for source in sources]
    served = [chips] if multi_soc else [(chip,) for chip in chips]
    return tuple(
        Job(group, some, options.provider(some, embed=embed, share=share_weights))
        for some in served
        for group in groups
    )


def _refuse_misuse(sources: Sequence[Source], chips: Sequence[Soc], share: bool, multi: bool) -> None:
    if not chips:
        raise UsageError("there is no target to compile for", next="name a chip with --target")
    if share and len(sources) < 2:
        raise UsageError(
            "--share-weights needs two models or more", why=f"{sources[0].given} is the only one"
        )
    if multi and len(chips) < 2:
        raise UsageError("--multi-soc needs two targets or more", why=f"{chips[0].chip} is the only one")
    if multi and share:
        raise UsageError(
            "--multi-soc does not go with --share-weights",
            why="the provider can put several chips or several models into one binary, not both",
            next="leave out --multi-soc: each target gets a binary of its own, with weights shared",
        )
