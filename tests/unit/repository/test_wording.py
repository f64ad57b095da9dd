"""The file of all wording, and how tests/support/wording.py reads, compares and writes it."""

from types import SimpleNamespace

import pytest
import wording
from wording import says

PAGE = """\
tests/a.py
  test_one[x]
    2 × UsageError: no
        next: yes

      more
    text
  test_two
    text
"""


def test_every_text_is_of_a_test_that_is_there(request):
    kept = wording.read(wording.WORDING.read_text(encoding="utf-8"))
    gone = wording.gone(kept, request.config.stash.get(wording.COLLECTED, {}))
    assert gone == [] or wording._IS_WRITTEN


def test_the_file_is_read_as_it_is_written():
    texts = wording.read(PAGE)
    assert list(texts) == ["tests/a.py::test_one[x]", "tests/a.py::test_two"]
    said = ["UsageError: no\n  next: yes\n\nmore"] * 2 + ["text"]
    assert texts["tests/a.py::test_one[x]"] == wording.rendered(said)
    assert wording.written({"tests/a.py::test_no": "", **texts}) == PAGE


def test_a_test_is_gone_with_its_function_or_its_parameters():
    here = "tests/unit/repository/test_wording.py"
    there = f"{here}::test_the_file_is_read_as_it_is_written"
    texts = [there, f"{there}[x]", f"{here}::test_no"]
    assert wording.gone(texts, {}) == texts[2:]
    assert wording.gone(texts, {here: {there}}) == texts[1:]


def test_a_text_says_nothing_of_the_machine(tmp_path):
    base = tmp_path.parent
    text = f"{tmp_path}/a.npz {base}/cache0/b /tmp/x-3q {wording.ROOT}/edgeconv\x1b 0x7f1200ab12cd"
    said = wording.independent(text, tmp_path, base)
    assert said == "TMP/a.npz TMP/b TMP ROOT/edgeconv\\x1b ADDRESS"


def test_a_test_that_says_something_else_fails(request, monkeypatch):
    test = SimpleNamespace(nodeid="tests/a.py::test_two", funcargs={}, config=request.config)
    monkeypatch.setattr(wording, "_by_test", {})
    monkeypatch.setattr(wording, "_IS_WRITTEN", False)
    monkeypatch.setattr(wording, "_kept", lambda: wording.read(PAGE))
    for said in (["text"], [], ["another text"], ["text", "text"]):
        run = wording.pytest_pyfunc_call(test)
        next(run)
        says(said)
        with pytest.raises(StopIteration if said == ["text"] else pytest.fail.Exception):
            run.send(None)
