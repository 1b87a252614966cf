"""Puts windows and scores together into what the task answers."""

import math

from parse import Invalid, Table
from scores import ewma, robust_z
from windows import Span, describe

MAX_ANOMALIES = 1000
"""Listed for one column; the count tells of all."""


def report(table: Table, window: str = "60", threshold: str = "6") -> dict:
    """For each column: its windows with statistics and greatest scores, and the values that are beyond the threshold."""
    span, limit = Span.read(window), read_threshold(threshold)
    cuts = span.cut(table.times)
    columns = {name: column(table.times, values, span, cuts, limit) for name, values in table.columns.items()}
    return {
        "rows": len(table.times),
        "window": {"samples": span.samples} if span.samples else {"seconds": span.seconds},
        "threshold": limit,
        "columns": columns,
    }


def column(times: list[float], values: list[float | None], span: Span, cuts: list, limit: float) -> dict:
    """One column's part."""
    robust = robust_z(times, values, span)
    moving = ewma(values, span.samples or math.ceil(len(times) / len(cuts)), limit)
    windows = [
        describe(times[a:b], values[a:b]) | {"robust_z": greatest(robust[a:b]), "ewma": greatest(moving[a:b])}
        for a, b in cuts
    ]
    odd = [at for at, score in enumerate(robust) if score is not None and abs(score) >= limit]
    anomalies = [
        {"row": at + 1, "time": times[at], "value": values[at], "robust_z": robust[at], "ewma": moving[at]}
        for at in odd[:MAX_ANOMALIES]
    ]
    return {"windows": windows, "anomalies": len(odd), "anomaly": anomalies}


def greatest(scores: list[float | None]) -> float | None:
    """The one farthest from 0."""
    return max((score for score in scores if score is not None), key=abs, default=None)


def read_threshold(text: str) -> float:
    """A score from which a value counts as an anomaly."""
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 1 <= limit <= 100:
        raise Invalid(f"threshold `{text}` is not a number from 1 to 100", "threshold")
    return limit
