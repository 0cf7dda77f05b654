"""Results of expensive steps, kept by the content they came from."""

from hexport.storage.keys import file_digest, key_of
from hexport.storage.store import Store

__all__ = ["Store", "file_digest", "key_of"]
