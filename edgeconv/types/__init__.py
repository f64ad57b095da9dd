"""The values: frozen, typed values that every verb takes and returns.

Each is a `msgspec.Struct`, so it validates when decoded and goes to JSON as it
is. Units are in the names (`_bytes`, `_us`), shares and accuracies are
fractions, and a dimension of -1 is dynamic.
"""

# Every name is listed once, where it is defined.
# ruff: noqa: F403
from edgeconv.types.checks import *
from edgeconv.types.conversion import *
from edgeconv.types.execution import *
from edgeconv.types.looking import *
from edgeconv.types.measurement import *
from edgeconv.types.measuring import *
from edgeconv.types.model import *
from edgeconv.types.samples import *
from edgeconv.types.searching import *
from edgeconv.types.shipping import *
from edgeconv.types.training import *
