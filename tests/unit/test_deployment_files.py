"""What a job needs on Kubernetes is well-formed and agrees with the job: manifests, pod template, Dockerfile."""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.kubernetes.pod_security import violations
from tests.pages import ROOT

FOLDER = ROOT / "conf" / "kubernetes"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
MANIFESTS = ["driver-pod-template", "job", "pod-template", "rbac", "storage"]
OLDEST = "1.31"  # with a stable podFailurePolicy


def closed(**fields: object) -> dict[str, object]:
    return {"type": "object", "properties": fields, "additionalProperties": False}


def listed(item: object) -> dict[str, object]:
    return {"type": "array", "items": item}


# The fields that are used of the operator's resource, with the types that its definition gives them (2.5.2).
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
MOUNTS = {"volumeMounts": listed(closed(name=TEXT, mountPath=TEXT))}
SWITCH = {"type": "boolean"}
SECURITY = closed(
    runAsUser=NUMBER, runAsGroup=NUMBER, fsGroup=NUMBER, runAsNonRoot=SWITCH, seccompProfile=closed(type=TEXT)
)
OF_CONTAINER = closed(
    allowPrivilegeEscalation=SWITCH, readOnlyRootFilesystem=SWITCH, capabilities=closed(drop=listed(TEXT))
)
POD = MOUNTS | {
    "cores": NUMBER,
    "memory": TEXT,
    "podSecurityContext": SECURITY,
    "securityContext": OF_CONTAINER,
    "secrets": listed(closed(name=TEXT, path=TEXT, secretType={"enum": ["Generic"]})),
}
SPARK_APPLICATION = closed(
    apiVersion={"const": "sparkoperator.k8s.io/v1beta2"},
    kind={"const": "SparkApplication"},
    metadata=closed(name=TEXT),
    spec=closed(
        type={"enum": ["Java", "Python", "Scala", "R"]},
        pythonVersion={"enum": ["2", "3"]},
        mode={"enum": ["cluster", "client"]},
        sparkVersion=TEXT,
        image=TEXT,
        mainApplicationFile=TEXT,
        arguments=listed(TEXT),
        restartPolicy=closed(
            type={"enum": ["Never", "Always", "OnFailure"]},
            onFailureRetries=NUMBER,
            onFailureRetryInterval=NUMBER,
            onSubmissionFailureRetries=NUMBER,
            onSubmissionFailureRetryInterval=NUMBER,
        ),
        sparkConf={"type": "object", "additionalProperties": TEXT},
        volumes=listed(closed(name=TEXT, persistentVolumeClaim=closed(claimName=TEXT), emptyDir=closed())),
        driver=closed(**POD, serviceAccount=TEXT),
        executor=closed(**POD, instances=NUMBER),
    ),
)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def parser() -> argparse.ArgumentParser:
    """Of the job that the manifests run."""
    found: argparse.ArgumentParser = runpy.run_path(str(ROOT / "jobs" / "copy_topic.py"))["arguments"]()
    return found


def driver_of_job() -> dict[str, Any]:
    [job] = documents("job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    return dict(container)


def arguments_of_job() -> list[str]:
    return arguments_of(driver_of_job())


def arguments_of(driver: dict[str, Any]) -> list[str]:
    """What the Job's driver passes to copy_topic.py."""
    arguments: list[str] = driver["args"]
    return arguments[arguments.index("/opt/spark/jobs/copy_topic.py") + 1 :]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version().rpartition(".")[0]])
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_the_fields_of_kubernetes_and_no_other(name, version):
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_have_is_noticed():
    [job] = documents("job")
    job["spec"]["podFailurePolicy"]["rules"][0]["onExitCode"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, OLDEST, strict=True)


def test_the_spark_application_has_the_fields_of_the_operator_and_no_other():
    [application] = documents("spark-application")
    jsonschema.validate(application, SPARK_APPLICATION)
    assert {"type", "driver", "executor", "mainApplicationFile", "sparkVersion"} <= application["spec"].keys()


def test_the_job_leaves_a_fenced_driver_alone_and_restarts_any_other():
    [job] = documents("job")
    spec = job["spec"]
    given = parser().parse_args(arguments_of_job())
    [fenced] = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert fenced == {"containerName": driver_of_job()["name"], "operator": "In", "values": [2, given.fenced_exit_code]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "podFailurePolicy demands it"
    assert spec["backoffLimit"] == 2**31 - 1


def test_the_operator_takes_a_fenced_driver_for_one_that_succeeded():
    [application] = documents("spark-application")
    spec = application["spec"]
    assert spec["restartPolicy"]["type"] == "OnFailure"
    assert parser().parse_args(spec["arguments"]).fenced_exit_code == 0


def test_both_manifests_run_the_same_query():
    [application] = documents("spark-application")
    queries = [vars(parser().parse_args(words)) for words in (arguments_of_job(), application["spec"]["arguments"])]
    assert queries[0] | {"fenced_exit_code": 0} == queries[1]
    image = application["spec"]["image"]
    assert driver_of_job()["image"] == image
    assert f"spark.kubernetes.container.image={image}" in driver_of_job()["args"]
    assert f"--tag {image} " in DOCKERFILE


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each manifest, in Kubernetes' form."""
    [job], [template], [application] = map(documents, ("job", "pod-template", "spark-application"))
    found = {"job": job["spec"]["template"]["spec"], "pod-template": template["spec"]}
    found["driver-pod-template"] = documents("driver-pod-template")[0]["spec"]
    for role in ("driver", "executor"):
        of = application["spec"][role]
        container = {"securityContext": of["securityContext"], "volumeMounts": of["volumeMounts"]}
        secrets = [{"name": each["name"], "secret": {}} for each in of["secrets"]]
        volumes = [*application["spec"]["volumes"], *secrets]
        found[role] = {"securityContext": of["podSecurityContext"], "containers": [container], "volumes": volumes}
    return found


@pytest.mark.parametrize("name", pods())
def test_each_pod_passes_the_restricted_profile_and_writes_to_its_volumes_only(name):
    pod = pods()[name]
    assert violations(pod) == []
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert (mounts["tmp"], mounts["work"]) == ("/tmp", "/opt/spark/work-dir")
        assert f"WORKDIR {mounts['work']}\n" in DOCKERFILE


def test_the_driver_that_spark_submit_starts_has_what_an_executor_has_and_the_token_that_it_needs():
    [driver], [executor] = documents("driver-pod-template"), documents("pod-template")
    assert driver["spec"].get("automountServiceAccountToken", True), "it asks Kubernetes for executors"
    assert executor["spec"].pop("automountServiceAccountToken") is False
    assert driver == executor
    page = (ROOT / "docs" / "deploying.md").read_text()
    assert "spark.kubernetes.driver.podTemplateFile=conf/kubernetes/driver-pod-template.yaml " in page
    assert "spark.kubernetes.executor.podTemplateFile=conf/kubernetes/pod-template.yaml " in page


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext": {"runAsNonRoot": True}}, "seccompProfile"),
        ({"containers": [{}]}, "capabilities"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, "host"),
    ],
)
def test_what_the_profile_forbids_is_noticed(change, found):
    assert found in violations(pods()["job"] | change)


def test_options_are_encrypted_on_their_way_to_the_executors_as_the_page_on_security_asks():
    asked = {f"spark.{name}" for name in ("authenticate", "network.crypto.enabled", "io.encryption.enabled")}
    page = (ROOT / "docs" / "security.md").read_text()
    assert all(f"`{name}`" in page for name in asked)
    arguments = driver_of_job()["args"]
    settings = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--conf"]
    assert {f"{name}=true" for name in asked} <= set(settings)
    [application] = documents("spark-application")
    assert application["spec"]["sparkConf"] == dict.fromkeys(asked, "true")


def test_without_storage_the_job_has_the_arguments_and_the_volume_of_the_page():
    page = (ROOT / "docs" / "kafka-checkpoint.md").read_text()
    shown = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    [job] = documents("job")
    pod = job["spec"]["template"]["spec"]
    [container], replaced = pod["containers"], {volume["name"]: volume for volume in shown["volumes"]}
    assert replaced.keys() <= {volume["name"] for volume in pod["volumes"]}
    pod["volumes"] = [replaced.get(each["name"], each) for each in pod["volumes"] if each["name"] != "checkpoints"]
    container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != "checkpoints"]
    container["args"][container["args"].index("--checkpoint") :] = shown["args"]
    kubernetes_validate.validate(job, OLDEST, strict=True)
    given = parser().parse_args(arguments_of(container))
    assert (given.checkpoint, given.starting_offsets) == (None, "committed-or-earliest")
    assert (given.properties, given.append_mode) == ("/etc/kafka/client.properties", "auto")


def test_driver_and_executors_find_the_secret_and_the_checkpoint_where_the_query_says():
    given = parser().parse_args(arguments_of_job())
    [application], [template] = documents("spark-application"), documents("pod-template")
    [executor] = template["spec"]["containers"]
    for pod in (driver_of_job(), executor, *(application["spec"][role] for role in ("driver", "executor"))):
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["volumeMounts"]}
        mounts |= {secret["name"]: secret["path"] for secret in pod.get("secrets", ())}
        assert str(Path(given.properties).parent) == mounts["kafka-client"]
        assert str(Path(given.checkpoint).parent) == mounts["checkpoints"]


def test_the_dockerfile_passes_its_linter():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, FOLDER / "Dockerfile"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_holds_the_jobs_and_the_python_that_spark_is_told_to_use():
    [copied] = re.findall(r"^COPY (\w+) (/opt/spark/\w+)$", DOCKERFILE, re.MULTILINE)
    assert (ROOT / copied[0] / "copy_topic.py").is_file()
    [application] = documents("spark-application")
    assert application["spec"]["mainApplicationFile"] == f"local://{copied[1]}/copy_topic.py"
    [made] = re.findall(r" -m venv (\S+)", DOCKERFILE)
    assert f"PYSPARK_PYTHON={made}/bin/python\n" in DOCKERFILE
    [sparks] = re.findall(r"^ARG SPARK_IMAGE=apache/spark:([\d.]+)-scala$", DOCKERFILE, re.MULTILINE)
    assert sparks == application["spec"]["sparkVersion"]


@pytest.mark.slow
def test_the_images_python_steps_run_and_the_connector_is_there(tmp_path):
    """In a folder in the place of /opt."""
    [requirements, install] = re.findall(r"^COPY (\S+) dist/\*\.whl (\S+)$", DOCKERFILE, re.MULTILINE)[0]
    folder = tmp_path / install.lstrip("/")
    folder.mkdir(parents=True)
    shutil.copy(ROOT / requirements, folder)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(build, check=True, timeout=120)
    [step] = re.findall(r"^RUN (python3 (?:.*\\\n)*.*)", DOCKERFILE, re.MULTILINE)
    step = step.replace("/opt/", f"{tmp_path}/opt/").replace("python3 -m", f"{sys.executable} -m")
    subprocess.run(["bash", "-ec", step], check=True, timeout=600)
    code = "import google_crc32c, kafka, numpy, pandas, pyarrow, spark_kafka_eos; print(spark_kafka_eos.__file__)"
    python = tmp_path / "opt" / "spark-kafka-eos" / "bin" / "python"
    found = subprocess.run(
        [python, "-I", "-c", code], check=True, capture_output=True, text=True, cwd="/", timeout=60
    ).stdout
    assert str(tmp_path) in found
