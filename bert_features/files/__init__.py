"""Files: addresses of object stores, files that appear whole or not at all, the cache, locks."""

from bert_features.files.addresses import (
    connect,
    is_there,
    is_url,
    local_path,
    path_as_given,
    remote_errors,
)
from bert_features.files.cache import CACHE_VARIABLE, IN_CACHE, cache_dir, from_cache
from bert_features.files.locks import locked
from bert_features.files.reporting import Reporting, storage_errors
from bert_features.files.staging import (
    Staging,
    find_leftovers,
    is_writing,
    remove_leftovers,
    replacing,
    write_whole,
)
from bert_features.files.store import Location, Store, locate, name_of, open_store
from bert_features.files.targets import (
    STDOUT,
    Role,
    check_apart,
    check_folder,
    check_target,
    is_inside,
    real_target,
)

__all__ = [
    "CACHE_VARIABLE",
    "IN_CACHE",
    "STDOUT",
    "Location",
    "Reporting",
    "Role",
    "Staging",
    "Store",
    "cache_dir",
    "check_apart",
    "check_folder",
    "check_target",
    "connect",
    "find_leftovers",
    "from_cache",
    "is_inside",
    "is_there",
    "is_url",
    "is_writing",
    "local_path",
    "locate",
    "locked",
    "name_of",
    "open_store",
    "path_as_given",
    "real_target",
    "remote_errors",
    "remove_leftovers",
    "replacing",
    "storage_errors",
    "write_whole",
]
