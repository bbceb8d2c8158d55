"""A Hadoop cluster on the loopback interface: HDFS with one data node, and YARN with node managers.

Each daemon is a process of its own, so that one can be killed as a machine fails. What YARN starts has no Python path
and no home of the tests: whatever a job needs there must be shipped.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen
from xml.sax.saxutils import escape

import psutil

from spark_kafka_eos.testing.jars import Bundle, Module, files
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.libhdfs import hadoop_home, java_home

_MODULES = (
    ("org.apache.hadoop", "hadoop-client-api", "3.5.0"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.5.0"),
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),  # has the daemons
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"),
    ("org.bouncycastle", "bcutil-jdk18on", "1.82"),
    ("ch.qos.reload4j", "reload4j", "1.2.26"),
    ("commons-logging", "commons-logging", "1.3.5"),
    ("org.apache.commons", "commons-lang3", "3.19.0"),  # libhdfs needs it
    ("org.slf4j", "slf4j-api", "2.0.17"),
    ("org.slf4j", "slf4j-reload4j", "2.0.17"),
)
HADOOP = Bundle(
    name="hadoop",
    version="3.5.0",
    modules=tuple(Module(organisation=of, name=name, revision=revision, alone=True) for of, name, revision in _MODULES),
)
_PROGRAMS = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
    "shell": "org.apache.hadoop.fs.FsShell",
}
_LOGGING = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""
_START_S = 120
_LOST_AFTER_MS = 10_000  # a node manager that is silent for so long is lost; YARN's default is ten minutes


class HadoopCluster:
    """HDFS and YARN, as a context manager. `hdfs` is the root of the file system; `conf` is for HADOOP_CONF_DIR."""

    def __init__(self, folder: Path, *, nodes: int = 2) -> None:
        self.folder, self.conf = folder, folder / "conf"
        self.home = hadoop_home(folder / "home")
        self._supervised = SupervisedProcesses()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[int, psutil.Process] = {}
        self._started = 0
        for part in ("conf", "web/webapps/cluster", "web/webapps/node"):  # their jar has no pages
            (folder / part).mkdir(parents=True)
        names = ("namenode", "resourcemanager", "scheduler", "tracker", "admin", "web")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.hdfs = f"hdfs://127.0.0.1:{self._ports['namenode']}"
        self._configure()
        formatted = subprocess.run(
            self._command("namenode", "-format", "-nonInteractive"), check=False, capture_output=True, text=True
        )
        assert formatted.returncode == 0, formatted.stderr[-2000:]
        for name in ("namenode", "datanode", "resourcemanager"):
            self._start(name, folder / f"{name}.log")
        self._start_nodes(nodes)
        self._await(self._leaves_safe_mode, "HDFS can be written")

    def start_node(self) -> None:
        """Start one more node manager; returns once the resource manager knows it."""
        self._start_nodes(1)

    def _start_nodes(self, count: int) -> None:
        for _ in range(count):
            self._start_node()
        self._await(lambda: self._registered() == self._started, f"{self._started} node managers are registered")

    def _start_node(self) -> None:
        self._started += 1
        log, own = self.folder / f"nodemanager-{self._started}.log", self.folder / f"node-{self._started}"
        pid = self._start(
            "nodemanager",
            log,
            *(f"-Dyarn.nodemanager.{name}-dirs={own / name}" for name in ("local", "log")),
        )
        self._nodes[pid] = psutil.Process(pid)

    def kill_node_of(self, pid: int) -> int:
        """Send SIGKILL to the node manager that runs this process, and to all that it started, as if its machine had
        failed. Returns the number of killed processes.
        """
        [node] = [found for found in psutil.Process(pid).parents() if found.pid in self._nodes]
        del self._nodes[node.pid]
        killed = _kill([node, *node.children(recursive=True)])
        [daemon] = [process for process in self._processes if process.pid == node.pid]
        daemon.wait()
        self._processes.remove(daemon)
        return killed

    def freeze_node_of(self, pid: int) -> Callable[[], None]:
        """Send SIGSTOP to the node manager that runs this process, and to all that it started, as if its machine had
        been suspended; the process itself goes on. Returns what resumes them.
        """
        [node] = [found for found in psutil.Process(pid).parents() if found.pid in self._nodes]
        frozen = [each for each in [node, *node.children(recursive=True)] if each.pid != pid]
        for process in frozen:
            process.suspend()

        def resume() -> None:
            for process in frozen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

        return resume

    def kill_container_of(self, pid: int) -> int:
        """Send SIGKILL to the JVM of the container that runs this process, as the kernel does when memory is short.
        Returns its process id.
        """
        process = psutil.Process(pid)
        jvm = next(each for each in [process, *process.parents()] if Path(each.exe()).name == "java")
        assert jvm.pid not in self._nodes, f"{pid} is not of a container"
        jvm.kill()
        return int(jvm.pid)

    def attempts(self, application: str) -> int:
        """How often an application's master was started."""
        found: list[object] = self._get(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"]
        return len(found)

    def logs(self, application: str) -> str:
        """What all of the application's containers have written, one after the other."""
        found = sorted(self.folder.glob(f"node-*/log/{application}/*/*"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')}" for file in found if file.is_file())

    def environment(self) -> dict[str, str]:
        """What spark-submit has on a machine that belongs to the cluster, and Python for `hdfs://`."""
        return {
            "HADOOP_CONF_DIR": str(self.conf),
            "HADOOP_HOME": str(self.home),
            "JAVA_HOME": str(java_home()),
            "CLASSPATH": self._class_path(),
        }

    def shell(self, *arguments: str | Path) -> str:
        """What `hdfs dfs` prints for these arguments."""
        done = subprocess.run(
            self._command("shell", *arguments), check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes.values():  # before the group: containers lead sessions of their own
            _kill([node, *node.children(recursive=True)])
        self._supervised.close()
        for process in self._processes:
            process.wait(30)

    def _configure(self) -> None:
        here, ports = "127.0.0.1", self._ports
        yarn = {
            "hostname": here,
            "address": f"{here}:{ports['resourcemanager']}",
            "scheduler.address": f"{here}:{ports['scheduler']}",
            "resource-tracker.address": f"{here}:{ports['tracker']}",
            "admin.address": f"{here}:{ports['admin']}",
            "webapp.address": f"{here}:{ports['web']}",
            "scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
        }
        node = {
            "address": f"{here}:0",
            "localizer.address": f"{here}:0",
            "webapp.address": f"{here}:0",
            "vmem-check-enabled": "false",
            "resource.memory-mb": "4096",
            "resource.cpu-vcores": "4",
            "disk-health-checker.enable": "false",
            "delete.debug-delay-sec": "3600",
            # Only what a node itself has; Spark's jars are read where PySpark has them.
            "env-whitelist": "JAVA_HOME,HADOOP_HOME",
        }
        lost = str(_LOST_AFTER_MS)
        self._write("core-site", {"fs.defaultFS": self.hdfs, "hadoop.tmp.dir": str(self.folder / "tmp")})
        self._write(
            "hdfs-site",
            {
                "dfs.replication": "1",
                "dfs.namenode.safemode.extension": "0",
                "dfs.namenode.http-address": f"{here}:0",
                **{f"dfs.datanode.{name}": f"{here}:0" for name in ("address", "http.address", "ipc.address")},
            },
        )
        self._write(
            "yarn-site",
            {
                **{f"yarn.resourcemanager.{name}": value for name, value in yarn.items()},
                **{f"yarn.nodemanager.{name}": value for name, value in node.items()},
                "yarn.nm.liveness-monitor.expiry-interval-ms": lost,
                "yarn.am.liveness-monitor.expiry-interval-ms": "60000",  # also from its start to its first word
                "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            },
        )
        (self.conf / "log4j.properties").write_text(_LOGGING)

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        properties = (f"<property><name>{n}</name><value>{escape(v)}</value></property>\n" for n, v in settings.items())
        (self.conf / f"{name}.xml").write_text(f"<configuration>\n{''.join(properties)}</configuration>\n")

    def _class_path(self) -> str:
        return ":".join(map(str, [self.conf, self.folder / "web", *files(HADOOP)]))

    def _command(self, program: str, *arguments: str | Path) -> list[str | Path]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "JAVA_HOME": str(java_home()),
            "HADOOP_HOME": str(self.home),
        }
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._class_path()]
        given = (f"{name}={value}" for name, value in environment.items())
        return ["env", "-i", *given, java(), *options, _PROGRAMS[program], *arguments]

    def _start(self, daemon: str, log: Path, *arguments: str) -> int:
        process = self._supervised.spawn(self._command(daemon, *arguments), log=log)
        self._processes.append(process)
        return process.pid

    def _get(self, path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self._ports['web']}/ws/v1/cluster/{path}", timeout=10) as answer:
            return json.load(answer)

    def _registered(self) -> int:
        """How many node managers the resource manager has known, also those that are lost since. One that was suspended
        registers again.
        """
        log = self.folder / "resourcemanager.log"
        return len(set(re.findall(r"NodeManager from node (\S+ \d+)", log.read_text())))

    def _leaves_safe_mode(self) -> bool:
        return bool(re.search("Safe mode is OFF|Leaving safe mode", (self.folder / "namenode.log").read_text()))

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended and time.monotonic() < deadline, f"not reached: {what}; logs in {self.folder}"
            time.sleep(0.1)  # there is no event for what a daemon has reached


def _kill(processes: list[psutil.Process]) -> int:
    killed = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed
