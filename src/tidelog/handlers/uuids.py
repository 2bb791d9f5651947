"""Topic ids: 16 bytes inside, a UUID in kio's messages, where None is the zero UUID."""

from __future__ import annotations

from uuid import UUID

ZERO = bytes(16)


def to_uuid(raw: bytes | None) -> UUID | None:
    return UUID(bytes=raw) if raw and raw != ZERO else None


def to_bytes(uuid: UUID | None) -> bytes | None:
    return uuid.bytes if uuid is not None and uuid.bytes != ZERO else None
