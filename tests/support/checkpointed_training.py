"""Trainings that are killed at their calls that write: checkpointed_training.py PLACE STEP.

TensorFlow is loaded once; each training is a fork of this process. What an undisturbed one gives is
compared with what is given by the one that goes on after a kill, for every STEP-th call from the
end. The answer is JSON on the last line: all calls, those where one was killed, what was wrong.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import tensorflow as tf
import tf_keras
from fault_injection import Fault, be_traced, follow
from training_modules import written

from edgeconv.tf.training.checkpoints import forget_checkpoints
from edgeconv.tf.training.epochs import TrainingContext, run_epochs
from edgeconv.tf.training.modules import load_module, read_data, spec_of
from edgeconv.tf.training.spec import Schedule

MOST = 200


def train(module: str, checkpoints: Path, result: Path) -> None:
    """Two epochs of seven steps with a checkpoint every three, and the best weights kept."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf_keras.utils.set_random_seed(1)
    loaded = load_module(module)
    problem = spec_of(
        loaded,
        "small",
        read_data(loaded, "small", None),
        learning_rate=0.01,
        validation_fraction=0.2,
        seed=1,
    )
    schedule = Schedule(epochs=2, global_batch=16, seed=1, checkpoint_steps=3)
    place = TrainingContext(
        strategy=tf.distribute.get_strategy(),
        loop="custom",
        coordinates=False,
        is_chief=True,
        checkpoints=str(checkpoints),
        tensorboard=None,
    )
    trained = run_epochs(problem, schedule, place)
    digest = hashlib.sha256(b"".join(w.numpy().tobytes() for w in trained.model.weights))
    epochs = [(epoch.metrics, epoch.validation) for epoch in trained.progress.epochs]
    forget_checkpoints(str(checkpoints))
    result.write_text(json.dumps([digest.hexdigest(), epochs, trained.progress.best_epoch]))


def forked(module: str, root: Path, fault: Fault) -> int:
    """Train in a fork; its exit code. What it gives is in `result.json`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return follow(pid, fault, threads=True)
    code = 1
    with contextlib.suppress(Exception):
        log = os.open(root / "log.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        be_traced()
        os.kill(os.getpid(), signal.SIGSTOP)
        train(module, root / "checkpoints", root / "result.json")
        code = 0
    os._exit(code)


def main(place: str, step: str) -> None:
    root = Path(place)
    module = written(root, "small")
    checkpoints, result = root / "checkpoints", root / "result.json"
    undisturbed = Fault([checkpoints])
    if forked(module, root, undisturbed):
        raise SystemExit((root / "log.txt").read_text())
    wanted, killed, wrong = result.read_text(), [], []
    for number in range(min(len(undisturbed.calls), MOST), 0, -int(step)):
        result.unlink()
        fault = Fault([checkpoints], at=number)
        code = forked(module, root, fault)
        if code != -signal.SIGKILL:
            wrong.append((number, "was not killed", code))
        else:
            killed.append(fault.calls[-1])
        again = forked(module, root, Fault([]))
        if again or result.read_text() != wanted:
            wrong.append((number, fault.calls[-1], (root / "log.txt").read_text()[-2000:]))
            result.write_text(wanted)
        if checkpoints.exists():
            wrong.append((number, "left", [p.name for p in checkpoints.iterdir()]))
            shutil.rmtree(checkpoints)
    print(json.dumps({"calls": undisturbed.calls, "killed": killed, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
