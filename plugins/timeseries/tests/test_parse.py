"""What is read, and what is refused with the line and the column."""

import unittest

from parse import MAX_ROWS, Invalid, parse


class Reads(unittest.TestCase):
    def test_csv_with_gaps_and_dates(self):
        table = parse("text/csv; charset=utf-8", b"time,t,rh\n2026-11-21T00:00:00Z,21.5,\n2026-11-21 00:01:00,NaN,4e1\n")
        self.assertEqual(table.times[1] - table.times[0], 60)
        self.assertEqual(table.columns, {"t": [21.5, None], "rh": [None, 40.0]})

    def test_json_with_keys_that_come_and_go(self):
        table = parse("", b' [{"time":0,"a":1},{"time":1.5,"b":-2},{"time":2,"a":null,"b":3}]')
        self.assertEqual(table.times, [0, 1.5, 2])
        self.assertEqual(table.columns, {"a": [1, None, None], "b": [None, -2, 3]})

    def test_a_byte_order_mark_windows_line_ends_and_empty_lines(self):
        table = parse("", "\ufefftime;x\r\n".replace(";", ",").encode() + b"0,1\r\n\r\n1,2\r\n")
        self.assertEqual(table.columns, {"x": [1, 2]})


class Refuses(unittest.TestCase):
    def test_what_is_wrong_and_where(self):
        for body, field, says in [
            (b"", "body", "empty"),
            (b"\xff", "body", "UTF-8 at byte 0"),
            (b"t,x\n0,1\n", "time", "no column `time` among t, x"),
            (b"time\n0\n", "body", "0 columns beside `time`"),
            (b"time,x,x\n0,1,2\n", "x", "there twice"),
            (b"time,x\n", "body", "no rows"),
            (b"time,x\n0,1\n1,warm\n", "x", "line 3, column `x`: `warm` is not a number"),
            (b"time,x\n0,inf\n", "x", "line 2, column `x`: `inf`"),
            (b"time,x\nsoon,1\n", "time", "line 2, column `time`: `soon`"),
            (b"time,x\n0,1,2\n", "body", "line 2 has 3 values; the header has 2"),
            (b"time,x\n5,1\n4,1\n", "time", "line 3, column `time`: 4.0 is before the 5.0"),
            (b'time,x\n0,"1\n', "body", "line 2"),
            (b"[1]", "body", "array of objects"),
            (b"[{", "body", "not JSON"),
            (b'[{"time":0,"x":true}]', "x", "record 1, column `x`: `true` is not a number"),
            (b'[{"time":0,"x":[1]}]', "x", "`[1]`"),
            (b'[{"x":1}]', "time", "no column `time`"),
            (b'[{"time":0,"x":1},{"x":1}]', "time", "record 2, column `time`: `null`"),
            (b"time," + b",".join(b"c%d" % n for n in range(65)), "body", "65 columns"),
            (b"time,x\n" + b"0,1\n" * (MAX_ROWS + 1), "body", f"more than {MAX_ROWS} rows"),
            (b"time,x\n0," + b"9" * 500, "x", "999…`"),
        ]:
            with self.subTest(body=body[:40]), self.assertRaises(Invalid) as caught:
                parse("", body)
            self.assertEqual(caught.exception.field, field)
            self.assertIn(says, caught.exception.message)
