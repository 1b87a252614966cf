"""How unlike its past each value is, in standard deviations.

Two scores, because they fail differently. The robust z compares with the median of the trailing values and their
median absolute deviation: single wild values do not move it. The EWMA score compares with a moving level and scale
that forget slowly: it follows a drift, and is cheap. Neither sees the value itself or any later one, so a score is the
same whether the value arrives alone or in a batch.
"""

import math
from bisect import bisect_left, insort
from collections import deque

from windows import Span

MIN_PAST = 12
"""Values that there must be before one is scored."""

MAX_SCORE = 1000.0
"""A value that differs where none ever did is not infinitely odd."""

TO_SIGMA = 1.4826
"""The standard deviation of a normal distribution in median absolute deviations."""


def robust_z(times: list[float], values: list[float | None], span: Span) -> list[float | None]:
    """The score of each value against those in the span before it, at least `MIN_PAST` of them."""
    past: deque[tuple[float, float]] = deque()
    ordered: list[float] = []
    scores: list[float | None] = []
    for time, value in zip(times, values):
        while len(past) > MIN_PAST and outside(span, len(past), time - past[0][0]):
            del ordered[bisect_left(ordered, past.popleft()[1])]
        if value is None:
            scores.append(None)
            continue
        if len(past) >= MIN_PAST:
            centre = middle(ordered)
            scores.append(ratio(value - centre, TO_SIGMA * deviation(ordered, centre)))
        else:
            scores.append(None)
        past.append((time, value))
        insort(ordered, value)
    return scores


def outside(span: Span, count: int, age: float) -> bool:
    """Whether the oldest value has left the span."""
    return count > span.samples if span.samples else age > span.seconds


def middle(ordered: list[float]) -> float:
    """The median."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(ordered: list[float], centre: float) -> float:
    """The median absolute deviation, in logarithmic time: distances grow to both sides of the centre.

    Looks for how many of the nearest values lie below the centre. Where more than half of the values are equal, the
    deviation is 0 and says nothing: then the mean absolute deviation stands in for it.
    """
    size = len(ordered)
    split = bisect_left(ordered, centre)
    wanted = size // 2 + 1
    low, high = max(0, wanted - (size - split)), min(wanted, split)
    while low < high:
        left = (low + high) // 2
        # With `left` values from below, the next one there must not be nearer than the last one from above.
        if centre - ordered[split - left - 1] < ordered[split + wanted - left - 1] - centre:
            low = left + 1
        else:
            high = left
    below = centre - ordered[split - low] if low else 0.0
    above = ordered[split + wanted - low - 1] - centre if wanted > low else 0.0
    found = max(below, above)
    return found if found > 0 else math.fsum(abs(v - centre) for v in ordered) / size * 0.845


def ewma(values: list[float | None], samples: int, threshold: float) -> list[float | None]:
    """The score of each value against a level and a scale whose memory is about `samples` long.

    What lies beyond the threshold moves them only as far as the threshold, so that one spike does not hide the next.
    """
    weight = 2 / (max(samples, MIN_PAST) + 1)
    level, variance, seen = 0.0, 0.0, 0
    scores: list[float | None] = []
    for value in values:
        if value is None:
            scores.append(None)
            continue
        # At first a plain mean: the weight of the n-th value is 1/n until it falls below its final one.
        step = max(weight, 1 / (seen + 1))
        scale = math.sqrt(variance)
        off = value - level
        if seen >= MIN_PAST:
            scores.append(ratio(off, scale))
            off = max(-threshold * scale, min(threshold * scale, off)) if scale > 0 else off
        else:
            scores.append(None)
        level += step * off
        variance = (1 - step) * (variance + step * off * off)
        seen += 1
    return scores


def ratio(off: float, scale: float) -> float:
    """So many times the scale, within bounds."""
    if off == 0:
        return 0.0
    score = off / scale if scale > 0 else math.copysign(MAX_SCORE, off)
    return max(-MAX_SCORE, min(MAX_SCORE, score))
