"""Answers `{"name":"Ada"}` with `{"greeting":"hello Ada"}`."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Error_Invalid, InvalidInput, Request, Response


class Handler(exports.Handler):
    """The task: Karman calls `handle` once for each request."""

    def handle(self, request: Request) -> Response:
        output = {"greeting": f"hello {name_in(request.body)}"}
        body = json.dumps(output, separators=(",", ":")).encode()
        return Response("application/json", [], body)


def name_in(body: bytes) -> str:
    """The name that the body gives."""
    try:
        given = json.loads(body)
    except ValueError as error:
        raise invalid(f"the body is not like {{\"name\":\"Ada\"}}: {error}", "body") from error
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str):
        raise invalid(f"`name` is {json.dumps(name)}; it must be a text, as in {{\"name\":\"Ada\"}}", "name")
    return name


def invalid(message: str, field: str) -> Err:
    """Input that is refused, and where."""
    return Err(Error_Invalid(InvalidInput(message, field)))
