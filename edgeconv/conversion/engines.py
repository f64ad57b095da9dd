"""The other engine, for a file of ai-edge-quantizer that is not close to the float32 model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.graph_checks import converted_share
from edgeconv.conversion.verify import convert_with_tflite
from edgeconv.errors import EdgeconvError, ToolFailed
from edgeconv.tf.tflite_converter import refuse_recipe
from edgeconv.types import LadderStep

if TYPE_CHECKING:
    from edgeconv.conversion.candidate import VerifiedCandidate
    from edgeconv.conversion.session import Session

# TFLiteConverter calibrates with kernels of about this many multiplications a second.
_PRODUCTS_PER_S = 2 * 10**9
_MOST_CALIBRATION_S = 20.0
# A smaller gain may come from the order of sums.
_MARGIN_DB = 0.1


def may_gain(first: VerifiedCandidate, session: Session) -> bool:
    """Whether TFLiteConverter makes the recipe, and all that "auto" tried left the file far off."""
    candidate = first.candidate
    if candidate.engine != "litert" or not candidate.may_compete:
        return False
    # TensorFlow has not been started for a .tflite.
    if session.prepared.saved_model is None:
        return False
    try:
        refuse_recipe(candidate.recipe, is_tflite=False)
    except ToolFailed:
        return False
    return True


def closer_engine(session: Session, first: VerifiedCandidate) -> VerifiedCandidate:
    """The closer one of a file and what TFLiteConverter makes of its recipe.

    Closer is what has a smaller error on the held-back samples, beyond their noise. A step of the
    ladder or a note says what was compared.
    """
    samples = sum(
        record.samples for part in session.prepared.parts if (record := part.split.record)
    )
    seconds = session.products * samples / _PRODUCTS_PER_S
    if seconds > _MOST_CALIBRATION_S:
        return _with_note(
            first, f"TFLiteConverter was not tried: it would calibrate for about {seconds:.0f} s"
        )
    recipe = first.candidate.recipe
    other = convert_with_tflite(session, recipe)
    if isinstance(other, EdgeconvError):
        return _with_note(first, f"TFLiteConverter was tried too: {other.headline}")
    if converted_share(recipe, other.summary) < converted_share(recipe, first.summary):
        return _with_note(first, "TFLiteConverter was tried too: it quantizes less of the weights")
    before, after = first.errors, other.errors
    assert before is not None, "it may compete"
    assert after is not None, "so may the other"
    gain_db = after.snr_db - before.snr_db
    count = f"on {after.samples} held-back samples"
    if not after.is_closer(before, margin_db=_MARGIN_DB):
        return _with_note(
            first,
            f"TFLiteConverter's file is not closer to the float32 model: {gain_db:+.1f} dB {count}",
        )
    step = LadderStep(
        attempt=f"{session.prepared.rung.text}, quantized with ai-edge-quantizer",
        failed=f"TFLiteConverter's file is {gain_db:.1f} dB closer to the float32 model {count}",
    )
    return other.with_ladder((*first.candidate.ladder, step))


def _with_note(verified: VerifiedCandidate, note: str) -> VerifiedCandidate:
    notes = (*verified.candidate.notes, note)
    candidate = msgspec.structs.replace(verified.candidate, notes=notes)
    return msgspec.structs.replace(verified, candidate=candidate)
