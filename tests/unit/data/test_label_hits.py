"""Labels say whether other samples are right."""

import numpy as np

from edgeconv.data.suspects import are_hit, classes_of, more_right

LABELS = np.arange(60) % 5
RIGHT = {"p": np.eye(5, dtype=np.float32)[LABELS]}
ONE = {"p": np.eye(5, dtype=np.float32)[LABELS * 0]}
HALF = {"p": np.eye(5, dtype=np.float32)[np.where(np.arange(60) < 20, LABELS, 0)]}


def test_the_samples_that_hit_most_labels_are_named():
    better, hits = more_right(LABELS, ONE, [("same", ONE), ("half", HALF), ("right", RIGHT)])
    assert better == "right"
    assert (hits.own, hits.other, hits.count) == (12, 60, 60)


def test_nothing_is_tried_where_most_labels_are_hit_or_there_are_none():
    def never() -> object:
        raise AssertionError("asked for")
        yield

    assert more_right(LABELS, RIGHT, never()) == ("", None)
    assert more_right(None, ONE, never()) == ("", None)
    assert are_hit(LABELS, RIGHT)
    assert not are_hit(LABELS, ONE)


def test_what_chance_explains_is_not_better():
    random = np.random.default_rng(1)
    others = [
        (str(i), {"p": np.eye(5, dtype=np.float32)[random.integers(0, 5, 60)]}) for i in range(12)
    ]
    assert more_right(LABELS, ONE, others) == ("", None)


def test_labels_by_output_are_held_against_the_answers_of_their_own():
    labels = np.zeros(60, [("q", np.int64), ("box", np.float64, (2,))])
    labels["q"] = LABELS
    both = {"p": ONE["p"], "q": RIGHT["p"], "box": np.zeros((60, 2))}
    assert are_hit(labels, both)
    assert not are_hit(labels, both | {"q": ONE["p"]})
    assert are_hit(LABELS, {"q": RIGHT["p"]})
    assert classes_of(labels, "p") is None
    assert classes_of(labels, "box") is None
    assert classes_of(labels, "q").tolist() == LABELS.tolist()
