"""AWS MSK IAM: the options of aws-msk-iam-auth's login modules, as the configuration of a token provider.

MSK's brokers accept the same signed token under AWS_MSK_IAM and under OAUTHBEARER. The connector sends OAUTHBEARER.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.tokens import TokenProvider

FUNCTION = "spark_kafka_eos.kafka.auth.msk_iam_token:token"

_REGION = re.compile(r"\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?$", re.IGNORECASE)
# The module's option -> its name in the provider's configuration.
_OPTIONS = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "session_name",
    "awsRoleExternalId": "external_id",
    "awsStsRegion": "sts_region",
    "awsRoleAccessKeyId": "access_key_id",
    "awsRoleSecretAccessKey": "secret_access_key",
    "awsRoleSessionToken": "session_token",
}
# They tune the Java library: retries, log lines, and a fallback to other credentials, which there is not here.
_WITHOUT_EFFECT = {"awsMaxRetries", "awsMaxBackOffTimeMs", "awsDebugCreds", "awsAddDefaultProviders"}


def region_of(hosts: Iterable[str]) -> str | None:
    """The AWS region in the first host name that has one: `b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com`."""
    regions = (match[1].lower() for host in hosts if (match := _REGION.search(host)))
    return next(regions, None)


def provider(module: str, login: Mapping[str, Secret], hosts: Iterable[str]) -> TokenProvider:
    """The token provider for the options `login` of a login module. Raises ValueError for what it cannot honour."""
    unknown = sorted(login.keys() - _OPTIONS.keys() - _WITHOUT_EFFECT)
    if unknown:
        raise ValueError(f"{unknown[0]} of {module} is not supported; supported are {', '.join(_OPTIONS)}")
    if "awsProfileName" in login and "awsRoleArn" in login:
        raise ValueError(
            "awsProfileName and awsRoleArn exclude each other; to assume a role with a profile's credentials, set "
            "role_arn and source_profile in the profile"
        )
    without_role = [name for name in _OPTIONS if name in login and name not in ("awsProfileName", "awsRoleArn")]
    if without_role and "awsRoleArn" not in login:
        raise ValueError(f"{without_role[0]} requires awsRoleArn")
    if ("awsRoleAccessKeyId" in login) != ("awsRoleSecretAccessKey" in login):
        raise ValueError("awsRoleAccessKeyId and awsRoleSecretAccessKey require each other")
    config = {"region": region_of(hosts)}
    config |= {short: login[name].reveal() for name, short in _OPTIONS.items() if name in login}
    return TokenProvider(function=FUNCTION, config=Secret(json.dumps(config)))
