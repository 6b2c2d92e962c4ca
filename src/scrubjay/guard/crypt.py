"""The codec every large value passes. Plain for now; sealed values get another first byte."""

from __future__ import annotations

from scrubjay.errors import StoreDamaged
from scrubjay.model import PartitionKey

_PLAIN = b"\x00"


class PlainCodec:
    """Marks values as plain and leaves them readable.

    >>> key = PartitionKey("default", "user:ada")
    >>> codec = PlainCodec()
    >>> codec.open(codec.seal(b"tea", key, "content"), key, "content")
    b'tea'
    """

    def seal(self, data: bytes, partition: PartitionKey, purpose: str) -> bytes:
        """See `ports.Codec.seal`."""
        del partition, purpose
        return _PLAIN + data

    def open(self, blob: bytes, partition: PartitionKey, purpose: str) -> bytes:
        """See `ports.Codec.open`."""
        del partition
        if blob[:1] != _PLAIN:
            raise StoreDamaged(f"a stored {purpose} has a form this Scrubjay cannot read")
        return blob[1:]
