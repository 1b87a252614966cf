"""The task: sensor records in, statistics and anomalies out. The metadata keys `window` and `threshold` are optional."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Error_Invalid, InvalidInput, Request, Response

from parse import Invalid, parse
from report import report


class Handler(exports.Handler):
    def handle(self, request: Request) -> Response:
        options = {key: value for key, value in request.metadata if key in ("window", "threshold")}
        try:
            answer = report(parse(request.content_type, request.body), **options)
        except Invalid as error:
            raise Err(Error_Invalid(InvalidInput(error.message, error.field))) from None
        body = json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
        return Response("application/json", [], body)
