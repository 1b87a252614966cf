"""Selects models by one throttle: the interface. `throttle` decides."""

import json

from wit_world import exports
from wit_world.exports.selector import Choice

from throttle import Throttle

# An instance decides for one workflow.
THROTTLE = None


class Selector(exports.Selector):
    def begin(self, tasks, slo):
        global THROTTLE
        THROTTLE = Throttle(tasks, slo)

    def resume(self, state):
        THROTTLE.resume(json.loads(state))

    def choose(self, ask):
        return Choice(*THROTTLE.choose(ask.task, ask.unreachable, ask.queue))

    def report(self, served):
        THROTTLE.report(served)

    def save(self):
        return json.dumps(THROTTLE.state()).encode()
