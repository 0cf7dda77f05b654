"""Where verifying shows much less than quantising did: other samples, and so a word to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hexport.packaging.manifest import Verification

_FAR_DB = 10.0
"""Samples differ by less as a rule; a decision that turns over in one of them is more."""


def surprises(found: Sequence[Verification], reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each bucket that passes without a goal, and is far from what was measured before.

    ``reports``: "bucket/chip" -> the document of quantising or preparing.
    """
    said = []
    for one in found:
        expected = reports.get(f"{one.bucket}/{one.target}", {}).get("sqnr_db")
        shown = [figure.sqnr_db for figure in one.outputs if isinstance(figure.sqnr_db, float)]
        asked = one.min_sqnr_db is not None  # then that is what it is measured by
        if asked or one.true_dims or not one.passed or not shown or not isinstance(expected, float):
            continue
        if min(shown) < expected - _FAR_DB:
            said.append(
                f"{one.target}, {one.bucket}: {min(shown):.1f} dB on the samples it is verified on, but "
                f"{expected:.1f} dB on those that quantising held out: some inputs suffer far more; "
                "calibrate with more samples, or ask for --min-sqnr"
            )
    return said
