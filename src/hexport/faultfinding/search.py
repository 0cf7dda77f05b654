"""The smallest failing part of a sequence: halves first, then ends, then whatever can be left out.

Delta debugging (Zeller's ddmin) with one thing added: what fails in a graph mostly lies together, so a
contiguous range is looked for before single items are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Items = tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """Where a search ended."""

    items: Items
    minimal: bool
    """No single item can be left out; False when time ran out before that was known."""
    tried: int


class _OutOfTime(Exception):
    pass


def smallest_failing(
    items: Sequence[int],
    fails: Callable[[Items], bool],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Found:
    """A part of ``items``, in their order, that fails; ``items`` as a whole is taken to fail."""
    search = _Search(tuple(items), fails, out_of_time)
    try:
        search.halve()
        search.trim()
        search.leave_out()
    except _OutOfTime:
        return Found(search.best, False, search.tried)
    return Found(search.best, True, search.tried)


class _Search:
    """Whatever happens, ``best`` is the smallest part known to fail."""

    def __init__(self, items: Items, fails: Callable[[Items], bool], out_of_time: Callable[[], bool]) -> None:
        self.best = items
        self.tried = 0
        self._fails = fails
        self._out_of_time = out_of_time
        self._passing: set[Items] = {()}

    def halve(self) -> None:
        """As long as one half fails without the other."""
        while len(self.best) > 1:
            middle = len(self.best) // 2
            if not (self._take(self.best[:middle]) or self._take(self.best[middle:])):
                return

    def trim(self) -> None:
        """The shortest failing beginning, then the shortest failing end of it, by bisection."""
        self._bisect(lambda items, size: items[:size])
        self._bisect(lambda items, size: items[len(items) - size :])

    def leave_out(self) -> None:
        """Chunks, half as large each time; at the end single items until none can go."""
        size = max(len(self.best) // 2, 1)
        while True:
            shrunk = self._leave_out_chunks(size)
            if size == 1 and not shrunk:
                return
            size = max(min(size, len(self.best)) // 2, 1)

    def _leave_out_chunks(self, size: int) -> bool:
        before, start = len(self.best), 0
        while start < len(self.best):
            if not self._take(self.best[:start] + self.best[start + size :]):
                start += size
        return len(self.best) < before

    def _bisect(self, part: Callable[[Items, int], Items]) -> None:
        items, passing, failing = self.best, 0, len(self.best)
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if self._take(part(items, middle)):
                failing = middle
            else:
                passing = middle

    def _take(self, candidate: Items) -> bool:
        """Try it, and make it the best if it fails."""
        if candidate in self._passing:
            return False
        if self._out_of_time():
            raise _OutOfTime
        self.tried += 1
        if self._fails(candidate):
            self.best = candidate
            return True
        self._passing.add(candidate)
        return False
