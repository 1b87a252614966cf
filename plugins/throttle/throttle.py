"""One throttle for all budgets. Plain numbers in, plain numbers out: tests run it without a component."""

from candidate import BUDGETS, LATE, Candidate

# By which the throttle moves where strain is twice what it may be.
GAIN = 0.03
LEAST, MOST = 1e-6, 1e3
# Requests by which a throttle is found on the profiles, before the first one.
REHEARSAL = 600
# Standard deviations of chance that are held back for the most sparing.
RESERVE = 3.0
# Of a limit on the 95th percentile, one request in so many may be late.
ONE_LATE_IN = 20
# What is left of a budget is at least this share of what one request had of it.
NOTHING = 1e-3


class Throttle:
    def __init__(self, tasks, slo):
        self.requests = max(slo.requests, 1)
        self.limit = slo.latency_p95
        late = None if self.limit is None else float(slo.requests // ONE_LATE_IN)
        self.whole = (slo.cost, late, slo.energy)
        self.visits = [task.visits for task in tasks]
        self.tasks = [candidates(task, self.limit) for task in tasks]
        self.spent = [0.0] * BUDGETS
        self.under_way = [0.0] * BUDGETS
        self.answered = 0
        self.throttle = 0.01
        self.rehearse()

    def choose(self, task, unreachable, queue):
        """The candidate, the runner-up and why."""
        self.bound_under_way(queue)
        reachable = [n for n in range(len(self.tasks[task])) if n not in unreachable]
        rates = self.rates()
        affordable = self.affordable(task, reachable)
        if affordable:
            order = sorted(affordable, key=lambda n: -self.worth(task, n, rates))
            because = "its accuracy is the most for what it strains the budgets"
            if all(rate is None for rate in rates):
                because = "it is the most accurate and nothing is limited"
        else:
            order = sorted(reachable, key=lambda n: self.strain(task, n, rates))
            because = "a budget is down to its reserve and it strains it least"
        chosen = order[0]
        others = order[1:] or [n for n in reachable if n != chosen]
        self.move(self.strain(task, chosen, rates))
        for budget, takes in enumerate(self.tasks[task][chosen].takes()):
            self.under_way[budget] += takes
        return chosen, others[0] if others else None, because

    def report(self, served):
        """What became of a request."""
        for call in served.calls:
            candidate = self.tasks[call.task][call.candidate]
            for budget, takes in enumerate(candidate.takes()):
                self.under_way[budget] = max(self.under_way[budget] - takes, 0.0)
            candidate.see(call)
            self.spent[0] += call.cost
            self.spent[2] += call.energy or 0.0
        if self.limit is not None and served.latency > self.limit:
            self.spent[LATE] += 1.0
        self.answered += 1
        if self.answered == self.requests:
            self.answered = 0
            self.spent = [0.0] * BUDGETS

    def bound_under_way(self, queue):
        """Not every choice is followed by a call: no more is under way than those that wait may take."""
        for budget in range(BUDGETS):
            most = sum(
                max(visits, 1.0) * max(candidate.takes()[budget] for candidate in candidates_of)
                for visits, candidates_of in zip(self.visits, self.tasks)
            )
            self.under_way[budget] = min(self.under_way[budget], queue * most)

    def left(self, budget):
        """What is left of a budget; nothing where there is none."""
        whole = self.whole[budget]
        return None if whole is None else whole - self.spent[budget] - self.under_way[budget]

    def rates(self):
        """What is left of each budget for one call."""
        calls = (self.requests - self.answered) * sum(self.visits)
        rates = []
        for budget, whole in enumerate(self.whole):
            left = self.left(budget)
            if left is None:
                rates.append(None)
                continue
            # Chance makes some late: as much as it usually does is left for later.
            left -= max(left, 0.0) ** 0.5 if budget == LATE else 0.0
            rates.append(max(left / calls, NOTHING * whole / self.requests, 1e-12))
        return rates

    def strain(self, task, candidate, rates):
        """What a call takes of the budget that is scarcest for it, over what is left for one."""
        takes = self.tasks[task][candidate].takes()
        return max((take / rate for take, rate in zip(takes, rates) if rate is not None), default=0.0)

    def worth(self, task, candidate, rates):
        return self.tasks[task][candidate].accuracy - self.throttle * self.strain(task, candidate, rates)

    def move(self, strain, gain=GAIN):
        """Closes or opens the throttle."""
        self.throttle *= (1.0 + gain) ** max(-3.0, min(strain - 1.0, 3.0))
        self.throttle = max(LEAST, min(self.throttle, MOST))

    def affordable(self, task, reachable):
        """Who leaves enough for the most sparing to serve the rest."""
        takes = [candidate.takes() for candidate in self.tasks[task]]
        fit = list(reachable)
        for budget in range(BUDGETS):
            left = self.left(budget)
            if left is None:
                continue
            spare = max(left - self.needed(budget), 0.0)
            least = min(takes[n][budget] for n in reachable)
            fit = [n for n in fit if takes[n][budget] - least <= spare]
        return fit

    def needed(self, budget):
        """What the rest takes of a budget at least, with a reserve for chance."""
        mean = variance = 0.0
        for visits, candidates_of in zip(self.visits, self.tasks):
            least = min(candidate.takes()[budget] for candidate in candidates_of)
            calls = (self.requests - self.answered) * visits
            often = min(visits, 1.0)
            mean += calls * least
            variance += calls * (least * (1.0 - least) if budget == LATE else often * (1.0 - often) * least * least)
        return mean + RESERVE * variance ** 0.5

    def rehearse(self):
        """Finds a throttle at which the profiles alone would keep the budgets."""
        rates, total = self.rates(), 0.0
        for turn in range(REHEARSAL):
            gain = GAIN * 10.0 ** (1.0 - turn / REHEARSAL)
            for task, visits in enumerate(self.visits):
                best = max(range(len(self.tasks[task])), key=lambda n: self.worth(task, n, rates))
                self.move(self.strain(task, best, rates), gain * visits)
            if 2 * turn >= REHEARSAL:
                total += self.throttle
        self.throttle = total / (REHEARSAL - REHEARSAL // 2)

    def state(self):
        seen = [[candidate.seen() for candidate in task] for task in self.tasks]
        return [self.answered, self.spent, self.under_way, self.throttle, seen]

    def resume(self, state):
        self.answered, self.spent, self.under_way, self.throttle, seen = state
        for task, of_task in zip(self.tasks, seen, strict=True):
            for candidate, of_candidate in zip(task, of_task, strict=True):
                candidate.resume(of_candidate)


def candidates(task, limit):
    known = [one.profile.accuracy for one in task.candidates if one.profile.accuracy is not None]
    # What nobody has measured counts as the least that was.
    unknown = min(known, default=0.0)
    limit = None if limit is None else limit * task.within
    return [Candidate(one.profile, unknown, limit) for one in task.candidates]
