"""Content hashes, atomic publishing, the stage cache, locks."""

from edgeconv.system.store.cache import (
    Cache as Cache,
    cache_directory as cache_directory,
    keep_log as keep_log,
)
from edgeconv.system.store.files import (
    also_reading as also_reading,
    decode_checked as decode_checked,
    is_device as is_device,
    publish_all as publish_all,
    publish_bytes as publish_bytes,
    publish_new as publish_new,
    read_checked as read_checked,
    read_noun as read_noun,
    reading as reading,
    refuse_inputs as refuse_inputs,
    refuse_pointer as refuse_pointer,
    refuse_pointers_in as refuse_pointers_in,
    sha256_file as sha256_file,
    sha256_tree as sha256_tree,
    writable_directory as writable_directory,
)
from edgeconv.system.store.hashes import (
    hash_of as hash_of,
    html_checksum as html_checksum,
    html_with_checksum as html_with_checksum,
    json_with_checksum as json_with_checksum,
)
from edgeconv.system.store.locks import locked as locked, owned as owned
from edgeconv.system.store.seals import (
    publish_sealed as publish_sealed,
    read_sealed as read_sealed,
    seal as seal,
    seal_directory as seal_directory,
    sealed_directory as sealed_directory,
)
from edgeconv.system.store.tools import (
    quantizer_module as quantizer_module,
    code_hash as code_hash,
    tool_versions as tool_versions,
    version_changes as version_changes,
)
from edgeconv.system.store.unfinished import (
    remove_directory as remove_directory,
    scratch_directory as scratch_directory,
    sweep_unfinished as sweep_unfinished,
)
