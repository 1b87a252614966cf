"""Cuts records into windows, one after the other, and describes each."""

import math
import re
from dataclasses import dataclass

from parse import Invalid

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_WINDOWS = 10_000


@dataclass(frozen=True)
class Span:
    """How long a window is: so many samples, or so many seconds."""

    samples: int | None = None
    seconds: float | None = None

    @classmethod
    def read(cls, text: str) -> "Span":
        """Reads `60` (samples) or `60s`, `500ms`, `5m`, `1h`, `1d`."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text.strip())
        if match and match[2] and float(match[1]) > 0:
            return cls(seconds=float(match[1]) * UNITS[match[2]])
        if match and match[1].isdecimal() and 2 <= int(match[1]) <= 1_000_000:
            return cls(samples=int(match[1]))
        raise Invalid(f"window `{text}` is neither 2 or more samples, as in `60`, nor a duration, as in `60s`", "window")

    def cut(self, times: list[float]) -> list[tuple[int, int]]:
        """The windows as (first, one past the last). Those of a duration start at its multiples; empty ones are left out."""
        if self.samples:
            cuts = [(at, min(at + self.samples, len(times))) for at in range(0, len(times), self.samples)]
        else:
            cuts, start = [], 0
            for at in range(1, len(times) + 1):
                if at == len(times) or times[at] // self.seconds != times[start] // self.seconds:
                    cuts.append((start, at))
                    start = at
        if len(cuts) > MAX_WINDOWS:
            raise Invalid(f"there are {len(cuts)} windows; {MAX_WINDOWS} is the most: make them longer", "window")
        return cuts


def describe(times: list[float], values: list[float | None]) -> dict:
    """Count, missing, mean, standard deviation (of a sample), min, max, percentiles and slope (per second) of one window.

    What cannot be told from so few values is `None`.
    """
    there = [(t, v) for t, v in zip(times, values) if v is not None]
    count = len(there)
    told = {"start": times[0], "end": times[-1], "count": count, "missing": len(values) - count}
    if count == 0:
        return told | dict.fromkeys(["mean", "std", "min", "max", "p50", "p95", "slope"])
    ordered = sorted(v for _, v in there)
    mean = math.fsum(ordered) / count
    variance = math.fsum((v - mean) ** 2 for v in ordered) / (count - 1) if count > 1 else None
    return told | {
        "mean": mean,
        "std": None if variance is None else math.sqrt(variance),
        "min": ordered[0],
        "max": ordered[-1],
        "p50": percentile(ordered, 0.50),
        "p95": percentile(ordered, 0.95),
        "slope": slope(there, mean),
    }


def percentile(ordered: list[float], part: float) -> float:
    """Between the two nearest values, by their distance."""
    at = part * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def slope(points: list[tuple[float, float]], mean: float) -> float | None:
    """Of the line of least squares."""
    middle = math.fsum(t for t, _ in points) / len(points)
    spread = math.fsum((t - middle) ** 2 for t, _ in points)
    return math.fsum((t - middle) * (v - mean) for t, v in points) / spread if spread > 0 else None
