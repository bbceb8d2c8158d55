"""Signs ledger entries with the option `ledgerKey`, so that nobody else's entry is taken for one of this sink. Pure.

The signature covers every field and the transactional.id: an entry cannot be moved to another id, nor changed. It is an
HMAC with SHA-256 (RFC 2104).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

MAC = "mac"


class Signer:
    """Signs with the first of `keys` and accepts all of them, so that a key can be replaced; without keys, does
    nothing.
    """

    def __init__(self, transactional_id: str = "", keys: Sequence[str] = ()) -> None:
        self._id, self._keys = transactional_id, tuple(keys)

    def of(self, transactional_id: str) -> Signer:
        """The signer of another transactional.id, with the same keys."""
        return Signer(transactional_id, self._keys)

    def signed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`fields` with their signature, if there is a key."""
        return {**fields, MAC: self._mac(self._keys[0], fields)} if self._keys else dict(fields)

    def accepts(self, fields: Mapping[str, Any]) -> bool:
        """Whether these fields, with their signature, were signed with one of the keys; true without keys."""
        mac = fields.get(MAC)
        if not self._keys:
            return True
        if not isinstance(mac, str) or not mac.isascii():  # compare_digest takes no others
            return False
        return any(hmac.compare_digest(mac, self._mac(key, fields)) for key in self._keys)

    def _mac(self, key: str, fields: Mapping[str, Any]) -> str:
        signed = {name: value for name, value in fields.items() if name != MAC}
        canonical = json.dumps([self._id, signed], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hmac.new(key.encode(), canonical.encode(), hashlib.sha256).hexdigest()


UNSIGNED = Signer()
