"""Types that several threads decode at once."""

import os
import subprocess
import sys

import msgspec
from report_example import whole_report

READS = """
import sys, threading
from pathlib import Path
from edgeconv.system.store.files import decode_checked
from edgeconv.types import Report

content = Path(sys.argv[1]).read_bytes()
begin = threading.Barrier(6)
found = []

def read():
    begin.wait()
    noun, _ = decode_checked(content, Report, what="report", path=Path("report.json"))
    found.append(noun)

threads = [threading.Thread(target=read) for _ in range(begin.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 6 and all(each == found[0] for each in found)
"""


def test_threads_may_read_the_same_kind_of_file_first(tmp_path):
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(whole_report()))
    command = [sys.executable, "-c", READS, str(tmp_path / "report.json")]
    # Without care a third of the processes crashes or more.
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
