"""What the gate says of two models, with every outcome, fixed to the last digit."""

from typing import Any

from edgeconv.types import Check, Checked, ClassDrop, Finding, GateStatistics, StageState, Verdict

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


_LOSS = {"confidence": 0.95, "method": "mcnemar"}
# Limit, what it allows, what there is, the outcome, and what else is said of it.
_FINDINGS: tuple[tuple[str, Any, Any, Any, dict[str, Any]], ...] = (
    ("max-size-bytes", 100_000.0, 46_872.0, "passed", {}),
    (
        *("max-accuracy-drop", 0.01, 0.0306, "failed"),
        {"reference": "baseline", "interval": (0.0241, 0.0371), "samples": 10_000, **_LOSS},
    ),
    (
        *("max-accuracy-drop", 0.01, None, "missing"),
        {"reference": "lock", "reason": "the test data changed since the lock"},
    ),
    (
        *("max-class-drop", 0.05, 0.0522, "inconclusive"),
        {"reference": "baseline", "subject": "seven", "interval": (0.0301, 0.0744), **_LOSS}
        | {"confidence": 0.995, "samples": 1028, "samples_needed": 2420},
    ),
    (
        *("max-latency-ratio", 1.0, 1.08, "failed"),
        {"severity": "warn", "interval": (1.02, 1.13), "confidence": 0.95, "method": "rounds"},
    ),
    ("oldest-runtime", "2.14.0", "2.17.0", "failed", {}),
    (
        *("allowed-operators", ("CONV_2D", "FULLY_CONNECTED")),
        *(("CONV_2D", "EXP", "FULLY_CONNECTED"), "failed", {}),
    ),
    ("min-output-snr-db", 20.0, 27.31, "passed", {}),
)


def finding(
    model: str, limit: str, allowed: Any, actual: Any, outcome: Any, **fields: Any
) -> Finding:
    return Finding(
        model=model, limit=limit, allowed=allowed, actual=actual, outcome=outcome, **fields
    )


def failing() -> Check:
    found = (finding("mnist-int8", *row, **fields) for *row, fields in _FINDINGS)
    trained = (0.9902, 0.9898, 0.0004, False)
    lost = (0.9896, 0.9592, 0.0304, True)
    return Check(
        name="mnist",
        verdict=Verdict(findings=tuple(found)),
        stages=(
            stage("checkpoint", "mnist.keras", *trained, changed=True),
            stage("trained", "mnist", *trained, changed=True, own_drop=0.0),
            stage("float32", "mnist-float32", *trained, own_drop=0.0),
            stage("quantized", "mnist-int8", *lost, changed=True, own_drop=0.0306),
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
    values = {"model": "mnist-int8", "kind": "class", "reference": "baseline", "name": name}
    values |= {"samples": samples, "before": before, "after": after, "drop": drop}
    values["interval"] = (round(drop - 0.018, 4), round(drop + 0.019, 4))
    return ClassDrop(**{**values, **fields})


def passing() -> Check:
    model = "keywords-int8"
    measured = {"severity": "warn", "reference": "baseline", "interval": (-0.011, 0.019), **_LOSS}
    few = {"samples": 300, "samples_needed": 1240, **measured}
    return Check(
        name="keywords",
        verdict=Verdict(
            findings=(
                finding(model, "max-size-ratio", 0.3, 0.258, "passed"),
                finding(model, "max-accuracy-drop", 0.01, 0.004, "inconclusive", **few),
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
    held = finding("m", "max-size-bytes", 10.0, 9.0, "passed")
    check = Check(name="m", verdict=Verdict(findings=(held,)), is_locked=True)
    return Checked(config="edgeconv.toml", checks=(check,))


def named(name: str) -> Checked:
    """Every text that may come from outside is `name`."""
    drop = {"subject": name, "reference": "lock", "interval": (0.0, 1.0), "confidence": 0.95}
    drop |= {"method": name, "samples": 3, "samples_needed": 9, "reason": name}
    findings = (
        finding(name, "max-class-drop", 0.01, 0.5, "inconclusive", **drop),
        finding(name, "allowed-operators", (name,), (name, name), "failed"),
        finding(name, "oldest-runtime", name, name, "missing"),
        finding(name, name, 1.0, 2.0, "failed", severity="warn"),
    )
    check = Check(
        name=name,
        verdict=Verdict(findings=findings),
        stages=(StageState(stage="quantized", model=name, changed=None, metric=name, after=0.5),),
        changes=(name,),
        classes=(class_drop(name, 3, 1.0, 0.5, model=name),),
        summary=name,
        notes=(name,),
    )
    return Checked(config=name, checks=(check,))
