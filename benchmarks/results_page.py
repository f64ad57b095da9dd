"""Write docs/results.md, and the table of the README, from benchmarks/results/*.json.

    python -m benchmarks.results_page

Every number of the two is computed here. Run it after a benchmark; a test holds that both are
current.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import results_accuracy as accuracy
from benchmarks import results_costs as costs
from benchmarks.results_tables import percent, table

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
START, END = "<!-- results -->", "<!-- /results -->"

_HEAD = """# Results

Every figure on this page is read from `benchmarks/results/*.json` by
`python -m benchmarks.results_page`. The JSON files have every single measurement and the
confidence intervals. The machines were shared and had other work: compare ratios, not seconds.
Unless a section says otherwise, it was made with {common}.
"""
# A function is called like the benchmark that it describes.
_SECTIONS = (
    ("Conversion", (), costs.convert),
    ("Accuracy after quantization", ("DATA",), accuracy.quality),
    ("Quantization-aware training", ("DATA",), accuracy.qat),
    ("Tuning", ("DATA",), accuracy.tune),
    ("What the methods cost", (), accuracy.methods),
    ("What the defaults cost", (), costs.defaults_cost),
    ("Latency", (), costs.latency),
    ("Evaluation", (), costs.evaluate),
    ("The gate", (), costs.gate),
    ("Incremental builds", (), costs.build),
    ("Sweeps", ("DATA",), costs.sweep),
    ("The scheduler of sweeps", ("MODEL.tflite",), costs.scheduling),
    ("Distributed training", ("mnist.npz",), accuracy.train),
    ("The scan", (), costs.scan),
    ("The sandbox", (), costs.sandbox),
)


def main() -> None:
    PAGE.write_text(results_page(), encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")


def results_page() -> str:
    """The text of docs/results.md."""
    machines = [_machine(recorded(section.__name__)) for _, _, section in _SECTIONS]
    common = dict(set(machines[0].items()).intersection(*(each.items() for each in machines)))
    named = [text for what, text in machines[0].items() if what in common]
    parts = [_HEAD.format(common=", ".join(named))]
    for title, arguments, section in _SECTIONS:
        result = recorded(section.__name__)
        command = " ".join((f"python -m benchmarks.{section.__name__}", *arguments))
        parts.append(f"## {title}\n\n{_origin(command, result, common)}\n")
        parts.append("\n".join(section(result)) + "\n")
    return "\n".join(parts)


def with_table(readme: str) -> str:
    """The README with its comparison table written anew."""
    before, _, rest = readme.partition(START)
    after = rest.partition(END)[2]
    table = "\n".join(comparison())
    return f"{before}{START}\n{table}\n{END}{after}"


def recorded(name: str) -> Any:
    """The result of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def comparison() -> Iterator[str]:
    """The comparison with peers, at most eight rows; where edgeconv is not better, it says so."""
    convert, quality, build = recorded("convert"), recorded("quality"), recorded("build")
    chosen, plain, five, *_ = convert["contenders"].values()
    ms = convert["calibration_ms_per_sample"]
    int8 = quality["summary"]["int8"]
    losses, agreement = int8["mean_losses"], int8["mean_agreement"]
    compared = int8["with_better_peer"].values()
    refused = sum("failed" in each for each in compared)
    lower = [each["difference"] for each in compared if each.get("difference", 0) < 0]
    four_bit = quality["summary"]["int4"]["weight-only-int4"]
    evaluate = recorded("evaluate")
    script = build["contenders"]["TFLiteConverter script, int8"]["median_wall_s"]
    alone = evaluate["float32_alone"]["times_faster_than_a_loop"]["median"]
    yield from table(
        ("", "edgeconv", "peer"),
        [
            (
                "MobileNetV2 to all formats",
                f"{plain['median_wall_s']:.1f} s for six, each verified; "
                f"{chosen['median_wall_s']:.1f} s with the default, which chooses methods",
                f"TFLiteConverter: {five['median_wall_s']:.1f} s for five",
            ),
            (
                "Calibration, per sample",
                f"{ms['edgeconv']:.1f} ms",
                f"TFLiteConverter: {ms['tflite']:.1f} ms",
            ),
            (
                f"Mean accuracy lost to int8, {int8['models_with_all']} models",
                f"{100 * losses['int8, default']:+.2f} points",
                f"TFLiteConverter {100 * losses['int8 of TFLiteConverter']:+.2f}, "
                f"litert-quantizer {100 * losses['int8 of litert-quantizer']:+.2f}",
            ),
            (
                f"Accuracy of int8, each of {len(compared)} models",
                f"{len(compared) - len(lower) - refused} at least as good as the better peer; "
                f"{len(lower)} worse, by at most {100 * -min(lower, default=0):.1f} points"
                + (f"; {refused} refused" if refused else ""),
                "the better of the two",
            ),
            (
                "Samples whose class int8 changes",
                percent(1 - agreement["int8, default"]),
                f"TFLiteConverter {percent(1 - agreement['int8 of TFLiteConverter'])}, "
                f"litert-quantizer {percent(1 - agreement['int8 of litert-quantizer'])}",
            ),
            (
                "4-bit weights, where plain rounding loses accuracy",
                f"{100 * four_bit['mean_recovered']:.0f} % of the loss recovered on "
                f"{four_bit['models_that_lose']} models",
                "rounding to nearest: 0 %",
            ),
            (
                "A build in which nothing changed",
                f"{build['unchanged_build_s']:.2f} s",
                f"a TFLiteConverter script: {script:.1f} s",
            ),
            (
                "Evaluating one float32 model on 2 cores",
                f"{alone:.2f} × as fast; our target of 1.8 × is not met",
                "a plain Python loop",
            ),
        ],
    )


def _machine(result: Mapping[str, Any]) -> dict[str, str]:
    """What a benchmark ran on and with, as texts."""
    return {
        "cpu": result["cpu"],
        "cores": f"{result['cores']} cores",
        "python": f"Python {result['python']}",
        **{name: f"{name} {version}" for name, version in result["tools"].items()},
    }


def _origin(command: str, result: Mapping[str, Any], common: Mapping[str, str]) -> str:
    """How a section was made, without what all sections have in common."""
    own = [text for what, text in _machine(result).items() if common.get(what) != text]
    return ", ".join((f"`{command}`", result["date"], *own)) + "."


if __name__ == "__main__":
    main()
