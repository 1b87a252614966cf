"""Reads sensor records: CSV with a header row, or a JSON array of objects.

Both give a `Table`: one list of times and one list of values for each numeric column. A value that is not there is
`None`; anything else that is no finite number is refused with the line and the column.
"""

import csv
import io
import json
import math
from dataclasses import dataclass
from datetime import datetime, timezone

MAX_ROWS = 50_000
MAX_COLUMNS = 64
MAX_VALUES = 50_000
MISSING = {"", "na", "nan", "null", "none", "-"}


class Invalid(Exception):
    """Input that is refused: what is wrong, and in which field."""

    def __init__(self, message: str, field: str):
        super().__init__(message)
        self.message = message
        self.field = field


@dataclass
class Table:
    """Records in the order of their times."""

    times: list[float]
    """Seconds; since 1970 where the input has dates."""

    columns: dict[str, list[float | None]]
    """One value for each time."""


def parse(content_type: str, body: bytes) -> Table:
    """Reads a body. Without a content type, a body that starts with `[` is JSON, any other CSV."""
    try:
        text = body.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid(f"the body is not UTF-8 at byte {error.start}", "body") from error
    media_type = content_type.split(";")[0].strip().lower()
    if media_type == "application/json" or (media_type != "text/csv" and text.lstrip().startswith("[")):
        names, rows = json_rows(text)
    else:
        names, rows = csv_rows(text)
    return table(names, rows)


def csv_rows(text: str):
    """The names of the columns, and an iterator over (place, cells)."""
    reader = csv.reader(io.StringIO(text), strict=True)
    names = [name.strip() for name in next(reader, [])]
    if not any(names):
        raise Invalid("the body is empty; it starts with a header row, as in `time,temperature`", "body")

    def rows():
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise Invalid(f"line {reader.line_num}: {error}", "body") from error
            if not cells:
                continue
            place = f"line {reader.line_num}"
            if len(cells) != len(names):
                raise Invalid(f"{place} has {len(cells)} values; the header has {len(names)} columns", "body")
            yield place, cells

    return names, rows()


def json_rows(text: str):
    """The same for an array of objects. The first object that has a key decides where its column stands."""
    try:
        records = json.loads(text)
    except ValueError as error:
        raise Invalid(f"the body is not JSON: {error}", "body") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Invalid('the body must be an array of objects, as in [{"time":0,"temperature":21.5}]', "body")
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, ((f"record {at}", [record.get(name) for name in names]) for at, record in enumerate(records, 1))


def table(names: list[str], rows) -> Table:
    """Checks names, bounds, times and values."""
    if "time" not in names:
        raise Invalid(f"there is no column `time` among {', '.join(names) or 'none'}", "time")
    doubled = next((name for name in names if names.count(name) > 1 or not name), None)
    if doubled is not None:
        raise Invalid(f"the column name `{doubled}` is empty or there twice", doubled or "body")
    if not 2 <= len(names) <= MAX_COLUMNS + 1:
        raise Invalid(f"there are {len(names) - 1} columns beside `time`; 1 to {MAX_COLUMNS} are allowed", "body")
    times: list[float] = []
    columns: dict[str, list[float | None]] = {name: [] for name in names if name != "time"}
    max_rows = min(MAX_ROWS, MAX_VALUES // len(columns))
    for place, cells in rows:
        if len(times) == max_rows:
            raise Invalid(f"there are more than {max_rows} rows of {len(columns)} columns; send fewer at once", "body")
        for name, cell in zip(names, cells):
            if name == "time":
                times.append(moment(cell, place))
            else:
                columns[name].append(value(cell, place, name))
        if len(times) > 1 and times[-1] < times[-2]:
            raise Invalid(f"{place}, column `time`: {times[-1]} is before the {times[-2]} above it; sort the rows", "time")
    if not times:
        raise Invalid("there are no rows below the header", "body")
    return Table(times, columns)


def moment(cell, place: str) -> float:
    """A time: seconds as a number, or a date by ISO 8601; UTC where it names no zone."""
    seconds = number(cell)
    if seconds is None and isinstance(cell, str):
        try:
            date = datetime.fromisoformat(cell.strip())
            seconds = (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    if seconds is None:
        raise Invalid(f"{place}, column `time`: {shown(cell)} is neither seconds nor a date like 2026-11-21T08:00:00Z", "time")
    return seconds


def value(cell, place: str, name: str) -> float | None:
    """A reading, or `None` where there is none."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return None
    reading = number(cell)
    if reading is None:
        raise Invalid(f"{place}, column `{name}`: {shown(cell)} is not a number", name)
    return reading


def number(cell) -> float | None:
    """A finite number, or `None`."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)):
        return None
    try:
        found = float(cell)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def shown(cell) -> str:
    """A cell as a message quotes it, cut where it is long."""
    text = cell if isinstance(cell, str) else json.dumps(cell)
    return f"`{text[:40]}…`" if len(text) > 40 else f"`{text}`"
