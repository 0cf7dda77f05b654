"""Calibration data: real inputs of a model, streamed and checked on the way, as often as needed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import TracebackType

from hexport.errors import BadSamples
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.sample import Progress, Sample, Source
from hexport.quantization.data.spool import Spool
from hexport.quantization.data.survey import Survey


class CalibrationData:
    """Each pass reads the samples anew, checks each, and holds one at a time.

    Samples have every input of the model, frozen ones with their value. What all samples together
    show is judged when a pass ends, so an error may come after the last sample.
    """

    def __init__(self, source: Source, fitting: Fitting, limit: int | None = None) -> None:
        self.description = source.description
        self.count = source.count if limit is None or source.count is None else min(limit, source.count)
        """How many samples there are; None until a pass has counted them."""
        self._source = source
        self._fitting = fitting
        self._limit = limit
        self._spool = Spool(_fitted(source, fitting), fitting) if source.once else None
        self._fingerprint: str | None = None
        self._remarks: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Sample]:
        return self.samples()

    def samples(self, progress: Progress | None = None) -> Iterator[Sample]:
        """One pass; ``progress`` is told when the user of a sample comes back for the next."""
        tell = progress or _unheard
        survey = Survey(self._fitting.free)
        tell(0, self.count)
        for sample in islice(self._stream(), self._limit):
            survey.add(sample)
            yield sample
            tell(survey.count, self.count)
        self._conclude(survey)

    def first(self, count: int) -> list[Sample]:
        """So many, each checked; what all samples together show is not asked."""
        return list(islice(self._stream(), count))

    def _stream(self) -> Iterator[Sample]:
        return self._spool.read() if self._spool else _fitted(self._source, self._fitting)

    @property
    def fingerprint(self) -> str:
        """A hash of the samples' content, however they are stored; reads them if no pass did to the end."""
        if self._fingerprint is None:
            for _ in self:
                pass
        assert self._fingerprint is not None
        return self._fingerprint

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the data; complete after a pass."""
        notes = (*self._source.notes, *self._fitting.notes, *self._remarks)
        if self._source.count is not None and self.count != self._source.count:
            return (f"the first {self.count} of {self._source.count} samples are used", *notes)
        return notes

    def close(self) -> None:
        """Give back the temporary file, if there is one; it also goes with the object."""
        if self._spool:
            self._spool.close()

    def __enter__(self) -> CalibrationData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _conclude(self, survey: Survey) -> None:
        remarks = survey.finish(self.description)
        if self._fingerprint not in (None, survey.fingerprint):
            raise BadSamples(
                f"{self.description}: the samples are not those of the pass before",
                why="the data changed while they were in use",
                next="start again, and leave the data alone meanwhile",
            )
        self.count = survey.count
        self._fingerprint = survey.fingerprint
        self._remarks = remarks


def _fitted(source: Source, fitting: Fitting) -> Iterator[Sample]:
    for number, found in enumerate(source.read()):
        yield fitting.fit(found, number)


def _unheard(_done: int, _total: int | None) -> None:
    """Nobody asked for the progress."""
