"""What a conversion would make, under which keys, and what exists already.

A key is the hash of everything that decides the bytes and the checks: the source's
content, the signatures, the recipe, the data, and the versions of the tools. Nothing
here loads numpy or TensorFlow, so an unchanged conversion answers at once.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from edgeconv import data, source
from edgeconv.conversion.options import refuse_inside, refuse_options
from edgeconv.requests.convert import ConvertRequest
from edgeconv.store import hash_of, tool_versions
from edgeconv.types import (
    CalibrationRange,
    Recipe,
    RecipeName,
    SourceModel,
)

# Raised where the same sources come to give other files, or other names in them.
REVISION = 7


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion, with everything named that it depends on.

    `model` is identified, not loaded: its signatures are found by `signatures.resolve`.
    `calibration_identity` is the hash of each SOURCE's content, by signature key, and
    `training_identity` that of the one to train on.
    """

    model: SourceModel
    directory: Path
    recipes: tuple[Recipe, ...]
    request: ConvertRequest
    calibration_identity: dict[str, str]
    training_identity: str = ""

    @property
    def float_key(self) -> str:
        """The key of the float32 graph, before anything that the ladder does to it."""
        request = self.request
        return hash_of(
            "float",
            REVISION,
            self.model.sha256,
            request.signature,
            request.batch,
            request.shapes,
            request.select_ops,
            source.opening_key(self.model),
            tool_versions(),
        )

    @property
    def data_key(self) -> str:
        """The key of the samples that calibrate, of those that are held back, and their check."""
        request = self.request
        return hash_of(
            self.calibration_identity,
            request.samples,
            request.preprocess.by_input,
            request.allow_suspect_calibration,
        )

    @property
    def calibration_range(self) -> CalibrationRange:
        """How the ranges are found, in the one calibration of all recipes."""
        return next((r.calibration_range for r in self.recipes if r.has_ranges), "minmax")

    def key(self, recipe: Recipe) -> str:
        """The key of one artifact."""
        trained_on = (self.training_identity,) if recipe.qat else ()
        return hash_of(
            self.float_key, recipe, self.data_key, self.request.target_runtime, trained_on
        )

    def target(self, recipe: RecipeName) -> Path:
        """Where the .tflite of a recipe goes; its manifest has the same name with .json."""
        return self.directory / f"{self.model.name}.{recipe}.tflite"


def make_plan(request: ConvertRequest) -> Plan:
    """The plan, once the model and the data are known to be there.

    A function that the data names runs within the allowance.

    Raises `InputRefused` for a model or data that cannot be taken, `UsageError` for
    options that do not go together.
    """
    recipes, execution = request.recipes, request.execution
    identified = source.identify(request.model, request.opening, allow_code=execution.allow_code)
    refuse_options(recipes, request)
    target = Path(request.directory or f"{identified.name}.tflites").absolute()
    refuse_inside(target, Path(identified.path))
    identity = functools.partial(
        data.identity, allow_code=execution.allow_code, allowance=execution.allowance
    )
    return Plan(
        model=identified,
        directory=target,
        recipes=recipes,
        request=request,
        calibration_identity={key: identity(each) for key, each in request.sources.items()},
        training_identity=identity(request.training) if request.training else "",
    )
