"""A program in integers: prepared by ExecuTorch's quantiser, measured or trained on samples, converted."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hexport.executorch.lowering.inside import bias, ranges
from hexport.executorch.lowering.inside.configs import WIDE_FROM, Settled, make_quantizer
from hexport.executorch.lowering.inside.delicate import Delicate, TooSlow, find_delicate
from hexport.executorch.lowering.inside.programs import Program, samples
from hexport.executorch.lowering.inside.qat import Data, measure_ranges, train
from hexport.executorch.lowering.inside.rounding import can_round, with_rounded_weights
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.inside.walking import fitting, tensors_in
from hexport.executorch.lowering.options import Quantizing
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.requests import MethodRequest, QuantizeRequest
from hexport.toolchain.serving import JobError

_HEARD = 16
"""Samples that weights are rounded by, at most: they are in memory at once."""
_RAISED, _RAISED_TO = "16a8w", "16a16w"
"""Where the goal may need better weights for some layers, and what they get."""
_HELD = 4
"""One of so many samples gives no range, and tells how good the ranges of the others are."""


@dataclass(frozen=True)
class Quantised:
    """The program of Q and DQ, and how close it is to the float one on samples that gave no range."""

    module: Any
    decibels: float | None


class Quantisation:
    """One program on its way into integers."""

    def __init__(
        self,
        method: MethodRequest,
        program: Program,
        module: Any,
        request: QuantizeRequest,
        quantizing: Quantizing,
        settled: Settled,
    ) -> None:
        self._method, self._program, self._float = method, program, module
        self._request, self._quantizing, self._settled = request, quantizing, settled
        self._weights = module
        """The float program, with the weights that it is quantised with."""
        numbers = range(method.count)
        self._held = numbers[_HELD - 1 :: _HELD]
        self._fit = [number for number in numbers if number not in self._held]

    def run(self) -> Quantised:
        """Prepare, measure or train, convert."""
        if self._request.training is not None:
            return self._trained()
        self._raise_delicate()
        better = self._round_weights()
        prepared = self._prepared()
        self._feed(prepared, self._fit)
        seen = ranges.read_ranges(prepared)
        margin = self._margin(seen)
        decibels = self._measured(seen, margin) if self._held else None
        if better:  # what was held out has told, and has its say now
            self._weights = self._rounded((*self._fit, *self._held))
            prepared = self._prepared()
            self._feed(prepared, self._fit)
        self._feed(prepared, self._held)
        ranges.write_ranges(prepared, ranges.read_ranges(prepared), margin)
        return Quantised(self._converted(prepared), decibels)

    def _raise_delicate(self) -> None:
        """Better weights for the layers that keep inputs unlike the samples from what is asked for."""
        goal, heard = self._request.min_sqnr, self._fit[:_HEARD]
        if goal is None or self._request.scheme != _RAISED or self._whole_weights or not heard:
            return
        try:
            found = find_delicate(self._float, self._samples(heard), goal, self._settled.schemes)
        except TooSlow:
            self._settled.note("which layers need better weights was not looked for: it would take too long")
            return
        if not found.layers:
            return
        if self._request.htp_arch < WIDE_FROM:
            self._settled.note(
                f"inputs unlike the samples may get {found.before_db:.0f} dB, and {goal:g} are asked for: "
                f"{len(found.layers)} layers would need 16-bit weights, which need HTP v{WIDE_FROM}"
            )
            return
        for layer in found.layers:
            self._settled.schemes[layer.name] = Override("node", layer.name, _RAISED_TO)
        self._settled.note(_words(found))

    @property
    def _whole_weights(self) -> bool:
        """Whether a weight has one scale, because the user wants it so."""
        return False in (self._quantizing.conv_per_channel, self._quantizing.linear_per_channel)

    def _round_weights(self) -> bool:
        """Weights that make up for each other's rounding, if samples that were held out come closer so."""
        if not self._held or self._whole_weights or not can_round(self._request.scheme):
            return False
        plain = self._decibels_of(self._float)
        self._weights = self._rounded(self._fit)
        rounded = self._decibels_of(self._weights)
        if rounded <= plain:
            self._weights = self._float
            return False
        self._settled.note(
            f"weights are rounded so that they make up for each other: {rounded:.1f} dB, and not {plain:.1f}"
        )
        return True

    def _samples(self, numbers: Sequence[int]) -> list[Any]:
        """As many of the first as are heard and there is room for."""
        heard = list(samples(self._method, self._program, numbers[:_HEARD]))
        count, heard = len(heard), fitting(self._float, heard)
        if len(heard) < count:
            self._settled.note(f"weights are rounded by {len(heard)} samples: memory has no room for {count}")
        return heard

    def _rounded(self, numbers: Sequence[int]) -> Any:
        heard = self._samples(numbers)
        return with_rounded_weights(self._float, heard, self._request.scheme, self._settled.schemes)

    def _decibels_of(self, module: Any) -> float:
        """With the ranges of the samples, on those that were held out."""
        before, self._weights = self._weights, module
        prepared = self._prepared()
        self._feed(prepared, self._fit)
        self._weights = before
        return self._decibels(self._converted(prepared))

    def _margin(self, seen: ranges.Ranges) -> float:
        asked = self._quantizing.range_margin
        if asked is not None:
            return asked
        if self._quantizing.observer not in ("auto", "minmax"):
            return 1.0
        usual = ranges.usual_margin(self._request.scheme)
        if usual is not None:
            self._settled.note(
                f"ranges are {usual:g} times as wide as on the samples: "
                "16 bits have room, and other inputs go further"
            )
            return usual
        if not self._held:
            return 1.0
        margin, _ = ranges.best_margin(lambda step: self._measured(seen, step))
        if margin > 1:
            self._settled.note(
                f"ranges are {margin:g} times as wide as on the samples: "
                "those that were held out come closer so"
            )
        return margin

    def _measured(self, seen: ranges.Ranges, margin: float) -> float:
        """How close the program comes with these ranges, on what was held out."""
        prepared = self._prepared()
        self._feed(prepared, self._fit[:1])  # weights are observed when they are first used
        ranges.write_ranges(prepared, seen, margin)
        return self._decibels(self._converted(prepared))

    def _trained(self) -> Quantised:
        training = self._request.training
        assert training is not None
        prepare = stack().quantize_pt2e.prepare_qat_pt2e
        prepared = prepare(self._copy(), make_quantizer(self._request, self._quantizing, self._settled))
        data = Data(self._fit, lambda numbers: samples(self._method, self._program, numbers))
        asked = self._quantizing.range_margin
        measure_ranges(prepared, data, asked or ranges.usual_margin(self._request.scheme) or 1.0)
        for said in train(prepared, self._float, data, training, self._request.import_from):
            self._settled.note(said)
        converted = stack().quantize_pt2e.convert_pt2e(prepared)
        return Quantised(converted, self._decibels(converted) if self._held else None)

    def _prepared(self) -> Any:
        quantizer = make_quantizer(self._request, self._quantizing, self._settled)
        try:
            return stack().quantize_pt2e.prepare_pt2e(self._copy(), quantizer)
        except ValueError as error:
            raise JobError("LoweringFailed", f"the quantiser refuses the program: {error}") from error

    def _copy(self) -> Any:
        return copy.deepcopy(self._weights)

    def _feed(self, prepared: Any, numbers: Iterable[int]) -> None:
        with stack().torch.no_grad():
            for args, kwargs in samples(self._method, self._program, numbers):
                prepared(*args, **kwargs)

    def _converted(self, prepared: Any) -> Any:
        """With the ranges that it has by now, where they do not need care."""
        ranges.cut_before(prepared)
        bias.make_room(prepared)
        return stack().quantize_pt2e.convert_pt2e(prepared)

    def _decibels(self, quantised: Any) -> float:
        """Signal over noise, all outputs and samples together."""
        signal = noise = 0.0
        with stack().torch.no_grad():
            for args, kwargs in samples(self._method, self._program, self._held):
                pairs = zip(
                    tensors_in(self._float(*args, **kwargs)),
                    tensors_in(quantised(*args, **kwargs)),
                    strict=True,
                )
                for want, have in pairs:
                    signal += float((want.double() ** 2).sum())
                    noise += float(((want.double() - have.double()) ** 2).sum())
        return 10 * math.log10(signal / noise) if noise and signal else math.inf


def _words(found: Delicate) -> str:
    named = ", ".join(layer.path for layer in found.layers)
    return (
        f"{_RAISED_TO} and not {_RAISED} in {named}: {found.weights:.1%} of the weights, "
        f"{found.macs:.1%} of the multiply-accumulates; with 8 bits there, inputs unlike the samples may get "
        f"{found.before_db:.0f} dB, and so it is {found.after_db:.0f}"
    )
