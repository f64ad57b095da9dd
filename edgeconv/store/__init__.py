"""Content hashes, atomic publishing, the stage cache, locks."""

from edgeconv.store.cache import Cache, cache_directory, keep_log
from edgeconv.store.checksums import (
    html_checksum,
    html_with_checksum,
    json_checksum,
    json_with_checksum,
)
from edgeconv.store.files import (
    decode_checked,
    is_device,
    publish_all,
    publish_bytes,
    publish_new,
    read_checked,
    read_noun,
    writable_directory,
)
from edgeconv.store.hashes import hash_of, sha256_file, sha256_tree, tool_versions
from edgeconv.store.locks import locked, owned
from edgeconv.store.pointers import refuse_pointer, refuse_pointers_in
from edgeconv.store.scratch import scratch_directory
from edgeconv.store.seals import (
    is_sealed,
    publish_sealed,
    read_sealed,
    seal,
    seal_directory,
    sealed_directory,
)
from edgeconv.store.unfinished import remove_directory, sweep_unfinished

__all__ = [
    "Cache",
    "cache_directory",
    "decode_checked",
    "hash_of",
    "html_checksum",
    "html_with_checksum",
    "is_device",
    "is_sealed",
    "json_checksum",
    "json_with_checksum",
    "keep_log",
    "locked",
    "owned",
    "publish_all",
    "publish_bytes",
    "publish_new",
    "publish_sealed",
    "read_checked",
    "read_noun",
    "read_sealed",
    "refuse_pointer",
    "refuse_pointers_in",
    "remove_directory",
    "scratch_directory",
    "seal",
    "seal_directory",
    "sealed_directory",
    "sha256_file",
    "sha256_tree",
    "sweep_unfinished",
    "tool_versions",
    "writable_directory",
]
