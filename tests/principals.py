"""Users for tests: a SCRAM user made on a running broker, with the rights that are named and no other."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from spark_kafka_eos.preflight.rights import Right

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}


def add_user(bootstrap: str, user: str, password: str, rights: Iterable[Right]) -> None:
    """Make `user` known for SCRAM-SHA-256 and grant `rights`; returns once the broker shows them. A name that ends with
    `*` stands for all that begin so.
    """
    admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
    for made in admin.alter_user_scram_credentials([upsertion]).values():
        made.result(20)
    bindings = {_binding(f"User:{user}", right) for right in rights}
    for granted in admin.create_acls(list(bindings)).values() if bindings else ():
        granted.result(20)
    deadline = time.monotonic() + 60
    while not _shown(admin, user, bindings):
        assert time.monotonic() < deadline, f"the broker does not show the user {user} and its rights"
        admin.poll(0.02)


def _binding(principal: str, right: Right) -> AclBinding:
    prefixed = right.pattern == "prefixed" or (right.name.endswith("*") and right.name != "*")
    return AclBinding(
        _RESOURCES[right.resource],
        right.name.rstrip("*") if prefixed else right.name,
        ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation[_words(right.operation)],
        AclPermissionType.ALLOW,
    )


def _words(operation: str) -> str:
    """`DescribeConfigs` -> `DESCRIBE_CONFIGS`."""
    return "".join(f"_{c}" if c.isupper() else c for c in operation).lstrip("_").upper()


def _shown(admin: Any, user: str, bindings: set[AclBinding]) -> bool:
    any_filter: Any = AclBindingFilter  # its types don't know that None means any
    every = any_filter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    shown = set(admin.describe_acls(every, request_timeout=20).result(20))
    known = admin.describe_user_scram_credentials([user], request_timeout=20)[user].exception(20) is None
    return known and bindings <= shown
