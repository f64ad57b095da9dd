"""No room has more lines than the price list of CONTRIBUTING.md allows; see ci/prices.py."""

import sys

from places import ROOT

sys.path.append(str(ROOT / "ci"))

import prices


def test_every_room_is_within_its_price():
    rows = prices.prices(prices.PAGE.read_text(encoding="utf-8"))
    assert prices.over(prices.counted(), rows) == []


def test_what_is_over_its_price_or_has_none_is_said():
    rows = {"tf": (9, 10, 19, 20), prices.TOTAL: (9, 10, 19, 20)}
    assert prices.over({"tf": (10, 20)}, rows) == []
    assert len(prices.over({"tf": (11, 21), "new": (1, 0)}, rows)) == 3
    raised = {**rows, "tf": (9, 11, 19, 20)}
    assert len(prices.over({"tf": (11, 20)}, raised)) == 1


def test_the_table_is_read_as_it_is_written():
    now = {"tf": (1000, 2000), "tests": (0, 7)}
    rows = prices.new(now)
    assert rows["tf"] == (1000, 1020, 2000, 2040)
    page = f"text\n{prices.BEGIN}{prices.written(now, rows)}{prices.END}more\n"
    assert prices.prices(page) == rows
