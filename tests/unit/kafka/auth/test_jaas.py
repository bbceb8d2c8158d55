"""Java's login configurations on one line, quoted and escaped as Java's parser has it."""

import pytest

from spark_kafka_eos.kafka.auth.jaas import login
from spark_kafka_eos.options import Secret

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";'


@pytest.mark.parametrize(
    ("jaas", "module", "options"),
    [
        (PLAIN, "PlainLoginModule", {"username": "alice", "password": "s3cret"}),
        (PLAIN.replace(" ", "\n  "), "PlainLoginModule", {"username": "alice", "password": "s3cret"}),
        ("a.b.Scram required username=u password=x ;", "Scram", {"username": "u", "password": "x"}),
        (r'a.Plain requisite a="a\"b" b="c;d\\ e";', "Plain", {"a": 'a"b', "b": "c;d\\ e"}),
        ('kafkashaded.a.Plain required serviceName="k" password="";', "Plain", {"serviceName": "k", "password": ""}),
        (
            'a.OAuthBearerLoginModule required clientId="c" ssl.truststore.location="/ca.pem" extension_pool="p";',
            "OAuthBearerLoginModule",
            {"clientId": "c", "ssl.truststore.location": "/ca.pem", "extension_pool": "p"},
        ),
        ("a.OAuthBearerLoginModule required;", "OAuthBearerLoginModule", {}),
        (PLAIN.replace('"', "'"), "PlainLoginModule", {"username": "alice", "password": "s3cret"}),
        (r"""a.Plain REQUIRED a='a\'b "c"' b="it's" ;""", "Plain", {"a": 'a\'b "c"', "b": "it's"}),
    ],
)
def test_a_login_configuration_yields_its_module_and_options(jaas, module, options):
    assert login(Secret(jaas)) == (module, {name: Secret(value) for name, value in options.items()})


@pytest.mark.parametrize(
    ("jaas", "why"),
    [
        ("", "expected"),
        ("username=alice password=s3cret", "expected"),
        ("a.Plain username=alice password=s3cret;", "expected"),
        (PLAIN.rstrip(";"), "expected `;` after the last option"),
        ('a.Plain required password="s3cret;', "expected `;` after the last option"),
        ("a.Plain required password='s3cret;", "expected `;` after the last option"),
        (PLAIN * 2, "expected `;` after the last option"),
    ],
)
def test_what_does_not_parse_is_refused_without_being_shown(jaas, why):
    with pytest.raises(ValueError, match=why) as caught:
        login(Secret(jaas))
    assert "s3cret" not in str(caught.value)


def test_the_options_do_not_show_themselves():
    assert "s3cret" not in f"{login(Secret(PLAIN))}"


@pytest.mark.parametrize(
    ("jaas", "options"),
    [
        ("a.Plain required /* a */ b='c' // d;\n; // e", {"b": "c"}),
        (r"a.Plain required b='\n\t\101\7x\q\\' c=d_$-e.f;", {"b": "\n\tA\7xq\\", "c": "d_$-e.f"}),
        ("a.Plain sufficient b='it\\'s' c=\"//no; /*\";", {"b": "it's", "c": "//no; /*"}),
        ("a.Plain optional b=c/d\n;", {"b": "c"}),  # a slash begins a comment
        ("a.Plain required b='cd\n;", {"b": "cd"}),  # a text ends with its line
        ("Plain required 'b'=c b=d;", {"b": "d"}),
    ],
)  # fmt: skip
def test_comments_and_escapes_are_those_of_javas_tokenizer(jaas, options):
    assert login(Secret(jaas)) == ("Plain", {name: Secret(value) for name, value in options.items()})


@pytest.mark.parametrize("value", ["1secret", "sec:ret", "sec+ret", "-1", "", "sec=ret", "'sec\nret'"])
def test_a_value_that_java_reads_only_in_quotes_is_refused_with_the_way_out(value):
    with pytest.raises(ValueError, match="put quotes around a value") as refused:
        login(Secret(f"a.Plain required password={value};"))
    assert "sec" not in str(refused.value).replace("beside", "")
