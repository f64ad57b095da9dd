"""The page of other kernels, from rows written by hand, and cells from measurements."""

from __future__ import annotations

import pytest
from kernel_page import render
from kernel_rows import KernelCell, KernelRow, kernel_cell, read_rows, write_row

from edgeconv.types import Acceleration, Agreement, Measurement


def agreement(flips: int | None, snr_db: float, reference: str = "baseline") -> Agreement:
    return Agreement(
        output="y",
        snr_db=snr_db,
        reference=reference,
        samples=50,
        flips=flips,
        cosine=1.0,
        max_error=0.0,
    )


def measured(where: str, **more: object) -> Measurement:
    return Measurement(
        name="int8",
        role="artifact",
        runtime=where,
        sha256="",
        size_bytes=1,
        recipe="int8",
        measured_in=where,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("error", "kernels", "agreements", "state"),
    [
        ("Node GELU failed to prepare", (), (), "refused"),
        ("running it was ended by SIGABRT", (), (), "crashed"),
        ("", (agreement(1, 30.0),), (agreement(1, 29.0),), "full"),
        ("", (agreement(20, 8.0),), (agreement(20, 27.0),), "wrong"),
        ("", (agreement(0, 5.0),), (), "wrong"),
        ("", (agreement(0, 25.0),), (), "full"),
        ("", (agreement(None, 5.0),), (agreement(None, 5.0),), "wrong"),
        ("", (agreement(None, 35.0),), (agreement(None, 29.0),), "full"),
    ],
)
def test_a_microcontroller_s_cell_is_by_the_same_file_on_the_processor(
    error: str,
    kernels: tuple[Agreement, ...],
    agreements: tuple[Agreement, ...],
    state: str,
) -> None:
    there = measured("tflite-micro", error=error, kernels=kernels, agreement=agreements)
    here = measured(
        "litert",
        agreement=(agreement(0 if kernels and kernels[0].flips is not None else None, 30.0),),
    )
    cell = kernel_cell(there, here)
    assert (cell.state, cell.kernels, cell.recipe) == (state, "tflite-micro", "int8")
    assert bool(cell.reason) == (state != "full")


def test_a_gpu_s_cell_is_what_its_delegate_did() -> None:
    outcome = Acceleration(state="partial", device="d", on_cpu=("CONV_3D", "ABS"), reason="")
    cell = kernel_cell(measured("gpu", acceleration=outcome), None)
    assert (cell.state, cell.reason) == ("partial", "on the processor: CONV_3D; ABS")


def test_the_page_has_the_counts_what_was_published_and_what_was_not_run(tmp_path) -> None:
    cells = (
        KernelCell(recipe="float32", kernels="gpu", state="full"),
        KernelCell(recipe="int8", kernels="gpu", state="wrong", reason="the delegate did it"),
        KernelCell(recipe="int8", kernels="tflite-micro", state="refused", reason="no GELU"),
    )
    rows = [
        KernelRow(
            architecture="net",
            source="keras",
            cells=cells,
            published=("float32", "int8"),
            wrongly_published=("int8",),
        ),
        KernelRow(architecture="gone", source="keras", failed="no module", is_crash=True),
    ]
    for row in rows:
        write_row(tmp_path, row)
    page = render(read_rows(tmp_path, ["net", "gone", "later"]), ["net", "gone", "later"])
    assert "| gpu | int8 | 0 | 0 | 1 | 0 | 0 |" in page
    assert "| tflite-micro | int8 | 0 | 0 | 0 | 1 | 0 |" in page
    assert "- edgeconv crashed on 1 of 2 architectures: gone." in page
    assert "published 2 files, 1 of them wrong" in page
    assert "net: int8." in page
    assert "| gone | no module |" in page
    assert "## Not run\n\n- later" in page
    assert "| net | keras | full | – | – | – | **wrong**<sup>1</sup> | – | float32, int8 |" in page
