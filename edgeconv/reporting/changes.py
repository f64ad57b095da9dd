"""The page of `compare`: what differs between two models or reports."""

from collections.abc import Iterator, Sequence

from edgeconv.reporting import units
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.pages import Block, Page, dim
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Column, table
from edgeconv.reporting.units import interval_value
from edgeconv.types import (
    Difference,
    FlipCount,
    ModelDifference,
    NumberChange,
    OperatorChange,
    TensorChange,
    TensorSpec,
)

_MOST_SHOWN = 12
# From the manifests: each file against its own reference.
_AT_CONVERSION = {"max_error": "largest error at conversion", "snr_db": "SNR at conversion"}
_MOST_EXAMPLES = 8


def difference_page(difference: Difference, *, everything: bool = False) -> Page:
    """Model by model: numbers, operators, tensors and flips that changed, and what was refused.

    The first tensors and flips are shown; all of them with `everything`.
    """
    most = None if everything else _MOST_SHOWN
    page: list[Block] = [
        dim(f"before: {units.plain(difference.before)}"),
        dim(f"after:  {units.plain(difference.after)}"),
    ]
    for model in difference.models:
        page += ["", *_model_blocks(model, most)]
    for label, names in (
        ("only before", difference.only_before),
        ("only after", difference.only_after),
    ):
        if names:
            page += ["", f"{label}: {', '.join(map(units.plain, names))}"]
    if difference.refused:
        page += ["", Text("not compared", style="bold yellow")]
        page += [f"  {units.plain(reason)}" for reason in difference.refused]
    return page


def _model_blocks(model: ModelDifference, most: int | None) -> Iterator[Block]:
    name = units.plain(model.after)
    if model.before != model.after:
        name = f"{units.plain(model.before)} → {name}"
    yield Text(name, style="bold")
    if model.same_file:
        yield dim("  the same file")
    if not (model.numbers or model.operators or model.tensors or model.flips):
        yield dim("  nothing changed")
    if model.numbers:
        yield table(_NUMBERS, model.numbers)
    if model.operators:
        yield ""
        yield table(_OPERATORS, model.operators)
    if model.tensors:
        yield ""
        yield Text(_counted(model.tensors), style="bold")
        yield from _shortened([_tensor_line(each) for each in model.tensors], most)
    if model.fixed is not None and model.broken is not None and (model.fixed or model.broken):
        yield ""
        yield f"{model.fixed} became right, {model.broken} became wrong"
    yield from _shortened([_flip_line(flip) for flip in model.flips], most)


def _shortened(lines: Sequence[str], most: int | None) -> Iterator[str | Text]:
    yield from (f"  {line}" for line in lines[:most])
    if most is not None and len(lines) > most:
        yield dim(f"  and {len(lines) - most} more: --all shows them")


def _label(quantity: str) -> str:
    if quantity == "weight_bytes":
        return "weights as stored"
    kind, _, name = quantity.partition(":")
    if name:
        of = f"{_AT_CONVERSION[kind]} of " if kind in _AT_CONVERSION else ""
        return f"{of}{units.plain(name)}"
    for unit in ("_bytes", "_us"):
        kind = kind.removesuffix(unit)
    return kind.replace("_", " ")


def _written(quantity: str, value: float | None) -> str:
    kind = quantity.partition(":")[0]
    if value is None:
        return units.ABSENT
    if kind.endswith("_bytes"):
        return units.size(value, 4)
    if kind.endswith("_us"):
        return units.duration(value)
    if kind.endswith("_db"):
        return units.decibels(value)
    if _is_share(quantity):
        return units.percent(value)
    return units.significant(value, 4)


def _change(change: NumberChange) -> str:
    """By how much: in points for a share, in decibels for a ratio, else in percent."""
    before, after = change.before, change.after
    if before is None or after is None:
        return ""
    if _is_share(change.quantity):
        interval = f" {interval_value(change.interval, '')}" if change.interval else ""
        return f"{_signed(units.points(after - before))}{interval}{_equal(change)}"
    if change.quantity.startswith("snr_db"):
        return f"{_signed(f'{after - before:.1f}'.replace('-', '−'))} dB"
    if before <= 0:
        return ""
    share = _signed(units.percent(after / before - 1))
    if change.interval is None:
        return share
    low, high = (units.percent(end / before).removesuffix(" %") for end in change.interval)
    return f"{share} [{low}, {high}]{_equal(change)}"


def _is_share(quantity: str) -> bool:
    return quantity.endswith("_share") or quantity in ("metric:top1", "metric:top5")


def _equal(change: NumberChange) -> str:
    """A remark where zero is in the interval of a change."""
    if change.interval is None or not change.interval[0] <= 0 <= change.interval[1]:
        return ""
    return ": within noise" if change.quantity.startswith("latency") else ": within chance"


def _signed(text: str) -> str:
    return text if text.startswith(("−", "<", "NaN")) else f"+{text}"


def _counted(tensors: Sequence[TensorChange]) -> str:
    added = sum(each.before is None for each in tensors)
    removed = sum(each.after is None for each in tensors)
    changed = len(tensors) - added - removed
    counts = ((changed, "changed"), (added, "added"), (removed, "removed"))
    return "tensors: " + ", ".join(f"{n} {word}" for n, word in counts if n)


def _tensor_line(change: TensorChange) -> str:
    known = change.after or change.before
    assert known is not None
    side = "" if change.role == "inside" else f"{change.role} "
    name = f"{side}{layer_name(known.name)}"
    if change.before is None:
        return f"+ {name}: {_spec(known)}"
    if change.after is None:
        return f"− {name}: {_spec(known)}"
    return f"{name}: {', '.join(_changes(change.before, change.after))}"


def _changes(before: TensorSpec, after: TensorSpec) -> Iterator[str]:
    if before.dtype != after.dtype:
        yield f"{before.dtype} → {after.dtype}"
    if before.shape != after.shape:
        yield f"shape {_shape(before)} → {_shape(after)}"
    if before.scale != after.scale:
        yield f"scale {_few(before.scale)} → {_few(after.scale)}"
    if before.zero_point != after.zero_point:
        yield f"zero point {_few(before.zero_point)} → {_few(after.zero_point)}"
    if before.name != after.name:
        yield f"named {units.plain(before.name)} in the first"


def _spec(spec: TensorSpec) -> str:
    scale = f", scale {_few(spec.scale)}" if spec.scale else ""
    return f"{units.plain(spec.dtype)} {_shape(spec)}{scale}"


def _shape(spec: TensorSpec) -> str:
    return f"({', '.join('?' if length < 0 else str(length) for length in spec.shape)})"


def _few(values: Sequence[float]) -> str:
    if not values:
        return "none"
    low, high = f"{min(values):.6g}", f"{max(values):.6g}"
    span = low if low == high else f"{low} to {high}"
    return span if len(values) == 1 else f"{span} in {len(values)} channels"


def _flip_line(flip: FlipCount) -> str:
    of = "" if flip.label is None else f" of class {flip.label}"
    examples = ", ".join(map(str, flip.samples[:_MOST_EXAMPLES]))
    more = " …" if len(flip.samples) > _MOST_EXAMPLES else ""
    count = units.counted(len(flip.samples), "sample")
    return f"{count}{of} from class {flip.before} to {flip.after}: {examples}{more}"


_NUMBERS: tuple[Column[NumberChange], ...] = (
    Column("", lambda change: _label(change.quantity), is_text=True, wraps=True),
    Column("before", lambda change: _written(change.quantity, change.before)),
    Column("after", lambda change: _written(change.quantity, change.after)),
    Column("change", _change),
)
_OPERATORS: tuple[Column[OperatorChange], ...] = (
    Column("operator", lambda each: units.plain(each.operator), is_text=True, wraps=True),
    Column("version", lambda each: str(each.version)),
    Column("before", lambda each: str(each.before)),
    Column("after", lambda each: str(each.after)),
)
