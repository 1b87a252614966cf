"""Windows and their statistics, against Python's own `statistics`."""

import random
import statistics
import unittest

from parse import Invalid
from windows import Span, describe


class Spans(unittest.TestCase):
    def test_durations_and_samples(self):
        for text, span in [("60", Span(samples=60)), ("60s", Span(seconds=60)), ("1.5 m", Span(seconds=90))]:
            self.assertEqual(Span.read(text), span)
        for text in ["", "1", "0s", "-3", "1.5", "5 weeks", "1e3", "9999999"]:
            with self.assertRaises(Invalid) as caught:
                Span.read(text)
            self.assertEqual(caught.exception.field, "window")

    def test_samples_leave_a_shorter_rest(self):
        self.assertEqual(Span(samples=2).cut([0, 1, 2, 3, 4]), [(0, 2), (2, 4), (4, 5)])

    def test_durations_start_at_their_multiples_and_skip_gaps(self):
        self.assertEqual(Span(seconds=10).cut([-1, 0, 9.9, 10, 35]), [(0, 1), (1, 3), (3, 4), (4, 5)])

    def test_too_many_windows_are_refused(self):
        with self.assertRaises(Invalid):
            Span(seconds=0.5).cut(list(range(10_001)))


class Statistics(unittest.TestCase):
    def test_the_same_as_the_library_says(self):
        rng = random.Random(7)
        times = sorted(rng.uniform(0, 100) for _ in range(101))
        values = [3 * t + rng.gauss(1e6, 1) for t in times]
        told = describe(times, values)
        self.assertAlmostEqual(told["mean"], statistics.fmean(values))
        self.assertAlmostEqual(told["std"], statistics.stdev(values))
        self.assertAlmostEqual(told["p50"], statistics.median(values))
        self.assertAlmostEqual(told["p95"], statistics.quantiles(values, n=20, method="inclusive")[18])
        self.assertAlmostEqual(told["slope"], statistics.linear_regression(times, values).slope)
        self.assertEqual((told["min"], told["max"], told["count"], told["missing"]), (min(values), max(values), 101, 0))

    def test_few_values_tell_little(self):
        self.assertIsNone(describe([0, 1], [None, None])["mean"])
        one = describe([0, 1], [None, 5])
        self.assertEqual((one["mean"], one["missing"], one["std"], one["slope"]), (5, 1, None, None))
        self.assertIsNone(describe([3, 3], [1, 2])["slope"])
