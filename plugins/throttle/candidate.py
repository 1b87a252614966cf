"""What is expected of a call by one candidate."""

from math import erfc, inf, log, sqrt

# Money, requests that may be late, joules.
BUDGETS, LATE = 3, 1
# For how many calls a profile's cost, lateness and energy stand.
WEIGHT = (20.0, 100.0, 20.0)
# Calls after which what was seen counts for a third of what it did.
MEMORY = 300.0
# The 95th percentile of the standard normal distribution.
Z95 = 1.6448536269514722


class Candidate:
    def __init__(self, profile, unknown, limit):
        self.accuracy = unknown if profile.accuracy is None else profile.accuracy
        late = 0.0 if limit is None else share_over(profile, limit)
        self.by_profile = (profile.cost, late, profile.energy or 0.0)
        self.limit = inf if limit is None else limit
        self.sum = [0.0] * BUDGETS
        self.count = [0.0] * BUDGETS
        self.expected = self.by_profile

    def takes(self):
        """What a call is expected to take of each budget."""
        return self.expected

    def see(self, call):
        """Takes in what a call took."""
        for budget, took in enumerate((call.cost, float(call.latency > self.limit), call.energy)):
            if took is not None:
                self.sum[budget] = self.sum[budget] * (1.0 - 1.0 / MEMORY) + took
                self.count[budget] = self.count[budget] * (1.0 - 1.0 / MEMORY) + 1.0
        self.expect()

    def expect(self):
        self.expected = tuple(
            (profile * weight + self.sum[n]) / (weight + self.count[n])
            for n, (profile, weight) in enumerate(zip(self.by_profile, WEIGHT))
        )

    def seen(self):
        return [self.sum, self.count]

    def resume(self, seen):
        self.sum, self.count = seen
        self.expect()


def share_over(profile, limit):
    """The share of calls that take longer: log-normal through p50 and p95, above that a Pareto tail through p99."""
    p50, p95, p99 = (max(time, 1) for time in (profile.p50, profile.p95, profile.p99))
    if limit >= p95:
        if p99 > p95:
            return 0.05 * (p95 / limit) ** (log(5.0) / log(p99 / p95))
        return 0.05 if limit == p95 else 0.0
    deviation = log(p95 / p50) / Z95
    if limit <= 0 or deviation <= 0:
        return 1.0
    return erfc(log(limit / p50) / deviation / sqrt(2.0)) / 2.0
