"""AWS MSK IAM with Amazon's signer: its tokens, where credentials come from, and what is said without them."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import sasl_exchange
from spark_kafka_eos.kafka.auth.msk_iam_token import token
from spark_kafka_eos.kafka.auth.oauth import Tokens
from spark_kafka_eos.options import source_options

KEY, SECRET = "AKIAEXAMPLE", "hunter2hunter2"
OPTIONS = {
    "subscribe": "t",
    "kafka.bootstrap.servers": "b-1.x.abc.c2.kafka.eu-west-1.amazonaws.com:9098",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def signed(text: str) -> dict[str, str]:
    """The parameters of the signed URL that a token is, and its host."""
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert url.scheme == "https"
    return {name: values[0] for name, values in parse_qs(url.query).items()} | {"host": url.netloc}


def test_the_token_is_a_signed_url_that_allows_to_connect_for_a_quarter_of_an_hour():
    text, expiry = token(json.dumps({"region": "eu-west-1"}))
    said = signed(text)
    assert said["host"] == "kafka.eu-west-1.amazonaws.com"
    assert said["Action"] == "kafka-cluster:Connect"
    assert said["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    day = dt.datetime.now(dt.UTC).strftime("%Y%m%d")
    assert said["X-Amz-Credential"] == f"{KEY}/{day}/eu-west-1/kafka-cluster/aws4_request"
    assert len(said["X-Amz-Signature"]) == 64
    assert said["X-Amz-Expires"] == "900"
    assert expiry - time.time() == pytest.approx(900, abs=5)
    assert SECRET not in str(said)


def test_the_broker_gets_the_token_by_oauthbearer_and_one_token_serves_until_four_fifths_of_its_life():
    security = source_options(OPTIONS).client.security
    sent, now = [], [0.0]

    def accept(data):
        sent.append(data)
        return b""

    held = Tokens(clock=lambda: now[0])
    for now[0] in (0.0, 700.0, 730.0):
        sasl_exchange(security, "b-1:9098", accept, tokens=held)
        time.sleep(1.1 if now[0] == 700.0 else 0)  # a signature has the time in seconds
    assert sent[0] == sent[1] != sent[2]
    text = sent[2].removeprefix(b"n,,\x01auth=Bearer ").removesuffix(b"\x01\x01").decode()
    assert signed(text)["Action"] == "kafka-cluster:Connect"


def test_the_region_may_come_from_the_environment_or_the_profile(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[profile orders]\nregion = eu-north-1\n")
    (tmp_path / "credentials").write_text("[orders]\naws_access_key_id = AKIAORDERS\naws_secret_access_key = x\n")
    of_profile = signed(token(json.dumps({"region": None, "profile": "orders"}))[0])
    assert "AKIAORDERS/" in of_profile["X-Amz-Credential"] and "/eu-north-1/" in of_profile["X-Amz-Credential"]
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert signed(token('{"region": null}')[0])["host"] == "kafka.us-east-1.amazonaws.com"


def test_without_a_region_the_error_names_the_variable():
    with pytest.raises(ConfigurationError, match=r"needs the cluster's region.*AWS_REGION"):
        token('{"region": null}')


def test_without_credentials_the_error_says_where_they_may_be(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AuthenticationFailed, match=r"no AWS credentials were found.*instance profile.*awsProfileName"):
        token('{"region": "eu-west-1"}')


def test_a_profile_that_does_not_exist_is_named():
    with pytest.raises(AuthenticationFailed, match=r"profile \(nobody\) could not be found"):
        token('{"region": "eu-west-1", "profile": "nobody"}')


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigurationError, match=r"Install spark-kafka-eos\[aws\] on the driver and the executors"):
        token('{"region": "eu-west-1"}')


@pytest.fixture
def sts(monkeypatch):
    """AWS's STS on loopback: its requests, and what it answers."""
    expiration = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    requests: list[dict[str, str]] = []
    refused: list[tuple[int, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requests.append({name: values[0] for name, values in form.items()} | {"by": self.headers["Authorization"]})
            status, code = refused[-1] if refused else (200, "")
            body = (
                f"<ErrorResponse><Error><Code>{code}</Code><Message>not you</Message></Error></ErrorResponse>"
                if refused
                else "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>"
                "<SecretAccessKey>rolesecret</SecretAccessKey><SessionToken>roletoken</SessionToken>"
                f"<Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
            ).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield requests, refused
        server.shutdown()
        thread.join()


ROLE = {"region": "eu-west-1", "role_arn": "arn:aws:iam::123456789012:role/orders"}


def test_a_role_is_assumed_in_its_region_and_signs_the_token(sts):
    requests, _ = sts
    said = signed(
        token(json.dumps(ROLE | {"session_name": "orders", "external_id": "e-1", "sts_region": "eu-north-1"}))[0]
    )
    assert said["X-Amz-Credential"].startswith("ASIAROLE/") and said["X-Amz-Security-Token"] == "roletoken"
    assert "/eu-west-1/" in said["X-Amz-Credential"]
    (asked,) = requests
    assert (asked["RoleArn"], asked["RoleSessionName"], asked["ExternalId"]) == (ROLE["role_arn"], "orders", "e-1")
    assert f"{KEY}/" in asked["by"] and "/eu-north-1/sts/" in asked["by"]
    token(json.dumps(ROLE | {"access_key_id": "AKIASTATIC", "secret_access_key": "x"}))
    assert "AKIASTATIC/" in requests[1]["by"] and "/eu-west-1/sts/" in requests[1]["by"]


def test_a_role_that_may_not_be_assumed_says_so(sts):
    _, refused = sts
    refused.append((403, "AccessDenied"))
    with pytest.raises(AuthenticationFailed, match="AccessDenied.*not you") as caught:
        token(json.dumps(ROLE))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "Throttling"),
        (400, "ThrottlingException"),
        (400, "RequestLimitExceeded"),
        (400, "TooManyRequestsException"),
        (400, "IDPCommunicationError"),
        (429, "Slowly"),
        (500, "InternalFailure"),
        (503, "ServiceUnavailable"),
    ],
)
def test_an_sts_in_trouble_may_be_asked_again(sts, status, code):
    _, refused = sts
    refused.append((status, code))
    with pytest.raises(BrokerUnreachable, match=f"AWS gives no credentials now: .*{code}"):
        token(json.dumps(ROLE))


@pytest.mark.parametrize(
    ("status", "raised", "said"),
    [
        (500, BrokerUnreachable, "AWS gives no credentials now"),
        (503, BrokerUnreachable, "AWS gives no credentials now"),
        (429, BrokerUnreachable, "AWS gives no credentials now"),
        (408, BrokerUnreachable, "AWS gives no credentials now"),
        (403, AuthenticationFailed, "AWS credentials cannot be used"),
        (404, AuthenticationFailed, "AWS credentials cannot be used"),
    ],
)
def test_a_containers_endpoint_may_be_asked_again_unless_it_refuses(monkeypatch, status, raised, said):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_port}/role")
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        try:
            with pytest.raises(raised, match=f"{said}: Error when retrieving.*{status}"):
                token('{"region": "eu-west-1"}')
        finally:
            server.shutdown()
            thread.join()


def test_a_program_that_gives_no_credentials_is_told_with_what_it_said(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    program = "sh -c 'echo the certificate has expired >&2; false'"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    with pytest.raises(AuthenticationFailed, match="AWS credentials cannot be used: .*the certificate has expired"):
        token('{"region": "eu-west-1"}')


def test_an_sts_that_does_not_answer_may_be_asked_again(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(BrokerUnreachable, match="AWS does not answer"):
        token(json.dumps(ROLE))


def test_who_is_rejected_by_the_broker_is_told_to_look_at_the_policy():
    security = source_options(OPTIONS).client.security
    assert security.who == "the AWS credentials"
    assert "kafka-cluster:Connect" in security.advice
    another = dataclasses.replace(security, token_source=None, username="me")
    assert another.who == "user 'me'"
    assert another.advice == "Check the user name and the password."
