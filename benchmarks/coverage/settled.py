"""Random weights made to behave like trained ones, and models saved; imports no library itself.

`library` is everywhere tf_keras or keras. A fresh network gives every input nearly the same
output, and then no comparison of outputs says anything. So the statistics of its batch norms
are taken from the samples, and its last layer is set so that the classes vary over them.

A fresh batch norm before a ReLU is also unlike a trained one: it cuts off half of what comes
in, and a chain of them makes any error grow by about a half in each layer, rounding included
(Yang et al. 2019, "A Mean Field Theory of Batch Normalization"). So their offsets are raised.
"""

from pathlib import Path
from typing import Any

import numpy as np

_PASSES = 12
_BATCH = 12
_LOGIT_SPREAD = 1.5
_DIRECTIONS = 6


def settle(library: Any, model: Any, inputs: np.ndarray) -> Any:
    """`model` with batch norm statistics of `inputs` and a head that tells them apart."""
    _settle_norms(model, inputs)
    return spread_head(library, model, inputs)


def _settle_norms(model: Any, inputs: np.ndarray) -> None:
    norms = [layer for layer in flat(model) if type(layer).__name__ == "BatchNormalization"]
    momenta = [norm.momentum for norm in norms]
    rng = np.random.default_rng(8)
    for norm in norms:
        norm.momentum = 0.5
        _open_up(norm, rng)
    for _ in range(_PASSES if norms else 0):
        model(inputs[rng.permutation(len(inputs))[:_BATCH]], training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _open_up(norm: Any, rng: np.random.Generator) -> None:
    """Raise the offset, and lower the scale, of a batch norm that has them."""
    if norm.center:
        norm.beta.assign(rng.uniform(0.6, 1.4, norm.beta.shape).astype(np.float32))
    if norm.scale:
        norm.gamma.assign(rng.uniform(0.4, 0.8, norm.gamma.shape).astype(np.float32))


def spread_head(library: Any, model: Any, inputs: np.ndarray) -> Any:
    """`model` with its last dense (or 1×1) layer set to give logits of a like spread."""
    head = next(layer for layer in reversed(model.layers) if hasattr(layer, "kernel"))
    before = library.Model(model.inputs, head.input).predict(inputs, batch_size=_BATCH, verbose=0)
    features = before.reshape(-1, before.shape[-1])
    shape = tuple(head.kernel.shape)
    mean = features.mean(axis=0)
    if int(np.prod(shape[:-1])) != len(mean):
        return model
    # Along the directions in which the samples differ most, as a trained layer would look.
    main = np.linalg.svd(features - mean, full_matrices=False)[2][:_DIRECTIONS].T
    mixing = np.random.default_rng(9).standard_normal((main.shape[1], shape[-1]))
    kernel = main @ mixing
    kernel *= _LOGIT_SPREAD / ((features - mean) @ kernel).std(axis=0)
    values = [kernel.reshape(shape).astype(np.float32)]
    if head.use_bias:
        values.append(-(mean @ kernel).astype(np.float32))
    head.set_weights(values)
    return model


def flat(model: Any) -> list[Any]:
    """Every layer, those of models inside it as well."""
    inner = [(layer, getattr(layer, "layers", None)) for layer in model.layers]
    return [one for layer, parts in inner for one in (flat(layer) if parts else [layer])]


def save(library: Any, model: Any, directory: Path, kind: str) -> Path:
    """The model's path in `directory`, written as `kind`: saved_model, keras or h5."""
    path = directory / ("model" if kind == "saved_model" else f"model.{kind}")
    if kind != "saved_model":
        model.save(path)
    elif library.__name__ == "keras":
        model.export(str(path), verbose=False)
    else:
        model.save(str(path), save_format="tf")
    return path


def library_of(name: str) -> Any:
    """tf_keras or keras, its random numbers fixed."""
    if name == "keras":
        import keras as library
    else:
        import tf_keras as library
    library.utils.set_random_seed(7)
    return library
