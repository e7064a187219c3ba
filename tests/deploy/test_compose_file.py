"""The compose file and the Containerfile: ports, rights, secrets, variables, versions and copied files."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed import FOLDER, WITH_SECRETS, composed, variables

from audit_pipeline.pipeline.dagster.conditions import PUBLISHING_IS_ON

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (FOLDER / "Containerfile").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = composed()["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "postgres"}


def test_only_the_ui_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if service.get("ports")}
    assert published == {"webserver": ["127.0.0.1:3000:3000"]}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_whether_it_is_well_and_waits_for_those_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD", "no shell between"
    assert {"interval", "timeout", "retries"} <= set(service["healthcheck"])
    waits_for = service.get("depends_on", {})
    assert all(one["condition"] == "service_healthy" for one in waits_for.values())
    assert set(waits_for) == {"postgres": set(), "code": {"postgres"}}.get(name, {"code"})
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_our_services_have_no_rights_and_no_secret_in_sight(name: str) -> None:
    service = OURS[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "user" not in service, "the image's own, which is not root"
    assert not [key for key in service["environment"] if key.endswith("PASSWORD")]
    assert service["environment"]["CORPUS_AUDIT_PG_PASSWORD_FILE"] == "/run/secrets/postgres_password"
    assert service["secrets"] == ["postgres_password"]


@pytest.mark.parametrize("name", OURS)
def test_every_service_publishes_and_marks_cells_as_planned_when_they_begin(name: str) -> None:
    environment = OURS[name]["environment"]
    assert environment[PUBLISHING_IS_ON] == environment["DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS"] == "1"


def test_texts_and_models_are_in_one_service_alone() -> None:
    with_data = [name for name, one in SERVICES.items() if any("/data" in str(volume) for volume in one["volumes"])]
    assert with_data == ["postgres", "code"]
    assert not any("corpus-audit/data" in volume for volume in SERVICES["postgres"]["volumes"])
    named = {str(volume).split(":")[0] for one in SERVICES.values() for volume in one["volumes"]}
    assert named - {"./config"} == set(composed()["volumes"])


def test_every_variable_is_explained_at_the_top() -> None:
    top = (FOLDER / "compose.yaml").read_text(encoding="utf-8").split("\nname:")[0]
    assert variables() == set(re.findall(r"^#     (\w+) {2,}", top, re.MULTILINE))


def test_images_have_versions() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert all(re.search(r":\d", image) for image in images), images


def test_the_gpu_file_changes_a_service_that_there_is() -> None:
    assert set(composed("compose.gpu.yaml")["services"]) <= set(SERVICES)


def test_dagster_yaml_is_that_of_the_documentation() -> None:
    page = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
    documented = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert documented is not None
    assert (FOLDER / "dagster.yaml").read_text(encoding="utf-8") == documented[1]


def test_the_code_location_has_one_name_and_one_address() -> None:
    (server,) = yaml.safe_load((FOLDER / "workspace.yaml").read_text(encoding="utf-8"))["load_from"]
    (module,) = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))["load_from"]
    assert server["grpc_server"]["location_name"] == module["python_module"]["location_name"]
    command = SERVICES["code"]["command"]
    assert command[command.index("--module-name") + 1] == module["python_module"]["module_name"]
    assert command[command.index("--port") + 1] == str(server["grpc_server"]["port"])
    assert server["grpc_server"]["host"] in SERVICES


def test_the_image_is_built_with_the_pins_and_run_by_nobody_in_particular() -> None:
    torch = re.search(r"^ARG TORCH=(.+)$", CONTAINERFILE, re.MULTILINE)
    assert torch is not None
    assert torch[1] in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    installs = re.findall(r"pip install .*?(?=&&|;|\n(?! ))", CONTAINERFILE, re.DOTALL)
    assert len(installs) == 3
    assert all("--constraint constraints.txt" in one for one in installs)
    last_user = re.findall(r"^USER (\d+)", CONTAINERFILE, re.MULTILINE)[-1]
    assert int(last_user) > 0
    assert "HEALTHCHECK" in CONTAINERFILE


def _copied() -> list[str]:
    return [
        one.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
        for one in line.split()[:-1]
    ]


def test_the_image_has_every_input_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]} <= set(_copied())


def test_dockerignore_admits_the_copied_files_and_not_the_data_folder() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = _copied()
    assert len(copied) > 5
    assert all((ROOT / one).exists() and f"!{one}" in let_in for one in copied)
    assert let_in[1] == "*"
    assert [line for line in let_in if "data" in line and line.startswith("!")] == ["!data/README.md"]


def test_no_terminal_stands_between_a_service_and_a_file() -> None:
    """A terminal ends lines with two characters, which would corrupt a dump of a database."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    redirected = re.findall(r"^ +\S+ compose (exec .*[<>].*)$", page, re.MULTILINE)
    assert len(redirected) == 2
    assert all(one.startswith("exec -T ") for one in redirected)


def test_secrets_reach_the_command_from_their_files(tmp_path: Path) -> None:
    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        code = 'printf "%s|%s" "${CORPUS_AUDIT_PG_PASSWORD-unset}" "${HF_TOKEN-unset}"'
        return subprocess.run(
            ["/bin/sh", str(WITH_SECRETS), "/bin/sh", "-c", code],
            env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    secret = tmp_path / "with 'quotes' and $(id)"
    secret.write_text("p a$s\"s'`w\n", encoding="utf-8")
    assert run(CORPUS_AUDIT_PG_PASSWORD_FILE=str(secret)).stdout == "p a$s\"s'`w|unset"
    assert run(CORPUS_AUDIT_PG_PASSWORD="given", HF_TOKEN="t").stdout == "given|t"
    gone = run(HF_TOKEN_FILE=str(tmp_path / "gone"))
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "HF_TOKEN_FILE names" in gone.stderr
