"""Where jars come from: whose settings win, which mirrors cover Central, and proxies in Java's terms."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.repository import Repository, proxy_options, repository

NAMESPACE = ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def maven(*, mirrors: Sequence[tuple[str, str]] = (), proxies: str = "", namespace: str = NAMESPACE) -> str:
    entries = "".join(f"<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url>{url}</url></mirror>" for of, url in mirrors)
    return f"<settings{namespace}><mirrors>{entries}</mirrors><proxies>{proxies}</proxies></settings>"


def test_without_any_settings_it_is_central(home):
    assert repository({}, home) == Repository(settings=None, root=None, java_options=())


@pytest.mark.parametrize(
    ("mirror_of", "covers"),
    [
        ("central", True),
        ("*", True),
        ("external:*", True),
        ("snapshots, central", True),
        ("*,!central", False),
        ("external:http:*", False),
        ("snapshots", False),
        ("", False),
    ],
)
def test_a_maven_mirror_is_used_when_it_covers_central(home, mirror_of, covers):
    write(home / ".m2" / "settings.xml", maven(mirrors=[(mirror_of, "https://mirror.example/maven")]))
    assert repository({}, home).root == ("https://mirror.example/maven/" if covers else None)


@pytest.mark.parametrize("host", ["mirror.example", "192.0.2.7", "localhost.example", "127.0.0.1.example"])
def test_a_mirror_by_http_is_refused(home, host):
    write(home / ".m2" / "settings.xml", maven(mirrors=[("*", f"http://{host}/maven")]))
    with pytest.raises(ToolFailed, match=rf"the mirror {re.escape(host)} in Maven's settings is reached by http"):
        repository({}, home)


@pytest.mark.parametrize("url", ["http://localhost:1/", "http://127.0.0.1:1/", "http://[::1]:1/", "file:///maven/"])
def test_a_mirror_on_this_machine_is_used(home, url):
    write(home / ".m2" / "settings.xml", maven(mirrors=[("*", url)]))
    assert repository({}, home).root == url


@pytest.mark.parametrize("namespace", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.0.0"'])
def test_settings_with_another_or_no_namespace_are_read(home, namespace):
    write(home / ".m2" / "settings.xml", maven(mirrors=[("*", "https://mirror.example/")], namespace=namespace))
    assert repository({}, home).root == "https://mirror.example/"


def test_the_users_mirror_comes_before_the_installations(home, tmp_path):
    write(tmp_path / "maven" / "conf" / "settings.xml", maven(mirrors=[("*", "https://installed.example")]))
    environment = {"MAVEN_HOME": str(tmp_path / "maven")}
    assert repository(environment, home).root == "https://installed.example/"
    write(home / ".m2" / "settings.xml", maven(mirrors=[("central", "https://own.example")]))
    assert repository(environment, home).root == "https://own.example/"


def test_the_settings_of_the_maven_on_the_path_are_found_through_a_link(home, tmp_path):
    write(tmp_path / "maven" / "conf" / "settings.xml", maven(mirrors=[("*", "https://installed.example")]))
    executable = write(tmp_path / "maven" / "bin" / "mvn", "#!/bin/sh\n")
    executable.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").symlink_to(executable)
    assert repository({"PATH": str(tmp_path / "bin")}, home).root == "https://installed.example/"


def test_variables_in_maven_settings_are_resolved(home):
    write(home / ".m2" / "settings.xml", maven(mirrors=[("*", "file://${user.home}/${env.REPOSITORY}/${unknown}")]))
    assert repository({"REPOSITORY": "maven"}, home).root == f"file://{home}/maven/${{unknown}}/"


def test_a_broken_maven_file_is_named(home):
    file = write(home / ".m2" / "settings.xml", "<settings>")
    with pytest.raises(ToolFailed, match=f"{file} is not well-formed"):
        repository({}, home)


def test_ivy_settings_come_before_maven_and_are_used_as_they_are(home, tmp_path):
    write(home / ".m2" / "settings.xml", maven(mirrors=[("*", "https://mirror.example")]))
    default = write(home / ".ivy2" / "ivysettings.xml", "<ivysettings/>")
    assert repository({}, home).settings_file(tmp_path) == default
    conf = write(tmp_path / "conf" / "spark-defaults.conf", "spark.ui.enabled false\nspark.jars.ivySettings  SPARK\n")
    spark = write(tmp_path / "spark.xml", "<ivysettings/>")
    conf.write_text(conf.read_text().replace("SPARK", str(spark)))
    assert repository({"SPARK_CONF_DIR": str(conf.parent)}, home).settings_file(tmp_path) == spark
    assert repository({"SPARK_HOME": str(tmp_path)}, home).settings_file(tmp_path) == spark
    own = write(tmp_path / "own.xml", "<ivysettings/>")
    environment = {"KAFKA_EOS_IVY_SETTINGS": str(own), "SPARK_CONF_DIR": str(conf.parent)}
    assert repository(environment, home).settings_file(tmp_path) == own


def test_named_ivy_settings_that_do_not_exist_are_an_error(home):
    with pytest.raises(ToolFailed, match="nowhere"):
        repository({"KAFKA_EOS_IVY_SETTINGS": "/nowhere"}, home)


def test_the_settings_written_for_ivy_quote_the_url(tmp_path):
    written = Repository(settings=None, root='https://a/?x="&', java_options=()).settings_file(tmp_path)
    assert """root='https://a/?x="&amp;'""" in Path(written).read_text()


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "http_proxy"])
def test_a_proxy_variable_becomes_java_options(name):
    assert proxy_options({name: "http://proxy.example:3128"}) == (
        "-Dhttp.proxyHost=proxy.example",
        "-Dhttp.proxyPort=3128",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
    )


def test_a_proxy_without_a_scheme_and_hosts_to_reach_directly_are_understood():
    options = proxy_options({"https_proxy": "proxy.example:3128", "no_proxy": "localhost, .corp.example"})
    assert "-Dhttps.proxyHost=proxy.example" in options
    assert "-Dhttp.nonProxyHosts=localhost|*.corp.example" in options


def test_the_proxy_in_java_tool_options_is_left_to_java():
    assert proxy_options({"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=a", "https_proxy": "http://b:1"}) == ()


def test_a_proxys_password_is_passed_on_but_never_shown(home):
    found = repository({"https_proxy": "http://someone:s%40crt@proxy.example:3128"}, home)
    assert "-Dhttp.proxyPassword=s@crt" in found.java_options
    assert "s@crt" not in repr(found)
    assert "s%40crt" not in repr(found)


def test_mavens_first_active_proxy_is_used_unless_a_variable_names_one(home):
    inactive = "<proxy><active>false</active><host>no.example</host><port>1</port></proxy>"
    active = "<proxy><host>yes.example</host><port>8888</port><nonProxyHosts>a|b</nonProxyHosts></proxy>"
    write(home / ".m2" / "settings.xml", maven(proxies=inactive + active))
    options = repository({}, home).java_options
    assert "-Dhttps.proxyHost=yes.example" in options
    assert "-Dhttps.proxyPort=8888" in options
    assert "-Dhttp.nonProxyHosts=a|b" in options
    assert "-Dhttps.proxyHost=c" in repository({"https_proxy": "http://c:1"}, home).java_options
