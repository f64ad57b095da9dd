from __future__ import annotations

from typing import TYPE_CHECKING

import converting
import forking
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="session")
def _forked_programs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "run", forking.run)
        yield
