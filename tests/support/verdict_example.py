"""What the gate says of two models, with every outcome, fixed to the last digit."""

from typing import Any

from edgeconv.types import (
    Check,
    Checked,
    ClassDrop,
    Finding,
    GateStatistics,
    StageState,
    Verdict,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "a\n::error::all is lost",
    "::warning file=x::gone",
    "##[error]gone",
    "]]><failure/>",
    "a|b`c`|",
    "-->",
    "\x00\x07\x1b[31mred\x85\u2028",
    "\u202eevil\u2066",
    "%0A::error::x, y: z",
    "[x](http://e.org) {0} @team #1 www.e.org",
    "\"\\'&amp;",
    "\ud800\ufffe",
    "=1+1",
)
"""Names that somewhere are more than a name; a lone surrogate is what a file's name may hold."""


def int8(limit: str, **fields: Any) -> Finding:
    return Finding(model="mnist-int8", limit=limit, **fields)


def failing() -> Check:
    return Check(
        name="mnist",
        verdict=Verdict(
            findings=(
                int8("max-size-bytes", allowed=100_000.0, actual=46_872.0, outcome="passed"),
                int8(
                    "max-accuracy-drop",
                    allowed=0.01,
                    actual=0.0306,
                    outcome="failed",
                    reference="baseline",
                    interval=(0.0241, 0.0371),
                    confidence=0.95,
                    method="mcnemar",
                    samples=10_000,
                ),
                int8(
                    "max-accuracy-drop",
                    allowed=0.01,
                    actual=None,
                    outcome="missing",
                    reference="lock",
                    reason="the test data changed since the lock",
                ),
                int8(
                    "max-class-drop",
                    allowed=0.05,
                    actual=0.0522,
                    outcome="inconclusive",
                    reference="baseline",
                    subject="seven",
                    interval=(0.0301, 0.0744),
                    confidence=0.995,
                    method="mcnemar",
                    samples=1028,
                    samples_needed=2420,
                ),
                int8(
                    "max-latency-ratio",
                    allowed=1.0,
                    actual=1.08,
                    outcome="failed",
                    severity="warn",
                    interval=(1.02, 1.13),
                    confidence=0.95,
                    method="rounds",
                ),
                int8("oldest-runtime", allowed="2.14.0", actual="2.17.0", outcome="failed"),
                int8(
                    "allowed-operators",
                    allowed=("CONV_2D", "FULLY_CONNECTED"),
                    actual=("CONV_2D", "EXP", "FULLY_CONNECTED"),
                    outcome="failed",
                ),
                int8("min-output-snr-db", allowed=20.0, actual=27.31, outcome="passed"),
            )
        ),
        stages=(
            stage("checkpoint", "mnist.keras", 0.9902, 0.9898, 0.0004, False, changed=True),
            stage("trained", "mnist", 0.9902, 0.9898, 0.0004, False, changed=True, own_drop=0.0),
            stage("float32", "mnist-float32", 0.9902, 0.9898, 0.0004, False, own_drop=0.0),
            stage(
                "quantized",
                "mnist-int8",
                0.9896,
                0.9592,
                0.0304,
                True,
                changed=True,
                own_drop=0.0306,
            ),
        ),
        changes=("the calibration data changed since the lock",),
        classes=(
            class_drop("seven", 1028, 0.9893, 0.9371, interval=(0.0301, 0.0744)),
            class_drop("nine", 1009, 0.9871, 0.9712),
        ),
        summary="float32 is as locked, but int8 lost 3.0 points; the calibration data changed.",
        notes=("latency was measured on a shared machine",),
        is_locked=True,
    )


def stage(
    name: Any,
    model: str,
    before: float,
    after: float,
    drop: float,
    moved: bool,
    *,
    changed: bool = False,
    own_drop: float | None = None,
) -> StageState:
    return StageState(
        stage=name,
        model=model,
        changed=changed,
        metric="top1",
        before=before,
        after=after,
        drop=drop,
        interval=(round(drop - 0.0021, 4), round(drop + 0.0021, 4)),
        own_drop=own_drop,
        own_interval=None if own_drop is None else (round(own_drop - 0.002, 4), own_drop + 0.002),
        moved=moved,
    )


def class_drop(name: str, samples: int, before: float, after: float, **fields: Any) -> ClassDrop:
    drop = round(before - after, 4)
    values = {
        "model": "mnist-int8",
        "kind": "class",
        "reference": "baseline",
        "name": name,
        "samples": samples,
        "before": before,
        "after": after,
        "drop": drop,
        "interval": (round(drop - 0.018, 4), round(drop + 0.019, 4)),
    }
    return ClassDrop(**{**values, **fields})


def passing() -> Check:
    return Check(
        name="keywords",
        verdict=Verdict(
            findings=(
                Finding(
                    model="keywords-int8",
                    limit="max-size-ratio",
                    allowed=0.3,
                    actual=0.258,
                    outcome="passed",
                ),
                Finding(
                    model="keywords-int8",
                    limit="max-accuracy-drop",
                    allowed=0.01,
                    actual=0.004,
                    outcome="inconclusive",
                    severity="warn",
                    reference="baseline",
                    interval=(-0.011, 0.019),
                    confidence=0.95,
                    method="mcnemar",
                    samples=300,
                    samples_needed=1240,
                ),
            )
        ),
        statistics=GateStatistics(inconclusive="warn"),
        summary="the bytes of int8 changed (litert-quantizer 0.10.0 → 0.11), its answers did not",
        changes=("litert-quantizer was 0.10.0 and is 0.11.0",),
        reused=True,
    )


def checked() -> Checked:
    return Checked(config="ci/edgeconv.toml", checks=(failing(), passing()))


def good() -> Checked:
    """All limits hold, and there is nothing to say."""
    finding = Finding(model="m", limit="max-size-bytes", allowed=10.0, actual=9.0, outcome="passed")
    check = Check(name="m", verdict=Verdict(findings=(finding,)), is_locked=True)
    return Checked(config="edgeconv.toml", checks=(check,))


def named(name: str) -> Checked:
    """Every text that may come from outside is `name`."""
    finding = Finding(
        model=name,
        limit="max-class-drop",
        allowed=0.01,
        actual=0.5,
        outcome="inconclusive",
        subject=name,
        reference="lock",
        interval=(0.0, 1.0),
        confidence=0.95,
        method=name,
        samples=3,
        samples_needed=9,
        reason=name,
    )
    operators = Finding(
        model=name,
        limit="allowed-operators",
        allowed=(name,),
        actual=(name, name),
        outcome="failed",
    )
    runtime = Finding(
        model=name, limit="oldest-runtime", allowed=name, actual=name, outcome="missing"
    )
    warned = Finding(
        model=name, limit=name, allowed=1.0, actual=2.0, outcome="failed", severity="warn"
    )
    check = Check(
        name=name,
        verdict=Verdict(findings=(finding, operators, runtime, warned)),
        stages=(StageState(stage="quantized", model=name, changed=None, metric=name, after=0.5),),
        changes=(name,),
        classes=(class_drop(name, 3, 1.0, 0.5, model=name),),
        summary=name,
        notes=(name,),
    )
    return Checked(config=name, checks=(check,))
