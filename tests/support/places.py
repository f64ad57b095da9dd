"""Where things of the checkout are, for tests and their helpers."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
# Scripts that tests start in processes of their own.
SUPPORT = TESTS / "support"
GOLDEN = TESTS / "golden"
SCHEMAS = TESTS / "schemas"
KOTLIN_STUBS = TESTS / "kotlin_stubs"
# Real models and data, which not every machine has.
SHARED = ROOT.parent / "shared" / "data"
