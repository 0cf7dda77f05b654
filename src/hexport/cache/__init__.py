"""Results of expensive steps, kept by the content they came from."""

from hexport.cache.keys import file_digest, key_of
from hexport.cache.store import Store

__all__ = ["Store", "file_digest", "key_of"]
