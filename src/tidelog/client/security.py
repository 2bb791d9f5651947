"""Kafka's `security.protocol`, `ssl.*` and `sasl.*` as a TLS context and the messages of a SASL exchange.

Certificates and keys are PEM, in files (`ssl.truststore.location`, `ssl.keystore.location`) or in the
properties themselves (`ssl.truststore.certificates`, `ssl.keystore.key`, `ssl.keystore.certificate.chain`).
Java's own formats are refused with the command that converts them. SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.

**Invariant:** a password is never part of a message.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Generator

from tidelog.client.errors import BadProperty
from tidelog.client.properties import Properties
from tidelog.client.scram import Scram

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_PEM_MARK = b"-----BEGIN "
_CONVERT = {
    "ssl.truststore.location": "keytool -list -rfc -keystore {path} > truststore.pem",
    "ssl.keystore.location": (
        "keytool -importkeystore -srckeystore {path} -destkeystore key.p12 -deststoretype PKCS12 && "
        "openssl pkcs12 -in key.p12 -out keystore.pem"
    ),
}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_NONCE_SIZE = 24

# Yields messages to send, receives the answers, ends when the broker has accepted the client.
SaslMessages = Generator[bytes, bytes, None]


class Security:
    """The security properties of a client, checked when constructed."""

    def __init__(self, properties: Properties) -> None:
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise BadProperty(f"security.protocol={protocol}: expected one of {', '.join(PROTOCOLS)}")
        self.protocol = protocol
        self.tls = make_tls_context(properties) if protocol.endswith("SSL") else None
        self.mechanism = ""
        if protocol.startswith("SASL_"):
            self.mechanism = _read_mechanism(properties)
            self._username, self._password = _read_credentials(properties)

    def sasl_messages(self) -> SaslMessages:
        """One exchange with a broker, in the configured mechanism."""
        if self.mechanism == "PLAIN":
            yield b"\0".join((b"", self._username.encode(), self._password.encode()))
            return
        nonce = secrets.token_urlsafe(_NONCE_SIZE)
        scram = Scram(_SCRAM_HASHES[self.mechanism], self._username, self._password, nonce)
        challenge = yield scram.first_message()
        last = yield scram.final_message(challenge)
        scram.check_last(last)


def make_tls_context(properties: Properties) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Kafka's users disable the host name check by an empty algorithm.
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    _trust(context, properties)
    _identify(context, properties)
    return context


def _trust(context: ssl.SSLContext, properties: Properties) -> None:
    certificates = properties.get("ssl.truststore.certificates")
    name = "ssl.truststore.certificates"
    if certificates is None:
        name = "ssl.truststore.location"
        path = properties.get(name)
        if path is None:
            context.load_default_certs()
            return
        certificates = _read_pem(properties, name, path).decode("utf-8", "replace")
    try:
        context.load_verify_locations(cadata=_only_certificates(certificates))
    except (ssl.SSLError, ValueError) as error:
        raise BadProperty(f"{name}: no certificates in PEM: {error}") from None


def _only_certificates(text: str) -> str:
    """The certificates of a bundle, without the text that tools print between them."""
    found = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    if not found:
        raise ValueError("it has no BEGIN CERTIFICATE")
    return "\n".join(found)


def _identify(context: ssl.SSLContext, properties: Properties) -> None:
    """Load the client's own certificate, if it has one."""
    password = properties.get("ssl.key.password")
    key, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    path = properties.get("ssl.keystore.location")
    if key is not None or chain is not None:
        if key is None or chain is None:
            raise BadProperty("ssl.keystore.key and ssl.keystore.certificate.chain are needed together")
        name, pem = "ssl.keystore.key", f"{key}\n{chain}\n".encode()
    elif path is not None:
        name = "ssl.keystore.location"
        pem = _read_pem(properties, name, path)
    else:
        return
    # OpenSSL reads a key only from a file; this one is readable only by this user and removed at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password or "")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadProperty(f"{name}: no private key with its certificates in PEM: {error}") from None


def _read_pem(properties: Properties, name: str, path: str) -> bytes:
    kind = properties.get(name.replace("location", "type"), "").strip().upper()
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise BadProperty(f"{name}={path}: {os.strerror(error.errno or 0)}") from None
    if kind in ("JKS", "PKCS12") or _PEM_MARK not in content:
        found = kind if kind not in ("", "PEM") else "not PEM"
        raise BadProperty(
            f"{name}={path} is {found}; only PEM is supported. Convert it: "
            + _CONVERT[name].format(path=path)
        )
    return content


def _read_mechanism(properties: Properties) -> str:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise BadProperty(
            f"sasl.mechanism={mechanism} is not supported; choose one of {', '.join(MECHANISMS)}"
        )
    return mechanism


def _read_credentials(properties: Properties) -> tuple[str, str]:
    options = parse_jaas(properties.get("sasl.jaas.config", ""))
    username = properties.get("sasl.username", options.get("username"))
    password = properties.get("sasl.password", options.get("password"))
    if username is None or password is None:
        raise BadProperty(
            "sasl.jaas.config has no username and password: write "
            '<login module> required username="…" password="…"; or set sasl.username and sasl.password'
        )
    return username, password


def parse_jaas(text: str) -> dict[str, str]:
    """The options of the one login module in `sasl.jaas.config`."""
    return {match[1]: _unquote(match[2]) for match in _JAAS_OPTION.finditer(text)}


def _unquote(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] in ("'", '"') else value
