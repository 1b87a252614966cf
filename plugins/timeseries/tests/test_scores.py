"""The scores: their arithmetic, and what they find in a day with planted anomalies."""

import math
import random
import statistics
import unittest

from parse import Table
from report import report
from scores import MAX_SCORE, MIN_PAST, deviation, ewma, middle, robust_z
from windows import Span

DAY = 8640
"""Readings of a day, one each 10 s."""


def day(seed: int):
    """A temperature with its daily course, noise, a slow drift and gaps; and the rows of the anomalies in it."""
    rng = random.Random(seed)
    times = [10.0 * n for n in range(DAY)]
    values: list = [
        18 + 6 * math.sin(2 * math.pi * n / DAY) + 0.5 * n / DAY + rng.gauss(0, 0.1) for n in range(DAY)
    ]
    for _ in range(200):
        values[rng.randrange(DAY)] = None
    planted = rng.sample(range(100, DAY), 40)
    for at in planted:
        values[at] = (values[at] or 18) + rng.choice([-1, 1]) * rng.uniform(0.9, 5)
    return times, values, set(planted)


class Arithmetic(unittest.TestCase):
    def test_the_fast_deviation_is_the_plain_one(self):
        rng = random.Random(1)
        for size in range(1, 60):
            for spread in (3, 1000):
                ordered = sorted(float(rng.randrange(spread)) for _ in range(size))
                centre = middle(ordered)
                away = sorted(abs(v - centre) for v in ordered)
                self.assertEqual(centre, statistics.median(ordered))
                plain = away[size // 2] or 0.845 * statistics.fmean(away)
                self.assertAlmostEqual(deviation(ordered, centre), plain, msg=str(ordered))

    def test_a_score_needs_a_past_and_knows_no_future(self):
        values = [float(n % 5) for n in range(50)]
        for scores in (robust_z, lambda _, v, __: ewma(v, 20, 6)):
            whole = scores(list(range(50)), values, Span(samples=20))
            part = scores(list(range(30)), values[:30], Span(samples=20))
            self.assertEqual(whole[:MIN_PAST], [None] * MIN_PAST)
            self.assertEqual(whole[:30], part)

    def test_the_past_of_a_duration_ends_with_it(self):
        # Two hours apart: only the `MIN_PAST` values that are always kept remain of the time before.
        times = list(range(100)) + [7300 + n for n in range(100)]
        values = [0.0, 0.1] * 50 + [9.0, 9.1] * 50
        scores = robust_z(times, values, Span(seconds=60))
        self.assertGreater(scores[100], 50)
        self.assertLess(abs(scores[150]), 2)

    def test_what_never_changed_has_no_infinite_scores(self):
        values = [5.0] * 30 + [6.0]
        self.assertEqual(robust_z(list(range(31)), values, Span(samples=20))[-1], MAX_SCORE)
        self.assertEqual(ewma(values, 20, 6)[-1], MAX_SCORE)
        self.assertEqual(ewma(values, 20, 6)[-2], 0)


class Detection(unittest.TestCase):
    def test_a_day_with_planted_anomalies(self):
        found = missed = false = 0
        for seed in range(5):
            times, values, planted = day(seed)
            answer = report(Table(times, {"temperature": values}), "15m")["columns"]["temperature"]
            told = {row["row"] - 1 for row in answer["anomaly"]}
            self.assertEqual(answer["anomalies"], len(told))
            found += len(told & planted)
            missed += len(planted - told)
            false += len(told - planted)
        recall, false_alarms = found / (found + missed), false / (5 * (DAY - 40))
        print(f"\nrecall {recall:.3f}, false alarms {false_alarms:.5f} of the readings ({false} in 5 days)")
        self.assertGreaterEqual(recall, 0.98)
        self.assertLessEqual(false_alarms, 0.0005)

    def test_the_moving_score_sees_a_step_at_once(self):
        rng = random.Random(3)
        values = [rng.gauss(0, 1) for _ in range(300)] + [rng.gauss(12, 1) for _ in range(300)]
        scores = ewma(values, 60, 6)
        self.assertGreater(scores[300], 6)
        self.assertLess(max(abs(score) for score in scores[20:300]), 6)
        self.assertLess(statistics.fmean(scores[500:]), 2)


class Report(unittest.TestCase):
    def test_columns_windows_and_options(self):
        table = Table([float(n) for n in range(120)], {"a": [1.0] * 120, "b": [None] * 120})
        answer = report(table, window="60s", threshold="3")
        self.assertEqual(answer["window"], {"seconds": 60})
        self.assertEqual([w["count"] for w in answer["columns"]["a"]["windows"]], [60, 60])
        self.assertEqual([w["missing"] for w in answer["columns"]["b"]["windows"]], [60, 60])
        self.assertIsNone(answer["columns"]["b"]["windows"][0]["robust_z"])
        for bad in ("0", "nan", "many"):
            with self.assertRaisesRegex(Exception, "threshold"):
                report(table, threshold=bad)
