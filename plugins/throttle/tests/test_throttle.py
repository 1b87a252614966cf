import json
import unittest
from types import SimpleNamespace as Of

from candidate import Candidate, share_over
from throttle import Throttle

MS = 1_000_000


def profile(accuracy, p95, cost):
    return Of(accuracy=accuracy, mean=p95 * MS, p50=p95 * MS // 2, p95=p95 * MS, p99=p95 * MS * 3 // 2,
              cost=cost, energy=None, samples=500)


TASK = Of(name="answer", visits=1.0, within=1.0, candidates=[
    Of(name="small", profile=profile(0.7, 40, 0.0)),
    Of(name="middle", profile=profile(0.85, 80, 1.0)),
    Of(name="large", profile=profile(0.95, 200, 10.0)),
])


def slo(cost=None, p95=None):
    return Of(requests=1000, accuracy=None, latency_p95=None if p95 is None else p95 * MS, cost=cost, energy=None)


def batch(throttle, late=lambda n, chosen: False):
    served = []
    for n in range(1000):
        chosen, _, _ = throttle.choose(0, [], 1)
        latency = 10_000 * MS if late(n, chosen) else MS
        call = Of(task=0, candidate=chosen, latency=latency, cost=(0.0, 1.0, 10.0)[chosen], energy=None, right=None)
        throttle.report(Of(now=0, queue=0, latency=latency, calls=[call]))
        served.append(chosen)
    return served


class Selecting(unittest.TestCase):
    def test_without_limits_the_most_accurate_serves(self):
        self.assertEqual(set(batch(Throttle([TASK], slo()))), {2})

    def test_money_lasts_and_is_spent(self):
        for budget, least in ((500.0, 0.77), (1000.0, 0.82), (4000.0, 0.87)):
            served = batch(Throttle([TASK], slo(cost=budget)))
            cost = sum((0.0, 1.0, 10.0)[n] for n in served)
            accuracy = sum((0.7, 0.85, 0.95)[n] for n in served) / 1000
            self.assertLessEqual(cost, budget)
            self.assertGreaterEqual(accuracy, least, (budget, cost))

    def test_lateness_is_a_budget_too(self):
        def late(n, chosen):
            return (False, n % 40 == 0, n % 2 == 0)[chosen]
        served = batch(Throttle([TASK], slo(p95=100)), late)
        self.assertLessEqual(sum(late(n, chosen) for n, chosen in enumerate(served)), 50)
        self.assertGreater(served.count(1), 700)

    def test_who_turns_out_slow_is_left(self):
        served = batch(Throttle([TASK], slo(p95=250)), lambda n, chosen: chosen == 2 and n >= 100)
        self.assertEqual(set(served[:100]), {2})
        self.assertLessEqual(served[100:].count(2), 50)

    def test_nobody_out_of_reach_serves(self):
        throttle = Throttle([TASK], slo(cost=1000.0, p95=100))
        for gone in ([0], [1, 2], [0, 2]):
            chosen, runner_up, because = throttle.choose(0, gone, 1)
            self.assertNotIn(chosen, gone)
            self.assertTrue(runner_up is None or runner_up not in [*gone, chosen])
            self.assertTrue(because)

    def test_choices_that_nobody_follows_are_forgotten(self):
        throttle = Throttle([TASK], slo(cost=4000.0))
        for _ in range(3000):
            throttle.choose(0, [], 1)
        served = batch(throttle)
        self.assertLessEqual(sum((0.0, 1.0, 10.0)[n] for n in served), 4000)
        self.assertGreaterEqual(sum((0.7, 0.85, 0.95)[n] for n in served) / 1000, 0.85)

    def test_what_is_saved_goes_on_as_if_nothing_had_been(self):
        def late(n, chosen):
            return (n * 7 + chosen) % 30 == 0
        one, other = (Throttle([TASK], slo(cost=800.0, p95=100)) for _ in range(2))
        batch(one, late)
        other.resume(json.loads(json.dumps(one.state())))
        self.assertEqual(batch(one, late), batch(other, late))
        with self.assertRaises(ValueError):
            other.resume([0, [0.0] * 3, [0.0] * 3, 0.1, [[]]])


class Expecting(unittest.TestCase):
    def test_a_profile_says_how_many_are_late(self):
        of = profile(0.9, 100, 0.1)
        for limit, share in ((100, 0.05), (50, 0.5), (150, 0.01), (0, 1.0)):
            self.assertAlmostEqual(share_over(of, limit * MS), share)

    def test_what_is_seen_counts_more_and_more(self):
        candidate = Candidate(profile(0.9, 100, 0.1), 0.0, 100 * MS)
        for _ in range(400):
            candidate.see(Of(latency=300 * MS, cost=0.4, energy=None))
        cost, late, energy = candidate.takes()
        self.assertTrue(cost > 0.35 and late > 0.65 and energy == 0.0, candidate.takes())


if __name__ == "__main__":
    unittest.main()
