"""What the component starts from: the plugin's own `app`, with every exception that it did not mean told as a defect."""

import sys
from importlib.machinery import PathFinder

import app
from app import *
from componentize_py_types import Err
from wit_world.imports.types import Error_Internal


class Handler(app.Handler):
    def handle(self, request):
        # Only what was imported by now is in the component: what is imported later fails as such, and looks for no files.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder]
        try:
            return super().handle(request)
        except Err:
            raise
        except Exception as error:
            raise Err(Error_Internal(told(error))) from None


def told(error):
    """The exception and where it rose. The module `traceback` would look for the sources, which are not there."""
    at = error.__traceback__.tb_next
    lines = [f"{type(error).__name__}: {error}"]
    while at and len(lines) < 16:
        code = at.tb_frame.f_code
        lines.append(f"  {code.co_filename}, line {at.tb_lineno}, in {code.co_name}")
        at = at.tb_next
    return "\n".join(lines)

