"""What the component starts from: the plugin's own `app`, with every exception that it did not mean told as a defect, and
so every answer that is none."""

import sys
from importlib.machinery import PathFinder

import app
from app import *
from componentize_py_types import Err
from wit_world.imports.types import Error_Internal, Error_Limit, Response


class Handler(app.Handler):
    def handle(self, request):
        # Only what was imported by now is in the component: what is imported later fails as such, and looks for no files.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder]
        try:
            return checked(super().handle(request))
        except Err:
            raise
        except MemoryError as error:
            raise Err(Error_Limit(told(error))) from None
        except Exception as error:
            raise Err(Error_Internal(told(error))) from None


def checked(answer):
    """The answer, where it is one: with other types in it, it would end the component without a word."""
    if not isinstance(answer, Response):
        problem = f"`handle` returned {kind(answer)}; an answer is Response(content_type, metadata, body)"
    elif not isinstance(answer.content_type, str):
        problem = f'`content_type` is of type {kind(answer.content_type)}; it is a str, as in "text/plain"'
    elif not (isinstance(answer.metadata, list) and all(map(is_pair, answer.metadata))):
        problem = "`metadata` is no list of (key, value); [] is an empty one"
    elif not isinstance(answer.body, bytes):
        problem = f"`body` is of type {kind(answer.body)}; it is bytes, as text.encode() gives"
    else:
        return answer
    raise Err(Error_Internal(problem))


def is_pair(pair):
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def kind(value):
    return type(value).__name__


def told(error):
    """The exception and where it rose. The module `traceback` would look for the sources, which are not there."""
    at = error.__traceback__.tb_next
    lines = [f"{type(error).__name__}: {error}"]
    while at and len(lines) < 16:
        code = at.tb_frame.f_code
        lines.append(f"  {code.co_filename}, line {at.tb_lineno}, in {code.co_name}")
        at = at.tb_next
    return "\n".join(lines)

