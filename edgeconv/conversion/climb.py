"""Going up the ladder: every recipe from the first attempt that gives a good file."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.conversion.graph_checks import (
    are_curable,
    converted_share,
    is_mostly_float,
    left_in_float,
)
from edgeconv.conversion.ladder import (
    Rung,
    combined_error,
    facts_of,
    facts_of_failure,
    first_rung,
    has_fused_layers,
    is_curable,
    is_final,
    next_rung,
)
from edgeconv.conversion.output_checks import CLOSER, wide_activation
from edgeconv.conversion.prepare import prepare
from edgeconv.conversion.run import Run
from edgeconv.conversion.session import Session, start_quantizing
from edgeconv.conversion.target import has_target, right_recipe, verify_on_target
from edgeconv.conversion.verify import (
    compare_candidates,
    convert_with_tflite,
    verified,
    verify_float,
    while_float_is_right,
    with_calibration_checked,
)
from edgeconv.statistics.grades import GRADES, worst_grade
from edgeconv.tf.tflite_converter import refuse_recipe
from edgeconv.types import EVERY_RECIPE, LadderStep, Recipe, RecipeName
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import BatchRefused, EdgeconvError, ToolFailed

Outcome = dict[Recipe, "SessionResult | EdgeconvError"]

# The recipes for weights that TFLiteConverter has.
_TFLITE_HAS = frozenset({"dynamic", "float16"})


@dataclass(frozen=True)
class SessionResult:
    """A verified file, and the session in which it was made."""

    session: Session
    examined: VerifiedCandidate


@dataclass
class _Climb:
    """How far a conversion has come: what is good, and why the rest is not.

    `settled` are those of the good that no other attempt makes better. `float_bytes` is the size
    of the first float32 graph that was right.
    """

    good: dict[Recipe, SessionResult] = field(default_factory=dict)
    settled: set[Recipe] = field(default_factory=set)
    float_bytes: int = 0
    failures: dict[Recipe, list[tuple[str, EdgeconvError]]] = field(default_factory=dict)

    def add(
        self,
        recipe: Recipe,
        session: Session,
        attempt: str,
        outcome: VerifiedCandidate | EdgeconvError,
    ) -> None:
        """Add what an attempt at a recipe ended in."""
        failures = self.failures.setdefault(recipe, [])
        if isinstance(outcome, EdgeconvError):
            failures.append((attempt, outcome))
            return
        found = SessionResult(session, outcome.with_ladder(self.steps(recipe)))
        before = self.good.setdefault(recipe, found).examined
        if _is_better(outcome, before):
            self.good[recipe] = found
        if are_curable(outcome.unruled):
            failures.append((attempt, left_in_float(recipe, outcome.unruled)))
        else:
            self.settled.add(recipe)

    def goes_on(self, recipe: Recipe) -> bool:
        """Whether another rung may make a recipe, or do more of it in integers."""
        errors = [error for _, error in self.failures.get(recipe, ())]
        return bool(errors) and is_curable(errors[0]) and not is_final(errors[-1])

    def steps(self, recipe: Recipe) -> tuple[LadderStep, ...]:
        """The attempts that failed, for the manifest."""
        return tuple(
            LadderStep(attempt=attempt, failed=error.headline)
            for attempt, error in self.failures.get(recipe, ())
        )


def _is_better(examined: VerifiedCandidate, other: VerifiedCandidate) -> bool:
    """Whether only the other is poor, or else whether less of this one computes in float."""
    is_poor, was_poor = (each.verification.grade == "poor" for each in (examined, other))
    if is_poor != was_poor:
        return was_poor
    return examined.floats.integer_share > other.floats.integer_share


def make_all(run: Run, recipes: Sequence[Recipe]) -> Outcome:
    """What each recipe became, in the order of `recipes`.

    Raises an `EdgeconvError` where the model gave no float32 graph that is right.
    """
    climb = _Climb()
    rung: Rung | None = first_rung(run.plan.request.batch, run.plan.request.shapes)
    last: Session | None = None
    converted: Session | None = None
    while rung is not None:
        remaining = [recipe for recipe in recipes if recipe not in climb.settled]
        curable = [r for r in remaining if rung.is_first or climb.goes_on(r)]
        if not curable:
            break
        if not rung.is_first:
            run.on_progress(f"trying again: {rung.text}")
        session = _try_rung(run, rung, curable, climb)
        last = session or last
        # A fused layer is quantized as one where that can be: it is smaller than unrolled.
        if session and has_fused_layers(session.prepared):
            _try_converter(session, recipes, climb)
            converted = session
        if session:
            facts = facts_of(session.prepared)
        else:
            facts = facts_of_failure(run, climb.failures[curable[0]][-1][1].cause)
        errors = (error for r in curable for _, error in climb.failures.get(r, ()))
        takes_one = any(isinstance(error, BatchRefused) for error in errors)
        rung = next_rung(run.plan, rung, facts._replace(takes_one=takes_one))
    if last is None:
        raise combined_error(climb.failures[recipes[0]])
    if last is not converted:
        _try_converter(last, recipes, climb)
    _replace_mostly_float(climb)
    _take_closer_engines(climb)
    if has_target(run):
        _verify_on_targets(climb)
    _warn_of_sizes(climb)
    _advise(climb)
    return {r: climb.good.get(r) or combined_error(climb.failures[r]) for r in recipes}


def verify_in_session(floating: SessionResult, candidate: Candidate) -> SessionResult:
    """A candidate of the session of a good float32 model, verified as in `make_all`.

    Raises the `EdgeconvError` that it ended in.
    """
    session, recipe = floating.session, candidate.recipe
    examined = verified(session, candidate).with_ladder(floating.examined.candidate.ladder)
    float_bytes = session.prepared.float_model.stat().st_size
    climb = _Climb(good={recipe: SessionResult(session, examined)}, float_bytes=float_bytes)
    _warn_of_sizes(climb)
    _advise(climb)
    return climb.good[recipe]


def _try_rung(run: Run, rung: Rung, recipes: Sequence[Recipe], climb: _Climb) -> Session | None:
    """Try one rung and put what each recipe became into `climb`.

    None where it gave no float32 graph that is right.
    """
    floating = next((recipe for recipe in recipes if recipe.name == "float32"), None)
    first = [r for r in recipes if r.name != "float32" and r.engine != "tflite"]
    # The slow kernels of int16x8 run while the others are made.
    first.sort(key=lambda recipe: recipe.name != "int16x8")
    try:
        with contextlib.ExitStack() as children:
            # Three things in parallel: the trained model runs in TensorFlow, litert-quantizer
            # quantizes, and what it has made runs.
            prepared = prepare(run, rung, children, quantizes=bool(first))
            session = children.enter_context(Session(run, prepared))
            candidates = start_quantizing(session, first)
            candidates = while_float_is_right(session, floating, candidates)
            compared = compare_candidates(session, candidates)
            run.on_progress("verifying float32 against the trained model")
            float_model = verify_float(session, floating)
            outcomes = with_calibration_checked(session, compared)
    except EdgeconvError as error:
        if rung.is_first and not is_curable(error):
            raise
        for recipe in recipes:
            climb.failures.setdefault(recipe, []).append((rung.text, error))
        return None
    if floating is not None:
        outcomes[floating] = float_model
    climb.float_bytes = climb.float_bytes or session.prepared.float_model.stat().st_size
    for recipe in recipes:
        if recipe in outcomes:
            climb.add(recipe, session, rung.text, outcomes[recipe])
    return session


def _try_converter(session: Session, recipes: Sequence[Recipe], climb: _Climb) -> None:
    """Make recipes that are not settled with TFLiteConverter, from the session's SavedModel."""
    for recipe in recipes:
        failures = climb.failures.get(recipe, ())
        if recipe in climb.settled or recipe.name == "float32":
            continue
        # The user's own limits would be spent once more.
        if failures and (recipe.engine == "litert" or is_final(failures[-1][1])):
            continue
        if failures and recipe.engine == "auto" and not _can_try_converter(session, recipe):
            continue
        attempt = f"{session.prepared.rung.text}, quantized with TFLiteConverter"
        climb.add(recipe, session, attempt, convert_with_tflite(session, recipe))


def _can_try_converter(session: Session, recipe: Recipe) -> bool:
    """Whether TFLiteConverter makes such files at all; what it never does is no attempt."""
    try:
        refuse_recipe(recipe, is_tflite=session.prepared.saved_model is None)
    except ToolFailed:
        return False
    return True


def _replace_mostly_float(climb: _Climb) -> None:
    """Replace files that litert-quantizer left mostly in float, if TFLiteConverter does better.

    The quantizer silently skips the weights of fused recurrent layers and of GATHER.
    """
    for recipe, good in tuple(climb.good.items()):
        summary, prepared = good.examined.summary, good.session.prepared
        if recipe.engine != "auto" or prepared.saved_model is None:
            continue
        if recipe.name not in _TFLITE_HAS or not is_mostly_float(recipe, summary):
            continue
        other = convert_with_tflite(good.session, recipe)
        if isinstance(other, EdgeconvError):
            continue
        if converted_share(recipe, other.summary) > converted_share(recipe, summary):
            left = f"{1 - converted_share(recipe, summary):.1%} of the weights stayed float32"
            attempt = f"{prepared.rung.text}, quantized with litert-quantizer"
            steps = (*climb.steps(recipe), LadderStep(attempt=attempt, failed=left))
            climb.good[recipe] = SessionResult(good.session, other.with_ladder(steps))


def _take_closer_engines(climb: _Climb) -> None:
    """Replace files that are far from the float32 model, if TFLiteConverter's are closer.

    Each attempt starts TensorFlow. The first is int8, which has most to gain; where it gains
    nothing, the others are not tried.
    """
    far = [recipe for recipe, good in climb.good.items() if may_gain(good.examined, good.session)]
    for recipe in sorted(far, key=lambda recipe: recipe.name != "int8"):
        good = climb.good[recipe]
        closer = closer_engine(good.session, good.examined)
        climb.good[recipe] = SessionResult(good.session, closer)
        if closer.candidate.engine == "litert":
            return


def _verify_on_targets(climb: _Climb) -> None:
    """Verify the good files on their target runtime, and propose what is right there."""
    refused: dict[Recipe, tuple[Session, EdgeconvError]] = {}
    right: dict[Recipe, VerifiedCandidate] = {}
    for recipe, good in tuple(climb.good.items()):
        verified = verify_on_target(good.session, good.examined, good.session.expected.outputs)
        if isinstance(verified, EdgeconvError):
            del climb.good[recipe]
            refused[recipe] = good.session, verified
        else:
            verified = verified.with_warnings(good.session.overflows)
            climb.good[recipe] = SessionResult(good.session, verified)
            right[recipe] = verified
    proposed = ""
    for recipe, (session, error) in refused.items():
        proposed = proposed or right_recipe(session, right)
        error.hint = proposed or error.hint
        climb.add(recipe, session, "verified on the target runtime", error)


def _advise(climb: _Climb) -> None:
    """Say of each file that is not close to float what would make it closer."""
    from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE

    files = {recipe.name: good.examined for recipe, good in climb.good.items()}
    for recipe, good in tuple(climb.good.items()):
        verification = good.examined.verification
        if verification.grade in ("usable", "poor"):
            records = [part.split.record for part in good.session.prepared.parts]
            few = any(not each or each.samples < MIN_SAMPLES_TO_CHOOSE for each in records)
            advice = _advice(good.examined, files, has_few_samples=few)
            verification = msgspec.structs.replace(verification, advice=advice)
            examined = msgspec.structs.replace(good.examined, verification=verification)
            climb.good[recipe] = SessionResult(good.session, examined)


def _advice(
    examined: VerifiedCandidate,
    files: Mapping[RecipeName, VerifiedCandidate],
    *,
    has_few_samples: bool,
) -> str:
    candidate, grade = examined.candidate, examined.verification.grade
    recipe = candidate.recipe
    better = [
        (GRADES.index(each.verification.grade), each.candidate.file.stat().st_size, name)
        for name, each in files.items()
        if each.verification.grade and worst_grade((each.verification.grade, grade)) == grade
        if each.verification.grade != grade and name != "float32"
    ]
    parts = []
    if better:
        theirs, size, name = min(better)
        is_proven = GRADES[theirs] != "unproven"
        parts.append(f"{name} is {GRADES[theirs] if is_proven else 'closer'}, with {size:,} bytes")
    elif CLOSER[recipe.name]:
        parts.append(CLOSER[recipe.name])
    if recipe.methods == ():
        parts.append("--methods auto" * (recipe.name not in ("float16", "float32", "qat")))
    elif has_few_samples and any(
        text.startswith(NOT_TRIED) for text in (*candidate.notes, *candidate.details)
    ):
        parts.append("more calibration samples, for methods to be tried")
    if recipe.output_type != "float32":
        parts.append("--io output=float32, since the integers of an output are coarse")
    if not better and recipe.name == "int8" and (wide := wide_activation(candidate)):
        parts[0] = f"int16x8: {wide}"
    return "; or ".join(filter(None, parts))


def _warn_of_sizes(climb: _Climb) -> None:
    """Add a warning to files that are larger than need be, with the recipe of a smaller one."""
    files = {recipe: good.examined.candidate.file for recipe, good in climb.good.items()}
    sizes = {recipe.name: file.stat().st_size for recipe, file in files.items()}
    for recipe, good in tuple(climb.good.items()):
        prepared = good.session.prepared
        warning = size_warning(
            recipe,
            sizes,
            climb.float_bytes,
            unrolled=prepared.rung.unroll,
            can_fuse=prepared.can_fuse,
        )
        if warning:
            climb.good[recipe] = SessionResult(
                good.session, good.examined.with_warnings([warning], first=True)
            )


# TFLiteConverter calibrates with kernels of about this many multiplications a second.
_PRODUCTS_PER_S = 2 * 10**9
_MOST_CALIBRATION_S = 20.0
# Whether it may be closer is seen with so many.
_FIRST_SAMPLES = 32
# A smaller gain may come from the order of sums.
_MARGIN_DB = 0.1


def may_gain(first: VerifiedCandidate, session: Session) -> bool:
    """Whether TFLiteConverter makes the recipe, and all that "auto" tried left the file poor."""
    candidate = first.candidate
    if candidate.engine != "litert" or not candidate.may_compete:
        return False
    # Of the recorded models, it has never been closer where the file was usable.
    if first.verification.grade not in ("", "poor"):
        return False
    # Its ranges of a state and of the output that is fed back differ.
    if any(part.split.states for part in session.prepared.parts):
        return False
    # TensorFlow has not been started for a .tflite.
    if session.prepared.saved_model is None:
        return False
    return _can_try_converter(session, candidate.recipe)


def closer_engine(
    session: Session, first: VerifiedCandidate, most_samples: int | None = _FIRST_SAMPLES
) -> VerifiedCandidate:
    """The closer one of a file and what TFLiteConverter makes of its recipe.

    Closer is what has a smaller error on the held-back samples, beyond their noise. It is made with
    few samples and without methods first, and with all where that is closer. A step of the ladder
    or a note says what was compared.
    """
    samples = sum(
        record.samples for part in session.prepared.parts if (record := part.split.record)
    )
    seconds = session.products * samples / _PRODUCTS_PER_S
    if seconds > _MOST_CALIBRATION_S:
        return _with_detail(
            first, f"TFLiteConverter was not tried: it would calibrate for about {seconds:.0f} s"
        )
    recipe, before = first.candidate.recipe, first.errors
    assert before is not None, "it may compete"
    other = convert_with_tflite(session, recipe, most_samples)
    if isinstance(other, EdgeconvError):
        return _with_detail(first, f"TFLiteConverter was tried too: {other.headline}")
    after = other.errors
    assert after is not None, "so may the other"
    if converted_share(recipe, other.summary) < converted_share(recipe, first.summary):
        return _with_detail(
            first, "TFLiteConverter was tried too: it quantizes less of the weights"
        )
    gain_db = after.snr_db - before.snr_db
    count = f"on {after.samples} held-back samples"
    if not after.is_closer(before, margin_db=_MARGIN_DB):
        return _with_detail(
            first,
            f"TFLiteConverter's file is not closer to the float32 model: {gain_db:+.1f} dB {count}",
        )
    if most_samples:
        return closer_engine(session, first, None)
    step = LadderStep(
        attempt=f"{session.prepared.rung.text}, quantized with litert-quantizer",
        failed=f"TFLiteConverter's file is {gain_db:.1f} dB closer to the float32 model {count}",
    )
    return other.with_ladder((*first.candidate.ladder, step))


def _with_detail(verified: VerifiedCandidate, detail: str) -> VerifiedCandidate:
    details = (*verified.candidate.details, detail)
    candidate = msgspec.structs.replace(verified.candidate, details=details)
    return msgspec.structs.replace(verified, candidate=candidate)


# Scales and names take this much in any file, and this part of a small one: too little to speak of.
_LITTLE_BYTES, _LITTLE = 1024, 0.05
# What is not smaller by this part is no smaller.
_SAME = 0.02
# Two recipes with weights of equal bits differ by less.
_FAR = 1.5
_FUSED = (
    "; --fuse-lstm keeps each LSTM layer one operator, whose state the app resets before each input"
)


def size_warning(
    recipe: Recipe,
    sizes: Mapping[RecipeName, int],
    float_bytes: int,
    *,
    unrolled: bool,
    can_fuse: bool = False,
) -> str:
    """The warning about a file that is larger than need be, "" where it is not.

    `sizes` are the bytes of all that were made together, `float_bytes` those of the float32 model
    before any loops were unrolled, which `unrolled` says of this one; `can_fuse` that these were of
    recurrent layers.
    """
    size = sizes[recipe.name]
    cheaper = EVERY_RECIPE[1 : EVERY_RECIPE.index(recipe.name)]
    others = {name: sizes[name] for name in cheaper if name in sizes and sizes[name] < float_bytes}
    least = min(others, key=lambda name: others[name], default=None)
    beyond_float = size > float_bytes + min(_LITTLE_BYTES, _LITTLE * float_bytes)
    beyond_other = least and size > max(_FAR * others[least], others[least] + _LITTLE_BYTES)
    if recipe.name == "float32":
        return ""
    if not beyond_float and size > (1 - _SAME) * float_bytes:
        is_less = least is not None and others[least] < size
        other = f"; {least} has {others[least]:,} bytes" if least and is_less else ""
        return f"the file is no smaller than float32 ({size:,} and {float_bytes:,} bytes){other}"
    wide: RecipeName = "int8" if recipe.full_integer else "weight-only-int8"
    if recipe.has_four_bits and wide in sizes and size > (1 - _SAME) * sizes[wide]:
        return f"the file is no smaller than {wide} ({size:,} and {sizes[wide]:,} bytes)"
    if not (beyond_float or beyond_other):
        return ""
    why = ", because its loops were unrolled: each step became an operator" * unrolled
    fused = _FUSED * (unrolled and can_fuse and recipe.name == "int8")
    if least and not beyond_float:
        return f"{_times(least, size, others[least])}{why}{fused}"
    return (
        f"{_times('float32', size, float_bytes)}{why}; "
        f"{_instead(recipe, least, sizes, unrolled=unrolled)}{fused}"
    )


def _times(other: str, size: int, bytes_: int) -> str:
    times = f"{size / bytes_:.{2 if size < 1.05 * bytes_ else 1}f}"
    return f"the file is {times} times as large as {other} ({size:,} and {bytes_:,} bytes)"


def _instead(
    recipe: Recipe, least: RecipeName | None, sizes: Mapping[RecipeName, int], *, unrolled: bool
) -> str:
    if least is not None:
        return f"{least} has {sizes[least]:,} bytes"
    if unrolled and recipe.full_integer:
        return "dynamic keeps the loops, and is smaller as a rule"
    # One that was made and is not `least` is no smaller than float32.
    return "float32 serves better" if "float16" in sizes else "float32 or float16 serves better"
