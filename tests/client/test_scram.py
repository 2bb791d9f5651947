"""SCRAM against the vectors of the RFCs, and against brokers that lie."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from tidelog.client.errors import AuthenticationFailed
from tidelog.client.scram import Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(password: str = "pencil") -> Scram:
    return Scram("sha256", "user", password, NONCE)


def test_the_exchange_of_rfc_7677_is_spoken_to_the_byte() -> None:
    client = scram()
    assert client.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    without_proof = b"c=biws," + CHALLENGE.split(b",")[0] + b","
    assert client.final_message(CHALLENGE) == without_proof + PROOF
    client.check_last(SIGNATURE)


def test_the_exchange_of_rfc_5802_is_spoken_to_the_byte() -> None:
    client = Scram("sha1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    assert client.final_message(challenge).endswith(b"p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
    client.check_last(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_sha_512_is_the_same_with_longer_sums() -> None:
    client = Scram("sha512", "user", "pencil", NONCE)
    final = client.final_message(CHALLENGE)
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4_096)
    key = hmac.digest(salted, b"Server Key", "sha512")
    signed = b"n=user,r=" + NONCE.encode() + b"," + CHALLENGE + b"," + final.rpartition(b",p=")[0]
    client.check_last(b"v=" + base64.b64encode(hmac.digest(key, signed, "sha512")))
    assert len(base64.b64decode(final.rpartition(b"p=")[2])) == 64


def test_a_name_with_commas_and_equal_signs_is_escaped() -> None:
    assert Scram("sha256", "a,b=c", "p", "N").first_message() == b"n,,n=a=2Cb=3Dc,r=N"


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (CHALLENGE.replace(b"rOpr", b"XOpr"), "nonce"),
        (CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), "nonce"),
        (CHALLENGE.replace(b"4096", b"4095"), "4095"),
        (CHALLENGE.replace(b"4096", b"99999999999"), "99999999999"),
        (CHALLENGE.replace(b"4096", b"-5000"), "-5000"),
        (CHALLENGE.replace(b"W22Z", b"W2!Z"), "base64"),
        (b"", "nonce"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_is_refused(challenge: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        scram().final_message(challenge)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (SIGNATURE.replace(b"6rri", b"7rri"), "does not know the password"),
        (b"v=", "does not know the password"),
        (b"", "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"v=not base64", "base64"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(last: bytes, reason: str) -> None:
    client = scram()
    client.final_message(CHALLENGE)
    with pytest.raises(AuthenticationFailed, match=reason):
        client.check_last(last)


def test_another_password_gives_another_proof_and_refuses_the_same_signature() -> None:
    client = scram("pencils")
    assert PROOF not in client.final_message(CHALLENGE)
    with pytest.raises(AuthenticationFailed):
        client.check_last(SIGNATURE)
