"""OAUTHBEARER under Java's names, in JAAS or beside it, and under librdkafka's; a user's login is in test_security."""

import json
import pickle

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.msk_iam import region_of
from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint, TokenProvider
from spark_kafka_eos.options import Secret, Security, source_options
from tests.unit.kafka.auth.test_jks import TRUSTSTORE

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAAS = f'{MODULE} clientId="spark" clientSecret="s3cret"'
URL = "https://login.test/oauth2/token"
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": URL}
PROPERTIES = {
    "sasl.oauthbearer.client.credentials.client.id": "spark",
    "sasl.oauthbearer.client.credentials.client.secret": "s3cret",
}


def secured(given: dict[str, str]) -> Security:
    properties = {f"kafka.{name}": value for name, value in given.items()}
    return source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | properties).client.security


def refused(option: str, why: str, given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        secured(given)
    assert caught.value.option == option
    assert "s3cret" not in str(caught.value)


@pytest.fixture
def pem(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("")
    return str(path)


def test_a_client_comes_from_jaas_from_javas_properties_or_from_librdkafkas():
    expected = Security(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        username="spark",
        password=Secret("s3cret"),
        token_source=TokenEndpoint(url=URL, scope="kafka"),
    )
    rdkafka = {"sasl.oauthbearer.client.id": "spark", "sasl.oauthbearer.client.secret": "s3cret"}
    scope = {"sasl.oauthbearer.scope": "kafka"}
    assert secured(BEARER | {"sasl.jaas.config": f'{JAAS} scope="kafka";'}) == expected
    assert secured(BEARER | PROPERTIES | scope) == expected
    assert secured(BEARER | PROPERTIES | scope | {"sasl.jaas.config": f"{MODULE};"}) == expected
    assert secured(BEARER | rdkafka | scope | {"sasl.oauthbearer.method": "OIDC"}) == expected
    assert "s3cret" not in f"{expected}{expected!r}{pickle.loads(pickle.dumps(expected))}"


@pytest.mark.parametrize("url", ["http://login.test/token", "HTTP://login.test/token"])
@pytest.mark.parametrize("allowed", [None, "http://login.test/", f"{URL}, http://login.test/token/2"])
def test_a_secret_is_not_sent_over_http_unless_the_endpoint_is_allowed_by_name(url, allowed):
    given = BEARER | PROPERTIES | {"sasl.oauthbearer.token.endpoint.url": url}
    more = {} if allowed is None else {"sasl.oauthbearer.allowed.urls": allowed}
    refused("kafka.sasl.oauthbearer.token.endpoint.url", "http:// URL would send the client secret", given | more)
    endpoint = secured(given | {"sasl.oauthbearer.allowed.urls": f"{URL}, {url}"}).token_source
    assert isinstance(endpoint, TokenEndpoint) and endpoint.url == url


def test_extensions_go_to_the_broker_beside_the_token():
    in_jaas = f'{JAAS} extension_logicalCluster="lkc-1" extension_identityPoolId="p";'
    expected = (("logicalCluster", "lkc-1"), ("identityPoolId", "p"))
    for given in (
        {"sasl.jaas.config": in_jaas},
        PROPERTIES | {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=p"},
    ):
        endpoint = secured(BEARER | given).token_source
        assert isinstance(endpoint, TokenEndpoint) and endpoint.extensions == expected


@pytest.mark.parametrize("name", ["identity_pool_id", "identity.pool.id"])
def test_confluent_clouds_extensions_are_told_by_their_names(name):
    meant = r"did you mean identityPoolId\?"
    refused("kafka.sasl.jaas.config", meant, BEARER | {"sasl.jaas.config": f'{JAAS} extension_{name}="x";'})
    given = PROPERTIES | {"sasl.oauthbearer.extensions": f"logicalCluster=lkc-1,{name}=x"}
    refused("kafka.sasl.oauthbearer.extensions", meant, BEARER | given)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("identityPoolId", r"; did you mean extension_identityPoolId\?"),
        ("logical_cluster", r"; did you mean extension_logicalCluster\?"),
        ("clientID", ""),
        ("oauth.username", ""),
    ],
)
def test_an_option_that_the_login_module_does_not_know_is_refused_although_java_ignores_it(name, hint):
    given = BEARER | {"sasl.jaas.config": f'{JAAS} {name}="x";'}
    refused("kafka.sasl.jaas.config", f"{name} is not an option of OAuthBearerLoginModule{hint}", given)


@pytest.mark.parametrize("secret", ['s3cret"tail=x', "s3cret' tail=y", 's3cret" tail-two=z', 's3cret" "tail two" = x'])
def test_what_may_be_a_part_of_a_secret_is_not_shown_as_the_name_of_an_option(secret):
    quote = secret[6]
    given = BEARER | {"sasl.jaas.config": f'{MODULE} clientId="me" clientSecret={quote}{secret};'}
    with pytest.raises(ConfigurationError, match="option 3 is not one of OAuthBearerLoginModule's") as caught:
        secured(given)
    assert "tail" not in str(caught.value)


def test_a_secret_in_the_place_of_the_login_module_is_not_shown():
    with pytest.raises(ConfigurationError, match="the login module is not supported; use one of") as caught:
        secured(BEARER | {"sasl.jaas.config": 's3cret required clientId="me";'})
    assert "s3cret" not in str(caught.value)


PROVIDED = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "company.kafka:token",
}


def test_a_function_provides_tokens_instead_of_an_endpoint():
    assert secured(PROVIDED).token_source == TokenProvider(function="company.kafka:token")
    given = {"sasl.oauthbearer.config": "pool s3cret", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1"}
    source = secured(PROVIDED | given).token_source
    extensions = (("logicalCluster", "lkc-1"),)
    expected = TokenProvider(function="company.kafka:token", config=Secret("pool s3cret"), extensions=extensions)
    assert source == expected and "s3cret" not in f"{source!r}"
    in_jaas = {
        "sasl.oauthbearer.config": "pool s3cret",
        "sasl.jaas.config": f'{MODULE} extension_logicalCluster="lkc-1";',
    }
    assert secured(PROVIDED | in_jaas).token_source == expected
    assert secured(PROVIDED | given).librdkafka()["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (PROPERTIES, "cannot be combined with kafka.sasl.oauthbearer.client.credentials.client.id"),
        ({"sasl.oauthbearer.token.endpoint.url": URL}, "cannot be combined with .*endpoint.url"),
        ({"sasl.oauthbearer.scope": "kafka"}, "cannot be combined with .*scope"),
        ({"sasl.jaas.config": f"{JAAS};"}, "cannot be combined with clientId in kafka.sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}, "has no effect with PLAIN"),
        ({"sasl.oauthbearer.token.provider": "company.kafka.token"}, "is not module:function"),
        ({"sasl.oauthbearer.token.provider": "company-kafka:token"}, "is not module:function"),
    ],
)
def test_a_function_is_the_only_source_of_tokens(given, why):
    refused("kafka.sasl.oauthbearer.token.provider", why, PROVIDED | given)


IAM = "software.amazon.msk.auth.iam"
BROKERS = "b-1.x.abc.c2.kafka.eu-west-1.amazonaws.com:9098"
MSK = {
    "bootstrap.servers": BROKERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
}
MSK_BEARER = {
    "bootstrap.servers": BROKERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{MODULE};",
    "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
}


def aws(given: dict[str, str]) -> dict[str, str]:
    """What AWS's token provider is called with."""
    security = secured(given)
    assert security.mechanism == "OAUTHBEARER" and security.username is None
    assert isinstance(security.token_source, TokenProvider)
    assert security.token_source.function == "spark_kafka_eos.kafka.auth.msk_iam_token:token"
    return dict(json.loads(security.token_source.config.reveal()))


def test_msk_iam_is_understood_under_javas_names_in_both_forms_and_as_databricks_names_the_classes():
    shaded = {name: value.replace(IAM, f"shadedmskiam.{IAM}") for name, value in MSK.items()}
    bare = {name: value for name, value in MSK.items() if "jaas" not in name and "handler" not in name}
    for given in (MSK, MSK_BEARER, shaded, bare):
        assert aws(given) == {"region": "eu-west-1"}
    for given in (MSK, MSK_BEARER):
        jaas = given["sasl.jaas.config"].replace(";", ' awsProfileName="orders" awsDebugCreds=true;')
        assert aws(given | {"sasl.jaas.config": jaas}) == {"region": "eu-west-1", "profile": "orders"}


def test_a_role_of_msk_iam_is_assumed_with_what_jaas_says():
    options = 'awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName=s awsRoleExternalId=e awsStsRegion=eu-north-1'
    keys = 'awsRoleAccessKeyId=AKIA awsRoleSecretAccessKey="s3cret" awsRoleSessionToken=t'
    given = MSK | {"sasl.jaas.config": f"{IAM}.IAMLoginModule required {options} {keys};"}
    assert aws(given) == {
        "region": "eu-west-1",
        "role_arn": "arn:aws:iam::1:role/r",
        "session_name": "s",
        "external_id": "e",
        "sts_region": "eu-north-1",
        "access_key_id": "AKIA",
        "secret_access_key": "s3cret",
        "session_token": "t",
    }
    assert "s3cret" not in repr(secured(given))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("awsProfile=x", "awsProfile of IAMLoginModule is not supported; supported are awsProfileName,"),
        ('awsMskRegionProvider="com.example.Region"', "awsMskRegionProvider of IAMLoginModule is not supported"),
        ("awsProfileName=x awsRoleArn=y", "exclude each other"),
        ("awsStsRegion=x", "awsStsRegion requires awsRoleArn"),
        ("awsRoleArn=x awsRoleSecretAccessKey=s3cret", "require each other"),
    ],
)
def test_what_msk_iam_cannot_honour_is_refused(options, why):
    refused("kafka.sasl.jaas.config", why, MSK | {"sasl.jaas.config": f"{IAM}.IAMLoginModule required {options};"})


def test_what_msk_iam_cannot_honour_is_named_with_the_login_module_that_has_it():
    why = "awsProfile of OAuthBearerLoginModule is not supported"
    refused("kafka.sasl.jaas.config", why, MSK_BEARER | {"sasl.jaas.config": f"{MODULE} awsProfile=x;"})


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("boot-abc.c1.kafka-serverless.us-east-2.amazonaws.com", "us-east-2"),
        ("b-2-public.x.abc.c2.kafka.ap-southeast-1.amazonaws.com", "ap-southeast-1"),
        ("b-1.x.abc.c2.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.x.abc.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("kafka.example.com", None),
        ("b-1.kafka.eu-west-1.amazonaws.com.example.com", None),
    ],
)
def test_msks_region_is_in_the_brokers_names(host, region):
    assert region_of(["kafka.internal", host]) == region


@pytest.mark.parametrize("name", ["auth", "logical_cluster", "", "a1"])
def test_an_extension_that_the_rfc_does_not_allow_is_refused(name):
    refused("kafka.sasl.jaas.config", "SASL extension", BEARER | {"sasl.jaas.config": f'{JAAS} extension_{name}="x";'})
    given = PROPERTIES | {"sasl.oauthbearer.extensions": f"{name}=x"}
    refused("kafka.sasl.oauthbearer.extensions", "SASL extension", BEARER | given)


def test_an_extension_cannot_smuggle_another_one_in():
    given = PROPERTIES | {"sasl.oauthbearer.extensions": "a=b\x01auth=Bearer x"}
    refused("kafka.sasl.oauthbearer.extensions", "a printable value", BEARER | given)


@pytest.mark.parametrize("handler", ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"])
def test_javas_own_callback_handler_may_be_named(handler):
    name = {"sasl.login.callback.handler.class": f"org.apache.kafka.common.security.oauthbearer.{handler}"}
    assert secured(BEARER | PROPERTIES | name) == secured(BEARER | PROPERTIES)


def test_another_callback_handler_is_refused():
    given = BEARER | PROPERTIES | {"sasl.login.callback.handler.class": "com.example.Handler"}
    refused("kafka.sasl.login.callback.handler.class", "Java classes are not loaded", given)


def test_what_is_missing_is_named():
    client = "kafka.sasl.oauthbearer.client.credentials.client"
    refused(f"{client}.id", "clientId", BEARER)
    refused(f"{client}.secret", "clientSecret", BEARER | {"sasl.jaas.config": f'{MODULE} clientId="spark";'})
    without = {name: value for name, value in BEARER.items() if name != "sasl.oauthbearer.token.endpoint.url"}
    refused("kafka.sasl.oauthbearer.token.endpoint.url", "is required with OAUTHBEARER", without | PROPERTIES)


def test_a_client_that_is_given_twice_is_refused():
    refused("kafka.sasl.jaas.config", "cannot be combined with", BEARER | PROPERTIES | {"sasl.jaas.config": f"{JAAS};"})


def test_a_token_endpoint_means_nothing_to_a_user_with_a_password():
    given = BEARER | {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "s3cret"}
    refused("kafka.sasl.oauthbearer.token.endpoint.url", "has no effect with PLAIN", given)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_clients_login_module_fits_its_own_mechanism_only(mechanism):
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": f"{JAAS};"}
    refused("kafka.sasl.jaas.config", f"does not match kafka.sasl.mechanism {mechanism}", given)


@pytest.mark.parametrize(
    "url", ["file:///token.jwt", "login.test/token", "https://", "https://u:s3cret@login.test/token"]
)
def test_a_url_that_cannot_be_asked_is_refused_and_not_shown(url):
    given = BEARER | PROPERTIES | {"sasl.oauthbearer.token.endpoint.url": url}
    refused(
        "kafka.sasl.oauthbearer.token.endpoint.url", "password" if "@" in url else "not an http:// or https://", given
    )


def test_the_token_endpoints_authority_is_its_own(pem):
    for given in (
        PROPERTIES | {"https.ca.location": pem},
        {"sasl.jaas.config": f'{JAAS} ssl.truststore.location="{pem}" ssl.truststore.type="PEM";'},
    ):
        security = secured(BEARER | given)
        assert isinstance(security.token_source, TokenEndpoint) and security.token_source.ca_location == pem
        assert security.ca_location is None
    security = secured(BEARER | PROPERTIES | {"https.ca.pem": "text"})
    assert isinstance(security.token_source, TokenEndpoint) and security.token_source.ca_pem == "text"
    both = {"https.ca.pem": "text", "https.ca.location": pem}
    refused("kafka.https.ca.location", "cannot be combined with", BEARER | PROPERTIES | both)


def test_a_truststore_of_the_token_endpoint_is_verified_with_the_password_in_jaas(tmp_path):
    (tmp_path / "ca.jks").write_bytes(TRUSTSTORE)
    jaas = f'{JAAS} ssl.truststore.location="{tmp_path}/ca.jks" ssl.truststore.password='
    endpoint = secured(BEARER | {"sasl.jaas.config": f"{jaas}changeit;"}).token_source
    assert isinstance(endpoint, TokenEndpoint) and "BEGIN CERTIFICATE" in str(endpoint.ca_pem)
    given = BEARER | {"sasl.jaas.config": f"{jaas}s3cret;"}
    refused("kafka.ssl.truststore.password", "the password is wrong, or the file is damaged", given)


def test_librdkafka_gets_the_same_and_knows_every_name():
    given = PROPERTIES | {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=b,c=d",
        "sasl.oauthbearer.header.urlencode": "false",
    }
    config = secured(BEARER | given).librdkafka()
    assert config == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.client.id": "spark",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=b,c=d",
        "ssl.endpoint.identification.algorithm": "https",
    }
    AdminClient(config | {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


@pytest.mark.parametrize(
    ("given", "field", "method"),
    [
        (BEARER, "sasl.username", "OAUTHBEARER"),
        (PROVIDED, "sasl.password", "OAUTHBEARER"),
        (MSK, "sasl.oauthbearer.token.provider", "AWS_MSK_IAM"),
        (MSK_BEARER, "sasl.oauthbearer.client.credentials.client.secret", "AWS_MSK_IAM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.password", "GSSAPI"),
    ],
)
def test_credentials_that_would_not_log_in_are_refused(given, field, method):
    refused(f"kafka.{field}", f"has no effect with {method}", given | {field: "s3cret:s3cret"})


def test_a_text_for_the_function_requires_the_function():
    refused(
        "kafka.sasl.oauthbearer.config", "requires .*token.provider", BEARER | {"sasl.oauthbearer.config": "s3cret"}
    )
