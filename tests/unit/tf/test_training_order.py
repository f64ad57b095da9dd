"""What a training does before and beside TensorFlow: the order of samples, and its options."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from wording import fails

from edgeconv.tf.training.feeding import Order, in_order
from edgeconv.training.baseline import refuse_options
from edgeconv.types import Distribution, Epoch, Training, TrainingRecord
from edgeconv.types.errors import UsageError

counts = st.integers(1, 60)
batches = st.integers(1, 20)
seeds = st.integers(0, 2**32 - 1)
epochs = st.integers(0, 5)


# One pass an epoch


@given(counts, batches, seeds, epochs)
def test_a_pass_has_every_sample_exactly_once(count, batch, seed, epoch):
    indices, weights = Order(count, batch, seed).epoch(epoch)
    assert indices.shape == weights.shape == (-(-count // batch), batch)
    assert set(weights.ravel().tolist()) <= {0.0, 1.0}
    assert sorted(indices[weights == 1].tolist()) == list(range(count))


@given(counts, batches, seeds, epochs)
def test_what_fills_up_the_last_batch_weighs_nothing_and_is_of_that_batch(
    count, batch, seed, epoch
):
    indices, weights = Order(count, batch, seed).epoch(epoch)
    assert (weights[:-1] == 1).all()
    last, counted = indices[-1], weights[-1] == 1
    assert counted[: counted.sum()].all(), "the filling comes last"
    assert set(last[~counted].tolist()) <= set(last[counted].tolist())


@given(counts, batches, seeds, epochs, st.data())
def test_taken_up_at_any_step_an_epoch_goes_on_with_the_same_rest(count, batch, seed, epoch, data):
    order = Order(count, batch, seed)
    first = data.draw(st.integers(0, order.steps - 1))
    whole, rest = order.epoch(epoch), order.epoch(epoch, first)
    np.testing.assert_array_equal(rest[0], whole[0][first:])
    np.testing.assert_array_equal(rest[1], whole[1][first:])


@given(counts, batches, st.data())
def test_the_samples_of_some_steps_are_those_that_count(count, batch, data):
    order = Order(count, batch, 0)
    last = data.draw(st.integers(1, order.steps))
    first = data.draw(st.integers(0, last - 1))
    _, weights = order.epoch(0)
    assert order.samples(first, last) == weights[first:last].sum()
    assert order.samples(0, order.steps) == count


def test_each_epoch_and_each_seed_has_an_order_of_its_own():
    first, second = (Order(50, 10, 1).epoch(number)[0] for number in (0, 1))
    other = Order(50, 10, 2).epoch(0)[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, Order(50, 10, 1).epoch(0)[0])


# Epochs of so many steps: an endless chain of passes


def chain(order, number_of_epochs):
    return np.concatenate([order.epoch(number)[0].ravel() for number in range(number_of_epochs)])


@given(counts, batches, seeds, st.integers(1, 9))
def test_a_chain_goes_through_all_samples_before_it_comes_to_one_again(count, batch, seed, steps):
    order = Order(count, batch, seed, steps)
    assert order.steps == steps
    samples = chain(order, 4)
    assert len(samples) == 4 * steps * batch
    for start in range(0, len(samples), count):
        one_pass = samples[start : start + count].tolist()
        assert len(set(one_pass)) == len(one_pass)
        assert set(one_pass) <= set(range(count))


@given(counts, batches, seeds, epochs, st.integers(1, 9), st.data())
def test_a_chain_is_taken_up_at_any_step_and_every_sample_counts(
    count, batch, seed, epoch, steps, data
):
    order = Order(count, batch, seed, steps)
    first = data.draw(st.integers(0, steps - 1))
    whole, rest = order.epoch(epoch), order.epoch(epoch, first)
    np.testing.assert_array_equal(rest[0], whole[0][first:])
    assert (rest[1] == 1).all()
    assert rest[1].shape == rest[0].shape
    assert order.samples(first, steps) == rest[1].sum()


def test_in_steps_of_whole_passes_a_chain_is_the_passes_themselves():
    np.testing.assert_array_equal(chain(Order(12, 4, 7, 3), 3), chain(Order(12, 4, 7), 3))


# For evaluation


@given(counts, batches)
def test_in_order_has_all_samples_once_in_their_own_order(count, batch):
    indices, weights = in_order(count, batch)
    assert indices.shape == weights.shape == (-(-count // batch), batch)
    assert indices[weights == 1].tolist() == list(range(count))
    assert weights.sum() == count
    assert indices.max() < count


# Options


def are_refused(distribution=None, **options):
    training = Training(
        module="digits_cnn", distribution=Distribution(**distribution or {}), **options
    )
    with fails(UsageError):
        refuse_options(training)


def test_patience_needs_samples_to_validate_with():
    are_refused(patience=2)


LOCAL, CLUSTERS = ("none", "mirrored", "central-storage"), ("multiworker", "parameter-server")


@pytest.mark.parametrize(
    ("values", "strategies"),
    [
        ({"device_count": 2}, (*CLUSTERS, "tpu")),
        ({"devices": ("CPU:0",)}, (*CLUSTERS, "tpu")),
        ({"cross_device_ops": "nccl"}, ("none", "central-storage", *CLUSTERS, "tpu")),
        ({"communication": "ring"}, (*LOCAL, "parameter-server", "tpu")),
        ({"tpu": "mine"}, (*LOCAL, *CLUSTERS)),
        ({"workers": 2}, (*LOCAL, "tpu")),
        ({"workers": 2, "servers": 1}, ("multiworker",)),
        ({"servers": 1}, (*LOCAL, "tpu")),
    ],
)
def test_an_option_that_a_strategy_does_not_look_at_is_refused(values, strategies):
    for strategy in strategies:
        are_refused({"strategy": strategy, **values})


@pytest.mark.parametrize(
    "distribution",
    [
        {"strategy": "none", "device_count": 2},
        {"strategy": "none", "devices": ("CPU:0", "CPU:1")},
        {"strategy": "parameter-server", "servers": 2},
    ],
)
def test_a_distribution_that_cannot_be_is_refused(distribution):
    are_refused(distribution)


def test_keras_fit_cannot_pause_within_an_epoch_under_a_coordinator():
    coordinated = {"strategy": "parameter-server", "workers": 2}
    are_refused(coordinated, checkpoint_steps=5)
    training = Training(module="m", checkpoint_steps=5, distribution=Distribution(**coordinated))
    refuse_options(replace(training, loop="custom"))


def test_a_module_without_a_name_is_refused():
    for module in ("", ".py", "a/.py", ".."):
        with fails(UsageError):
            refuse_options(Training(module=module))


@pytest.mark.parametrize("strategy", [*LOCAL, *CLUSTERS, "tpu"])
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_every_strategy_and_loop_goes_with_plain_options(strategy, loop):
    refuse_options(
        Training(
            module="digits_cnn",
            loop=loop,
            epochs=1,
            learning_rate=0.1,
            validation_fraction=0.1,
            patience=1,
            seed=2**32 - 1,
            distribution=Distribution(strategy=strategy),
        )
    )


# Names and figures


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("digits_cnn", "digits_cnn"),
        ("my_models.tiny", "tiny"),
        ("tiny.py", "tiny"),
        ("../models/tiny.py", "tiny"),
        ("C:\\models\\tiny.py", "tiny"),
        ("a.b/tiny.py", "tiny"),
        ("tiny.v2.py", "tiny.v2"),
    ],
)
def test_a_model_goes_by_the_last_part_of_its_module(module, name):
    assert Training(module=module).name == name


def test_the_throughput_is_over_all_epochs_and_0_where_no_time_was_measured():
    epochs = (
        Epoch(metrics={"loss": 1.0}, samples=100, seconds=2.0),
        Epoch(metrics={"loss": 0.5}, samples=100, seconds=3.0),
    )
    record = TrainingRecord(
        model="m",
        strategy="none",
        loop="fit",
        replicas=1,
        global_batch=10,
        steps_per_epoch=10,
        learning_rate=0.1,
        seed=0,
        epochs=epochs,
        train_samples=100,
        seconds=5.0,
        wall_seconds=9.0,
    )
    assert [epoch.samples_per_second for epoch in epochs] == [50.0, 100 / 3]
    assert record.samples_per_second == 40.0
    assert replace(record, seconds=0.0).samples_per_second == 0.0
    assert replace(epochs[0], seconds=0.0).samples_per_second == 0.0
