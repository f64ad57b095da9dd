"""Every metric against another way to compute it, and what it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t
from sklearn.metrics import f1_score, roc_auc_score
from wording import fails

from edgeconv import plugins
from edgeconv.measure.bench import drop_of
from edgeconv.measure.metrics.agreement import overlap
from edgeconv.measure.metrics.scores import Scored
from edgeconv.measure.metrics.scoring import accuracy_of, metrics_of
from edgeconv.requests.texts import parse_metric
from edgeconv.statistics.comparison import paired_mean_difference
from edgeconv.types import Accuracy
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

RNG = np.random.default_rng(11)


def value_of(name: str, scores: Any, labels: Any) -> float:
    return accuracy_of(name, plugins.metric(name).score(scores, labels)).value


def some_scores(count: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, some of them equal, and labels that they are somewhat right about."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, count - classes)])
    logits = np.round(rng.normal(size=(count, classes)) + 1.5 * np.eye(classes)[labels], 1)
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return scores.astype(np.float32), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_auc_and_f1_are_those_of_scikit_learn(classes, seed):
    scores, labels = some_scores(60, classes, seed)
    if classes == 2:
        expected = roc_auc_score(labels, scores[:, 1])
        assert value_of("auc", scores[:, 1:], labels) == pytest.approx(expected, rel=1e-6)
    else:
        exact = scores.astype(np.float64) / scores.astype(np.float64).sum(axis=1, keepdims=True)
        expected = roc_auc_score(labels, exact, multi_class="ovr")
    assert value_of("auc", scores, labels) == pytest.approx(expected, rel=2e-3)
    said = scores.argmax(axis=1)
    assert value_of("f1", scores, labels) == pytest.approx(f1_score(labels, said, average="macro"))


def test_auc_of_logits_is_that_of_their_probabilities():
    logits = RNG.normal(size=(40, 3))
    labels = np.concatenate([np.arange(3), RNG.integers(0, 3, 37)])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert value_of("auc", logits, labels) == pytest.approx(value_of("auc", probabilities, labels))


def test_the_influence_of_each_sample_on_auc_is_what_leaving_it_out_changes():
    scores, labels = some_scores(400, 2, 0)
    scored = plugins.metric("auc").score(scores, labels)
    whole = scored.values.mean()
    for index in (0, 1, 5, 100):
        rest = np.arange(400) != index
        without = plugins.metric("auc").score(scores[rest], labels[rest]).values.mean()
        assert (scored.values[index] - whole) / 400 == pytest.approx(whole - without, abs=2e-5)


def test_the_interval_of_an_auc_drop_is_about_that_of_a_bootstrap():
    scores, labels = some_scores(300, 2, 1)
    worse = scores + RNG.normal(scale=0.25, size=scores.shape)
    before, after = (
        accuracy_of("auc", plugins.metric("auc").score(s, labels)) for s in (scores, worse)
    )
    drop, interval = drop_of(before, after)
    rng = np.random.default_rng(3)
    drops = []
    for _ in range(400):
        rows = rng.integers(0, 300, 300)
        one, other = (value_of("auc", s[rows], labels[rows]) for s in (scores, worse))
        drops.append(one - other)
    low, high = np.percentile(drops, [2.5, 97.5])
    assert drop == pytest.approx(before.value - after.value)
    assert interval[0] == pytest.approx(low, abs=0.01)
    assert interval[1] == pytest.approx(high, abs=0.01)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6))
def test_top5_is_whether_a_stable_sort_has_the_label_among_the_first_five(seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 4, (20, 9)).astype(np.float32), rng.integers(0, 9, 20)
    scored = plugins.metric("top5").score(scores, labels)
    first = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(scored.values, (first == labels[:, None]).any(axis=1))


@pytest.mark.parametrize(
    ("scores", "right"),
    [
        ([[0.2], [0.7], [0.5], [0.9]], "1110"),
        ([[-2.0], [3.0], [-0.1], [0.4]], "1110"),
        ([0.2, 0.7, 0.5, 0.9], "1110"),
    ],
)
def test_a_lone_score_is_that_of_class_1(scores, right):
    scored = plugins.metric("top1").score(np.array(scores, np.float32), np.array([0, 1, 0, 0]))
    assert "".join("01"[int(v)] for v in scored.values) == right


def test_errors_of_numbers_are_means_over_each_sample():
    output = RNG.normal(size=(6, 2, 3)).astype(np.float32)
    labels = RNG.normal(size=(6, 2, 3))
    difference = output.astype(np.float64) - labels
    assert value_of("mae", output, labels) == pytest.approx(np.abs(difference).mean())
    assert value_of("mse", output, labels) == pytest.approx((difference**2).mean())
    assert value_of("mae", output[:, :1, 0], labels[:, 0, 0]) == pytest.approx(
        np.abs(difference[:, 0, 0]).mean()
    )


def tokens() -> tuple[np.ndarray, np.ndarray]:
    """Logits (5, 4, 7), and labels with an unequal number of positions that count."""
    labels = RNG.integers(0, 7, (5, 4))
    labels[RNG.random((5, 4)) < 0.4] = -1
    labels[0, 0] = 3
    return RNG.normal(size=(5, 4, 7)), labels


def test_perplexity_and_masked_accuracy_are_over_all_positions_that_count():
    logits, labels = tokens()
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    kept = labels >= 0
    own = probabilities[kept, labels[kept]]
    expected = np.exp(-np.log(own).mean())
    assert value_of("perplexity", logits, labels) == pytest.approx(expected)
    assert value_of("perplexity", probabilities, labels) == pytest.approx(expected)
    right = (logits.argmax(axis=-1) == labels)[kept].mean()
    assert value_of("masked_accuracy", logits, labels) == pytest.approx(right)


def boxes_of(*rows: tuple[float, float, float, float, int, float]) -> dict[str, np.ndarray]:
    """A detector's outputs for one sample: corners, class and score; the rest are zeros."""
    whole = np.zeros((1, 4, 6), np.float32)
    whole[0, : len(rows)] = np.reshape(rows, (-1, 6))
    return {"boxes": whole[..., :4], "classes": whole[..., 4], "scores": whole[..., 5]}


CAT, DOG = (0.1, 0.1, 0.5, 0.5, 1, 0.9), (0.6, 0.6, 0.9, 0.9, 2, 0.8)


@pytest.mark.parametrize(
    ("given_boxes", "agreement"),
    [
        ((CAT, DOG), 1.0),
        ((DOG, CAT), 1.0),
        ((CAT,), 2 / 3),
        ((), 0.0),
        (((0.1, 0.1, 0.5, 0.45, 1, 0.95), DOG), 1.0),
        (((0.3, 0.3, 0.7, 0.7, 1, 0.9), DOG), 0.5),
        (((0.1, 0.1, 0.5, 0.5, 2, 0.9), DOG), 0.5),
        ((CAT, CAT, DOG), 0.8),
        ((CAT, (0.6, 0.6, 0.9, 0.9, 2, 0.3)), 2 / 3),
    ],
)
def test_detections_agree_by_class_and_overlap(given_boxes, agreement):
    metric = plugins.metric("detection_agreement")
    scored = metric.score(boxes_of(*given_boxes), boxes_of(CAT, DOG))
    assert scored.values.tolist() == [pytest.approx(agreement)]


def test_detectors_that_find_nothing_agree_and_other_outputs_are_refused():
    metric = plugins.metric("detection_agreement")
    faint = boxes_of((*CAT[:5], 0.4))
    assert metric.score(faint, faint).values.tolist() == [1.0]
    with fails(InputRefused):
        metric.score({"y": np.zeros((2, 3))}, {"y": np.zeros((2, 3))})


def test_overlap_is_intersection_over_union():
    a = np.array([[0.0, 0.0, 2.0, 2.0]])
    b = np.array([[1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 0.0, 0.0], [5.0, 5.0, 6.0, 6.0], [1, 1, 1, 1]])
    np.testing.assert_allclose(overlap(a, b), [[1 / 7, 1.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("name", "scores", "labels"),
    [
        ("top1", np.zeros((3, 4)), np.zeros(2, int)),
        ("top1", np.zeros((2, 4)), np.array([0.5, 1.0])),
        ("top1", np.zeros((2, 4)), np.array([0, -1])),
        ("top1", np.zeros((2, 1)), np.array([0, 2])),
        ("top5", np.zeros((2, 5)), np.array([0, 1])),
        ("auc", np.zeros((2, 2)), np.array([1, 1])),
        ("mae", np.zeros((2, 3)), np.zeros((2, 2))),
        ("mse", np.zeros((2, 3)), np.zeros((3, 3))),
        ("perplexity", np.zeros((2, 3, 5)), np.zeros((2, 4), int)),
        ("perplexity", np.zeros((2, 3, 5)), np.full((2, 3), 5)),
        ("masked_accuracy", np.zeros((2, 3, 5)), np.full((2, 3), -1)),
    ],
)
def test_labels_that_do_not_fit_the_outputs_are_refused(name, scores, labels):
    with fails(InputRefused):
        plugins.metric(name).score(scores, labels)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_names_the_metric_and_the_sample(bad):
    output = np.zeros((4, 2))
    output[2, 1] = bad
    with fails(ToolFailed):
        value_of("mse", output, np.zeros((4, 2)))


def test_an_unknown_metric_gets_a_suggestion_and_code_needs_leave():
    with fails(UsageError):
        parse_metric("topp1")
    names = [parse_metric(text) for text in ("accuracy", "top1")]
    assert list(metrics_of(names, allow_code=False)) == ["top1"]
    with fails(UsageError):
        parse_metric("module:")
    with fails(UsageError):
        metrics_of([parse_metric("module:function")], allow_code=False)


@pytest.mark.parametrize("name", sorted(plugins.METRICS))
def test_every_metric_is_there(name):
    score: Callable[..., Scored] = plugins.metric(name).score
    assert score.__doc__


def per_sample(values: Any, *, higher_is_better: bool = True) -> Accuracy:
    return accuracy_of("m", Scored(np.asarray(values, float)), higher_is_better=higher_is_better)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=3, max_size=30))
def test_the_interval_of_a_mean_difference_is_students(pairs):
    a, b = (np.array([p[i] for p in pairs]) for i in (0, 1))
    mean, low, high = paired_mean_difference(a.tolist(), b.tolist())
    error = (a - b).std(ddof=1) / np.sqrt(len(a))
    half = t.ppf(0.975, len(a) - 1) * error
    assert (mean, high - mean, mean - low) == pytest.approx(((a - b).mean(), half, half), abs=1e-9)
    assert paired_mean_difference(b.tolist(), a.tolist()) == pytest.approx((-mean, -high, -low))


def test_a_drop_is_how_much_worse_it_is_whichever_way_is_better():
    drop, interval = drop_of(per_sample([3.0, 5.0]), per_sample([2.0, 5.0]))
    assert (drop, interval[0] < drop < interval[1]) == (0.5, True)
    worse = drop_of(
        per_sample([2.0, 5.0], higher_is_better=False),
        per_sample([3.0, 5.0], higher_is_better=False),
    )
    assert worse == (drop, interval)
    assert drop_of(per_sample([3.0]), per_sample([2.0])) == (1.0, None)
