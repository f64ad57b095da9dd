"""Requests that TensorFlow Serving answers for itself before it says that a model is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.data.records import framed
from edgeconv.errors import InputRefused, OutputRefused, UsageError
from edgeconv.runtimes.serving_grpc import predict_request
from edgeconv.store import publish_bytes
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.runtimes.interface import Arrays

_FILE = "tf_serving_warmup_requests"
# The server refuses a model with more.
MOST_REQUESTS = 1000


def write_warmup_requests(
    saved_model: Path, samples: Arrays, signature: str = SERVING_DEFAULT, count: int = 10
) -> Path:
    """Write the file of warm-up requests into a SavedModel, in place of one that is there.

    Each of the first `count` samples, by input of shape (n, *sample), becomes one request of
    batch 1 for `signature`. Returns the file, assets.extra/tf_serving_warmup_requests: records
    of PredictionLog. Raises `InputRefused` for a directory that is no SavedModel or for samples
    that cannot be sent, `UsageError` for a count that cannot be, and `OutputRefused`.
    """
    if not (saved_model / "saved_model.pb").is_file():
        raise InputRefused(f"{saved_model} is no SavedModel", hint="name the directory of one")
    if not 1 <= count <= MOST_REQUESTS:
        raise UsageError(f"{count} warm-up requests", hint=f"from 1 to {MOST_REQUESTS}")
    if min(map(len, samples.values()), default=0) == 0:
        raise InputRefused("there are no samples to make warm-up requests of")
    count = min(count, *map(len, samples.values()))
    records = [_record(saved_model.name, signature, samples, index) for index in range(count)]
    target = saved_model / "assets.extra" / _FILE
    try:
        target.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputRefused(f"cannot make {target.parent}: {error.strerror}") from error
    publish_bytes(b"".join(records), target)
    return target


def _record(name: str, signature: str, samples: Arrays, index: int) -> bytes:
    from edgeconv.runtimes.serving_pb2 import PredictionLog, PredictLog

    one = {key: array[index : index + 1] for key, array in samples.items()}
    request = predict_request(name, None, signature, one)
    return framed(PredictionLog(predict_log=PredictLog(request=request)).SerializeToString())
