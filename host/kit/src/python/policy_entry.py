"""What the component of a policy starts from: the plugin's own `app`, with every exception told as why it does not decide."""

import sys
from importlib.machinery import PathFinder

import app
from app import *
from componentize_py_types import Err


class Selector(app.Selector):
    def begin(self, tasks, slo):
        # Only what was imported by now is in the component: what is imported later fails as such, and looks for no files.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder]
        return told(super().begin, tasks, slo)

    def resume(self, state):
        return told(super().resume, state)

    def choose(self, ask):
        return told(super().choose, ask)

    def report(self, served):
        return told(super().report, served)

    def save(self):
        return told(super().save)


def told(call, *arguments):
    """Calls, and gives an exception its name and the line where it rose."""
    try:
        return call(*arguments)
    except Err:
        raise
    except Exception as error:
        at = error.__traceback__
        while at.tb_next:
            at = at.tb_next
        where = f"{at.tb_frame.f_code.co_filename}, line {at.tb_lineno}"
        raise Err(f"{type(error).__name__}: {error} ({where})") from None
