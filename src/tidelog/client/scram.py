"""SASL's SCRAM (RFC 5802, RFC 7677) as Kafka uses it: no channel binding, names and passwords as UTF-8.

| step | we say                              | the broker says                     |
|------|-------------------------------------|-------------------------------------|
| 1    | `n,,n=user,r=nonce`                 | `r=nonce and more,s=salt,i=rounds`  |
| 2    | `c=biws,r=nonce and more,p=proof`   | `v=signature`, or `e=reason`        |

**Invariant:** a broker that does not know the password is not trusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from tidelog.base.limits import SCRAM_ROUNDS_MAX, SCRAM_ROUNDS_MIN
from tidelog.client.errors import AuthenticationFailed


class Scram:
    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature = b""

    def first_message(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final_message(self, challenge: bytes) -> bytes:
        """The proof of the password; keeps the signature that the broker must answer with."""
        fields = _read_fields(challenge)
        nonce, rounds = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("SCRAM: the broker's nonce does not begin with ours")
        if not rounds.isdecimal() or not SCRAM_ROUNDS_MIN <= int(rounds) <= SCRAM_ROUNDS_MAX:
            raise AuthenticationFailed(
                f"SCRAM: {rounds!r} iterations are not in {SCRAM_ROUNDS_MIN}–{SCRAM_ROUNDS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash_name, self._password, _decode64(fields.get("s", "")), int(rounds)
        )
        without_proof = f"c=biws,r={nonce}"
        signed = b",".join([self._first_bare.encode(), challenge, without_proof.encode()])
        client_key = self._sign(salted, b"Client Key")
        client_signature = self._sign(hashlib.new(self._hash_name, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._signature = self._sign(self._sign(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check_last(self, message: bytes) -> None:
        fields = _read_fields(message)
        if "e" in fields:
            raise AuthenticationFailed(f"SCRAM: the broker says {fields['e']}")
        if not hmac.compare_digest(_decode64(fields.get("v", "")), self._signature):
            raise AuthenticationFailed(
                "SCRAM: the broker's signature is wrong: it does not know the password"
            )

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def _read_fields(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise AuthenticationFailed("SCRAM: the broker's message is not UTF-8") from None
    return {name: value for name, _, value in parts}


def _decode64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed(f"SCRAM: {text!r} is not base64") from None
