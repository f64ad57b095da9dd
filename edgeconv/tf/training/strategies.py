"""TensorFlow's distribution strategies, as a `Distribution` describes them."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from edgeconv.tf.environment import use_cpu_only
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.reasons import reason
from edgeconv.types import LOCAL_STRATEGIES, Distribution
from edgeconv.types.errors import ClusterLost, InputRefused, UsageError

_SYNCHRONOUS_DEVICES = 2


def begin(distribution: Distribution, seed: int) -> Any:
    """The strategy, with all random numbers seeded; the first use of TensorFlow in a process.

    Raises as `open_strategy`.
    """
    if distribution.devices and all(name.startswith("CPU:") for name in distribution.devices):
        use_cpu_only()
    from edgeconv.system.processes.sandbox.pools import make_pools_of_threads

    # TensorFlow's collectives make one for each value that they add up outside of a graph.
    make_pools_of_threads()
    # TensorFlow warns about things done on purpose, such as calling the model on the coordinator.
    tf.get_logger().setLevel("ERROR")
    strategy = open_strategy(distribution)
    tf_keras.utils.set_random_seed(seed)
    if distribution.strategy != "parameter-server":
        # Without this the order of additions, and with it the weights, differ from run to run.
        tf.config.experimental.enable_op_determinism()
    return strategy


def open_strategy(distribution: Distribution) -> Any:
    """The strategy, with its devices set up. Call it before TensorFlow does anything.

    TF_CONFIG describes a cluster. Raises `UsageError` for devices or options that do not exist,
    `InputRefused` if there is no TPU, and `ClusterLost` if the cluster does not start.
    """
    devices = _devices(distribution)
    try:
        return _create(distribution, devices)
    except tf.errors.OpError as error:
        raise ClusterLost(
            f"the strategy {distribution.strategy} did not start: {reason(error)}",
            hint="check that no other process uses this member's port, and that all members "
            "have the same TF_CONFIG cluster",
        ) from error


def is_lost_member(error: Any) -> bool:
    """Whether an error of TensorFlow means that another member of the cluster is gone."""
    gone = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
    return isinstance(error, gone) or "ollective ops is aborted" in str(error)


@contextlib.contextmanager
def raising_lost_members() -> Iterator[None]:
    """A context that raises `ClusterLost` for TensorFlow's errors about a lost member."""
    try:
        yield
    except tf.errors.OpError as error:
        if not is_lost_member(error):
            raise
        raise ClusterLost(
            f"another member of the cluster is lost: {reason(error)}",
            hint="see why it ended, then run this again, which resumes from the last checkpoint",
        ) from error


def _create(distribution: Distribution, devices: Sequence[str]) -> Any:
    name, own = distribution.strategy, list(devices)
    if name == "none":
        return tf.distribute.OneDeviceStrategy(own[0]) if own else tf.distribute.get_strategy()
    if name == "mirrored":
        operations = {
            "auto": lambda: None,
            "nccl": tf.distribute.NcclAllReduce,
            "hierarchical-copy": tf.distribute.HierarchicalCopyAllReduce,
            "reduction-to-one": tf.distribute.ReductionToOneDevice,
        }
        chosen = operations[distribution.cross_device_ops]()
        return tf.distribute.MirroredStrategy(own, cross_device_ops=chosen)
    if name == "central-storage":
        # With one device it would keep the variables there, with several on the CPU.
        return tf.distribute.experimental.CentralStorageStrategy(own, "CPU:0")
    if name == "multiworker":
        experimental, communication = tf.distribute.experimental, distribution.communication
        how = experimental.CommunicationImplementation[communication.upper()]
        options = experimental.CommunicationOptions(implementation=how)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if name == "parameter-server":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)
    return _tpu(distribution)


def _tpu(distribution: Distribution) -> Any:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(distribution.tpu)
        _reach(resolver.master(), distribution.connect_timeout_s)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError, RuntimeError, OSError) as error:
        where = f"no TPU at {distribution.tpu!r}" if distribution.tpu else "no TPU here"
        raise InputRefused(
            f"--strategy tpu: {where}: {reason(error)}",
            hint="run it on a machine with a TPU and a TensorFlow for it, name one with --tpu, or "
            "choose another strategy",
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _reach(address: str, timeout_s: float) -> None:
    """Raise `OSError` if nothing answers; TensorFlow would wait for it without end."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()


def _devices(distribution: Distribution) -> tuple[str, ...]:
    """The devices to use, created and limited as configured; () leaves them to the strategy."""
    gpus = tf.config.list_physical_devices("GPU")
    _set_up_gpus(distribution, gpus)
    if distribution.strategy not in LOCAL_STRATEGIES:
        _refuse_nccl(
            "--communication", distribution.communication, ["GPU:0"] if gpus else ["CPU:0"]
        )
        return ()
    names = distribution.devices or _default_devices(distribution, len(gpus))
    _refuse_devices(names, len(gpus))
    _refuse_nccl("--cross-device-ops", distribution.cross_device_ops, names)
    highest = max((int(n.partition(":")[2]) for n in names if n.startswith("CPU:")), default=0)
    # There is one CPU device unless logical ones are created.
    if highest:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(highest + 1)]
        )
    return names


def _default_devices(distribution: Distribution, gpus: int) -> tuple[str, ...]:
    if distribution.strategy == "none" and not distribution.device_count:
        return ()
    count = distribution.device_count or gpus or _SYNCHRONOUS_DEVICES
    return tuple(f"{'GPU' if gpus else 'CPU'}:{index}" for index in range(count))


def _refuse_devices(names: Sequence[str], gpus: int) -> None:
    for name in names:
        kind, colon, number = name.partition(":")
        if kind not in ("CPU", "GPU") or not colon or not number.isdecimal():
            raise UsageError(f"no device {name!r}", hint="give --devices CPU:0,CPU:1 or GPU:0")
        if kind == "GPU" and int(number) >= gpus:
            there = f"{gpus} of them" if gpus else "none"
            raise UsageError(
                f"no device {name}: TensorFlow sees {there} here",
                hint="--devices 2 creates two logical CPU devices where there is no GPU",
            )
    if len(set(names)) < len(names):
        raise UsageError(f"--devices {','.join(names)} names a device twice")


def _refuse_nccl(option: str, chosen: str, devices: Sequence[str]) -> None:
    if chosen == "nccl" and not all(name.startswith("GPU:") for name in devices):
        raise UsageError(
            f"{option} nccl is for GPUs, and this trains on {', '.join(devices)}",
            hint=f"remove {option}",
        )


def _set_up_gpus(distribution: Distribution, gpus: Sequence[Any]) -> None:
    limit = distribution.gpu_memory_limit_mib
    if not gpus and (limit or distribution.gpu_memory_growth):
        option = "--gpu-memory-limit-mib" if limit else "--gpu-memory-growth"
        raise UsageError(f"{option}: TensorFlow sees no GPU here", hint=f"remove {option}")
    for gpu in gpus:
        if limit:
            configuration = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
            tf.config.set_logical_device_configuration(gpu, [configuration])
        elif distribution.gpu_memory_growth:
            tf.config.experimental.set_memory_growth(gpu, True)
