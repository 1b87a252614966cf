"""Selects the cheapest candidate that is accurate and fast enough by its profile, and by what was seen of it since."""

import json

from wit_world import exports
from wit_world.exports.selector import Ask, Choice, Served, Slo, Task

# Of so many calls one may be late.
ONE_LATE_IN = 20


class State:
    """What this instance decides for, and how many calls by each candidate there were and were late."""

    tasks: list[Task] = []
    slo: Slo
    seen: list[list[list[int]]] = []


class Selector(exports.Selector):
    def begin(self, tasks: list[Task], slo: Slo) -> None:
        State.tasks, State.slo = tasks, slo
        State.seen = [[[0, 0] for _ in task.candidates] for task in tasks]

    def resume(self, state: bytes) -> None:
        State.seen = json.loads(state)

    def choose(self, ask: Ask) -> Choice:
        candidates = State.tasks[ask.task].candidates
        reachable = [n for n in range(len(candidates)) if n not in ask.unreachable]
        # Who is good enough comes first, and of equals who costs less.
        order = sorted(reachable, key=lambda n: (not is_good(ask.task, n), candidates[n].profile.cost))
        if is_good(ask.task, order[0]):
            because = "it is the cheapest of those that are accurate and fast enough"
        else:
            because = "nobody is accurate and fast enough and it is the cheapest"
        return Choice(order[0], order[1] if len(order) > 1 else None, because)

    def report(self, served: Served) -> None:
        for call in served.calls:
            seen = State.seen[call.task][call.candidate]
            limit = limit_of(call.task)
            seen[0] += 1
            seen[1] += limit is not None and call.latency > limit

    def save(self) -> bytes:
        return json.dumps(State.seen).encode()


def limit_of(task: int) -> float | None:
    """How long a call of a task may take, in nanoseconds."""
    limit = State.slo.latency_p95
    return None if limit is None else limit * State.tasks[task].within


def is_good(task: int, candidate: int) -> bool:
    profile, wanted = State.tasks[task].candidates[candidate].profile, State.slo.accuracy
    if wanted is not None and (profile.accuracy is None or profile.accuracy < wanted):
        return False
    calls, late = State.seen[task][candidate]
    if calls >= ONE_LATE_IN:
        return late * ONE_LATE_IN <= calls
    limit = limit_of(task)
    return limit is None or profile.p95 <= limit
