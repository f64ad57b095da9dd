"""Requests that TensorFlow Serving sends to a model before it reports it as ready."""

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
    """Write, or replace, the file of warm-up requests in a SavedModel, and return its path.

    Each of the first `count` samples, arrays (n, *sample) by input, becomes one request of batch 1
    for `signature`, a record of PredictionLog. Raises `InputRefused` for a directory that is not a
    SavedModel or samples that cannot be sent, `UsageError` for a bad count, and `OutputRefused`.
    """
    if not (saved_model / "saved_model.pb").is_file():
        raise InputRefused(f"{saved_model} is not a SavedModel", hint="name the directory of one")
    if not 1 <= count <= MOST_REQUESTS:
        raise UsageError(
            f"cannot write {count} warm-up requests", hint=f"give 1 to {MOST_REQUESTS}"
        )
    if min(map(len, samples.values()), default=0) == 0:
        raise InputRefused("there are no samples to make warm-up requests from")
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

    sample = {key: array[index : index + 1] for key, array in samples.items()}
    request = predict_request(name, None, signature, sample)
    return framed(PredictionLog(predict_log=PredictLog(request=request)).SerializeToString())
