"""What each profile may do, as data; docs/security.md describes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

Profile = Literal["confined", "gpu", "training", "cluster", "code", "browser", "programs", "jobs"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may touch: files and directories, with all that is below these.

    A child may always read the interpreter with its libraries, and read and write its scratch
    directory. What is in `writes` may be read too, and a missing directory there is created. `runs`
    are the programs that it may continue as.
    """

    profile: Profile = "confined"
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()

    def reading(self, *paths: Path | str) -> Access:
        """The same with more to read."""
        return msgspec.structs.replace(self, reads=(*self.reads, *map(Path, paths)))


# The variables that every child gets, by the beginning of their names: of Python, the loader,
# numerical libraries and edgeconv.
_COMPUTING = (
    *("PATH", "LANG", "LC_", "TZ", "USER", "LOGNAME", "PYTHON", "VIRTUAL_ENV", "EDGECONV_"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_"),
    *("TF_", "TFLITE_", "LITERT_", "KERAS_", "XLA_", "AUTOGRAPH_", "PROTOCOL_BUFFERS_"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "NUMEXPR_"),
    *("CUDA_", "CUDNN_", "NVIDIA_", "ROCM_", "HIP_", "HSA_", "VK_", "TPU_", "LIBTPU_"),
    *("SOURCE_DATE_EPOCH", "COVERAGE_"),
)
# What processes of a cluster need in addition, and access to TensorFlow's remote storage.
_TALKING = (
    *("GRPC_", "grpc_", "NO_PROXY", "no_proxy", "no_grpc_proxy", "NCCL_", "GLOO_", "UCX_"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG", "GCE_METADATA_"),
    *("GCS_", "CLOUD_TPU_", "COLAB_TPU_ADDR"),
)
# The settings of ssh, adb, npm, pip, uv and viewers of models.
_PROGRAMS = (
    *("HOME", "SHELL", "TERM", "TMPDIR", "XDG_", "SSH_", "KRB5", "GNUPGHOME", "ANDROID_", "ADB_"),
    *("PIP_", "UV_", "NPM_CONFIG_", "npm_config_", "NODE_", "SSL_CERT_", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"),
    *("all_proxy", "NO_PROXY", "no_proxy", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"),
)
# Never passed, however they begin.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|_KEY(_|$)", re.IGNORECASE)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile may do in addition to computing.

    `confined`: by Landlock or bubblewrap, and a filter of system calls; otherwise only by its
    environment and limits. `network`: "internet" is TCP and UDP, "any" includes sockets within the
    machine. `processes`: it may start others, and programs. `devices`: GPUs and TPUs. `home`: HOME
    is the user's, not its scratch directory. `reads_all`: it reads all that the user may.
    `variables`: names of the environment, or how they begin; "" is all.
    """

    confined: bool = True
    network: Literal["none", "internet", "any"] = "none"
    processes: bool = False
    devices: bool = False
    home: bool = False
    reads_all: bool = False
    variables: tuple[str, ...] = _COMPUTING

    def passes(self, name: str) -> bool:
        """Whether the child gets this variable of the environment."""
        if "" in self.variables:
            return True
        is_named = name.startswith(self.variables)
        return is_named and (name in self.variables or not _SECRET.search(name))


PROFILES: dict[Profile, Rules] = {
    # Converts, quantizes and runs models, and reads data.
    "confined": Rules(),
    # Runs models on a GPU of this machine.
    "gpu": Rules(devices=True),
    # One process that trains on this machine.
    "training": Rules(devices=True, home=True),
    # One of several that train, or one that writes to remote storage.
    "cluster": Rules(
        devices=True, home=True, network="internet", variables=(*_COMPUTING, *_TALKING)
    ),
    # A function or a model module that the user allowed by name.
    "code": Rules(
        network="any", processes=True, devices=True, home=True, reads_all=True, variables=("",)
    ),
    # A browser that runs a model, and its server. It has no own sandbox as root.
    "browser": Rules(network="any", processes=True, variables=(*_COMPUTING, *_PROGRAMS)),
    # ssh, adb, npm, pip and uv, which read no model here, and the viewer that a user starts.
    "programs": Rules(confined=False, variables=(*_COMPUTING, *_PROGRAMS)),
    # edgeconv itself, which runs verbs; what these start is confined.
    "jobs": Rules(confined=False, variables=("",)),
}
