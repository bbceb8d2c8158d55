"""Determines where to download jars: the user's Ivy settings, Maven mirror and proxies, else Maven Central.

The first of these that exists:
1. Ivy settings: the file named by `KAFKA_EOS_IVY_SETTINGS`, by `spark.jars.ivySettings` in spark-defaults.conf, or
   ~/.ivy2/ivysettings.xml. Used unchanged, for example for mirrors that need a password.
2. A mirror of Central in ~/.m2/settings.xml or in the installed Maven's conf/settings.xml.
3. Maven Central.
Proxies: Java reads those in JAVA_TOOL_OPTIONS itself; else https_proxy/http_proxy/no_proxy; else the active ones in
Maven's settings.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from spark_kafka_eos.errors import ToolFailed

TIMEOUT_MS = 30_000
"""Of a connection and of each read from it. Ivy settings of the user's own have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What Ivy gets: a `settings` file, used unchanged, or the `root` URL of a Maven 2 repository, None for Central."""

    settings: Path | None
    root: str | None
    java_options: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Repository({self.name!r})"  # the options may contain a proxy's password

    @property
    def name(self) -> str:
        """The settings file or the repository's URL, for messages."""
        return str(self.settings or self.root or "Maven Central")

    def settings_file(self, directory: Path) -> Path:
        """The user's settings file, or one written to `directory`."""
        if self.settings is not None:
            return self.settings
        written = directory / "ivysettings.xml"
        root = f" root={quoteattr(self.root)}" if self.root else ""
        limit = f'connectionTimeout="{TIMEOUT_MS}" readTimeout="{TIMEOUT_MS}"'  # without, Ivy waits for ever
        written.write_text(
            '<ivysettings><settings defaultResolver="repository"/>'
            f'<timeout-constraints><timeout-constraint name="limit" {limit}/></timeout-constraints><resolvers>'
            f'<ibiblio name="repository" m2compatible="true" timeoutConstraint="limit"{root}/>'
            "</resolvers></ivysettings>"
        )
        return written


def repository(environment: Mapping[str, str], home: Path) -> Repository:
    """Read the user's settings. Raises ToolFailed for a file that cannot be read."""
    maven = [_parse(file, environment, home) for file in _maven_settings(environment, home) if file.is_file()]
    mirrors = (_safe(url) for settings in maven if (url := central_mirror(settings)))
    return Repository(
        settings=_ivy_settings(environment, home),
        root=next(mirrors, None),
        java_options=proxy_options(environment) or next(filter(None, map(maven_proxy_options, maven)), ()),
    )


def _safe(mirror: str) -> str:
    parts = urlsplit(mirror)
    if parts.scheme != "http" or parts.hostname == "localhost" or _is_loopback(parts.hostname or ""):
        return mirror
    raise ToolFailed(
        f"the mirror {parts.hostname} in Maven's settings is reached by http: anyone on the way could replace the jars",
        action="Change its URL to https.",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _ivy_settings(environment: Mapping[str, str], home: Path) -> Path | None:
    named = environment.get("KAFKA_EOS_IVY_SETTINGS") or _spark_default(environment, "spark.jars.ivySettings")
    if named:
        if not Path(named).is_file():
            raise ToolFailed(f"the Ivy settings {named} do not exist", action="Correct the path or remove the setting.")
        return Path(named)
    own = home / ".ivy2" / "ivysettings.xml"
    return own if own.is_file() else None


def _spark_default(environment: Mapping[str, str], key: str) -> str | None:
    """A value in spark-defaults.conf, where blanks or `=` separate keys and values."""
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder is None or not (file := Path(folder) / "spark-defaults.conf").is_file():
        return None
    match = re.search(rf"^\s*{re.escape(key)}[\s=]+(\S+)", file.read_text(), re.MULTILINE)
    return match[1] if match else None


def _maven_settings(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """The user's settings, then the installation's, as Maven merges them."""
    yield home / ".m2" / "settings.xml"
    executable = shutil.which("mvn", path=environment.get("PATH"))
    installed = [environment.get("MAVEN_HOME"), executable and Path(executable).resolve().parents[1]]
    yield from (Path(folder) / "conf" / "settings.xml" for folder in installed if folder)


def _parse(file: Path, environment: Mapping[str, str], home: Path) -> ET.Element:
    text = file.read_text()
    variables = {f"env.{key}": value for key, value in environment.items()} | {"user.home": str(home)}
    text = re.sub(r"\$\{([^}]+)\}", lambda match: variables.get(match[1], match[0]), text)
    try:
        root = ET.fromstring(text)  # noqa: S314 - the user's own file, which Maven trusts as well
    except ET.ParseError as error:
        raise ToolFailed(f"{file} is not well-formed XML: {error}", action="Correct or remove it.") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # the namespace depends on Maven's version, or is missing
    return root


def central_mirror(settings: ET.Element) -> str | None:
    """The URL of the first mirror whose `mirrorOf` covers Central (`central`, `*`, `external:*`, not `!central`)."""
    for mirror in settings.findall("mirrors/mirror"):
        covered = [part.strip() for part in (mirror.findtext("mirrorOf") or "").split(",")]
        url = (mirror.findtext("url") or "").strip()
        if url and "!central" not in covered and {"central", "*", "external:*"} & set(covered):
            return url.rstrip("/") + "/"
    return None


def maven_proxy_options(settings: ET.Element) -> tuple[str, ...]:
    """Java's options for the first active proxy in Maven's settings, which serves both http and https."""
    for proxy in settings.findall("proxies/proxy"):
        if (proxy.findtext("active") or "true").strip() == "true":
            value = {child.tag: (child.text or "").strip() for child in proxy}
            return _options(
                value.get("host", ""), value.get("port", "8080"), value.get("username"), value.get("password"),
                value.get("nonProxyHosts", "").replace(",", "|"),
            )  # fmt: skip
    return ()


def proxy_options(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Java's options for https_proxy, else http_proxy (any case), and no_proxy; none if JAVA_TOOL_OPTIONS has some."""
    if "proxyHost" in environment.get("JAVA_TOOL_OPTIONS", ""):
        return ()
    lower = {key.lower(): value for key, value in environment.items() if value}
    url = lower.get("https_proxy") or lower.get("http_proxy")
    if not url:
        return ()
    parts = urlsplit(url if "//" in url else f"//{url}")
    direct = [host.strip() for host in lower.get("no_proxy", "").split(",") if host.strip()]
    return _options(
        parts.hostname or "",
        str(parts.port or 80),
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        "|".join(f"*{host}" if host.startswith(".") else host for host in direct),
    )


def _options(host: str, port: str, user: str | None, password: str | None, direct: str) -> tuple[str, ...]:
    options: list[str] = []
    for scheme in ("http", "https"):
        options += [f"-D{scheme}.proxyHost={host}", f"-D{scheme}.proxyPort={port}"]
    if user:
        # Ivy authenticates with these two. By default, Java refuses basic authentication for tunnels.
        options += [f"-Dhttp.proxyUser={user}", f"-Dhttp.proxyPassword={password or ''}"]
        options += ["-Djdk.http.auth.tunneling.disabledSchemes="]
    if direct:
        options.append(f"-Dhttp.nonProxyHosts={direct}")  # Java uses this one for https too
    return tuple(options)
