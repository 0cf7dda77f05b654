"""What is to be said of a result beside its figures: nothing of it may go unsaid, and no figure shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hexport.observe.decibels import decibels
from hexport.quantization.candidates import Candidate, Trial
from hexport.quantization.mixed_ends import mixed_in_integers
from hexport.quantization.outcome import ends_of_scores, mac_shares
from hexport.quantization.plan import FLOAT
from hexport.quantization.shares import FLOAT_SHARE
from hexport.quantization.work import all_macs
from hexport.quantization.workshop import Workshop

_ROUNDED = 0.005
"""Shares are told as whole percentages."""
_NOTHING_TO_QUANTISE = "it has no float32 operators that the NPU has in them"


def remarks(
    shop: Workshop, scheme: str, asked: float | None, best: Candidate, tried: Sequence[Trial]
) -> Iterator[str]:
    """Of the best candidate for ``scheme``; ``asked``: the goal in dB that the user set."""
    yield from (output.remark for output in (best.npu or best.cpu).outputs if output.remark)
    if best.npu is None and not best.failure:
        yield "it was compared on the CPU only; --effort normal, or a goal, measures it on the NPU"
    if best.wide is not None and asked is not None and best.wide.lowest_db < min(asked, best.sqnr_db):
        yield (
            f"among {best.wide_samples} samples, with those that it was fitted to, the worst has "
            f"{best.wide.lowest_db:.1f} dB; nothing that was tried is enough there"
        )
    yield from ends_of_scores(shop, best)
    yield from mixed_in_integers(shop, best.plan)
    if scheme not in ("fp16", "auto"):
        yield from _untouched(best, tried)
        yield from _much_float(shop, scheme, best)
    elif scheme == "auto":
        yield from _nothing_cheaper(shop, best, tried)


def _untouched(best: Candidate, tried: Sequence[Trial]) -> Iterator[str]:
    if all(precision.activation is None for precision in best.plan.precisions.values()):
        in_vain = len({trial.float_nodes for trial in tried}) > 1
        why = "whatever was tried in them was of no use" if in_vain else _NOTHING_TO_QUANTISE
        yield f"no node of the model is in integers: {why}"


def _much_float(shop: Workshop, scheme: str, best: Candidate) -> Iterator[str]:
    share = mac_shares(shop.model, best.plan).get(str(FLOAT), 0.0)
    if share > FLOAT_SHARE + _ROUNDED:
        # Another label: the search went on with more in fp16 than the scheme may have.
        in_vain = ": within a tenth it was of no use"
        why = f", most of it for this: {_main_reason(shop, best)}" if best.label == scheme else in_vain
        yield f"{100 * share:.0f} % of the multiply-accumulates stay fp16{why}"


def _nothing_cheaper(shop: Workshop, best: Candidate, tried: Sequence[Trial]) -> Iterator[str]:
    """Why it is not one of the schemes that are tried first, as far as these came."""
    share = mac_shares(shop.model, best.plan).get(str(FLOAT), 0.0)
    reached = {trial.label: _reached(trial) for trial in tried if trial.npu_db is not None or trial.failure}
    cheaper = [f"{label} {how}" for label, how in reached.items() if label != best.label]
    if share > FLOAT_SHARE + _ROUNDED and cheaper:
        yield (
            f"{100 * share:.0f} % of the multiply-accumulates are fp16, because with less of it nothing was "
            f"enough on the NPU: {', '.join(cheaper)}"
        )


def _reached(trial: Trial) -> str:
    if trial.failure:
        return "failed"
    every = "" if trial.all_db is None else f" ({decibels(trial.all_db)} of all samples)"
    return f"came to {decibels(trial.npu_db)}{every}" if trial.npu_db is not None else ""


def _main_reason(shop: Workshop, best: Candidate) -> str:
    """Why the nodes are in fp16 that have the most of the multiply-accumulates there."""
    counts: Counter[str] = Counter()
    for name, count in all_macs(shop.model).items():
        if best.plan.precisions.get(name, FLOAT).activation is None:
            counts[best.plan.reasons.get(name, "they are in float")] += count
    return counts.most_common(1)[0][0]
