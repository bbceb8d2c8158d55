"""Which servers are trusted: what Java's truststores hold, by Java's rules, on every release of Python."""

from __future__ import annotations

import ssl

from spark_kafka_eos.kafka.errors import ConfigurationError


def trusting(option: str, location: str | None, pem: str | None) -> ssl.SSLContext:
    """A TLS context for clients that trusts these certificates, by default the system's authorities. Raises
    ConfigurationError for `option` if there are none in the file or text.
    """
    try:
        context = ssl.create_default_context(cafile=location, cadata=pem)
    except (OSError, ValueError) as error:
        raise ConfigurationError(option, f"contains no readable CA certificate: {error}") from None
    # A store may hold the authority in the middle or the server's own certificate alone, which Python trusts since
    # 3.13. The strictness that came with it refuses authorities as keytool and OpenSSL's `req -x509` make them.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    return context
