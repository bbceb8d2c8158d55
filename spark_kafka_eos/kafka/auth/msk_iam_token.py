"""Tokens for AWS MSK IAM: a signed URL that allows `kafka-cluster:Connect`, made by Amazon's own signer.

Nothing is sent to AWS for it, except to find credentials (instance metadata, STS).
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from spark_kafka_eos.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError

# Error codes of responses with a status of 400. The last: STS could not ask who issued a pod's token.
_BUSY = re.compile("Throttl|LimitExceeded|TooManyRequests|RequestTimeout|IDPCommunicationError")
_REFUSED = re.compile(r"non 200 response 4(?!08|29)\d\d")  # of a pod's endpoint, whose status only the text has


def token(config: str) -> tuple[str, float]:
    """A token provider; `config` is what `auth.msk_iam.provider` wrote.

    Raises ConfigurationError without the signer or without a region, AuthenticationFailed without credentials,
    BrokerUnreachable if STS, or where else credentials come from, does not answer or is in trouble.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from boto3 import Session
        from botocore import exceptions
        from botocore.credentials import CredentialProvider
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "kafka.sasl.mechanism",
            f"AWS MSK IAM requires the package {error.name}",
            action="Install spark-kafka-eos[aws] on the driver and the executors.",
        ) from None
    options: dict[str, str] = json.loads(config)
    try:
        session = Session(profile_name=options.get("profile"))
        region = options.get("region") or os.environ.get("AWS_REGION") or session.region_name
        if region is None:
            raise ConfigurationError(
                "kafka.bootstrap.servers",
                "AWS MSK IAM needs the cluster's region, which is in no broker's host name",
                action="Set the environment variable AWS_REGION on the driver and the executors.",
            )
        credentials = _assumed(options, region) if "role_arn" in options else session.get_credentials()
        if credentials is None:
            raise AuthenticationFailed(
                "no AWS credentials were found",
                action="Each process needs its own: an instance profile or pod role, environment variables "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or a profile (awsProfileName).",
            )

        class Found(CredentialProvider):  # type: ignore[misc]
            def load(self) -> Any:
                return credentials

        signed, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Found())
    except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
        raise BrokerUnreachable(f"AWS does not answer: {error}") from None
    except (exceptions.BotoCoreError, exceptions.ClientError) as error:  # their messages contain no keys
        of_source = isinstance(error, exceptions.CredentialRetrievalError | exceptions.MetadataRetrievalError)
        if _source_may_pass(error) if of_source else _may_pass(getattr(error, "response", {})):
            raise BrokerUnreachable(f"AWS gives no credentials now: {error}") from None
        raise AuthenticationFailed(f"AWS credentials cannot be used: {error}") from None
    return signed, expiry_ms / 1000


def _may_pass(response: dict[str, Any]) -> bool:
    """Whether this response of AWS is no refusal: the service is in trouble, or has too many requests."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or status == 429 or bool(_BUSY.search(response.get("Error", {}).get("Code", "")))


def _source_may_pass(error: Any) -> bool:
    """Whether a source of credentials, as a pod's endpoint, is in trouble and does not refuse. Why a program fails is
    only in its text, which people must see.
    """
    return error.kwargs.get("provider") != "custom-process" and not _REFUSED.search(str(error))


def _assumed(options: dict[str, str], region: str) -> Any:
    """Credentials of the role, obtained with static keys or with those that AWS's default chain finds."""
    from boto3 import Session
    from botocore.credentials import Credentials

    session = Session(
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=options.get("session_token"),
    )
    external = {"ExternalId": options["external_id"]} if "external_id" in options else {}
    answer = session.client("sts", region_name=options.get("sts_region", region)).assume_role(
        RoleArn=options["role_arn"], RoleSessionName=options.get("session_name", "spark-kafka-eos"), **external
    )["Credentials"]
    return Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
