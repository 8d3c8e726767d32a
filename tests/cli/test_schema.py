"""`frtop schema`: every verb with --json has a schema, which some test holds against its output."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from frtop_tui.cli import main
from frtop_tui.cli.parser import parser
from frtop_tui.cli.schema import schemas, types
from frtop_tui.registry import notes_on
from frtop_tui.text.jobs import jobs_document
from frtop_tui.text.json_document import document
from frtop_tui.text.stacks import stacks_document
from json_schemas import read_document
from screens.rare_scenes import SCENES as ODD
from screens.scenes import SCENES, hung

jsonschema = pytest.importorskip("jsonschema")
TESTS = Path(__file__).parents[1]


def test_every_verb_with_json_has_a_schema() -> None:
    verbs = parser()[1].choices
    with_json = {name for name, verb in verbs.items() if "--json" in verb._option_string_actions}
    described = {re.search(r"`frtop (\w+)", one.__doc__ or "") for one in types().values()}
    assert {found[1] for found in described if found} == with_json


def test_every_schema_is_held_against_what_its_verb_prints() -> None:
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    read = set(re.findall(r'"(frtop-[a-z-]+-\d+)"\)', tests))
    assert types().keys() <= read


def test_schemas_are_valid_and_printed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    known = schemas()
    for schema in known.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.split() == sorted(known)
    assert main(["schema", "frtop-jobs-1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(known["frtop-jobs-1"]))
    assert main(["schema", "frtop-diagnose-0"]) == 2
    assert "`frtop schema` lists them" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*SCENES, *ODD])
def test_documents_of_every_kind_of_job_are_of_their_schemas(name: str) -> None:
    frame = {**SCENES, **ODD}[name]()
    read_document(json.dumps(document(frame)), "frtop-diagnose-1")
    read_document(json.dumps(jobs_document(frame)), "frtop-jobs-1")
    for native in (False, True):
        stacks = stacks_document(frame.ranks.values(), frame.now_ns, native=native)
        read_document(json.dumps(stacks), "frtop-stacks-1")


def test_a_validator_accepts_a_verdict_with_what_features_add() -> None:
    printed = {**document(hung()), **notes_on(hung())}
    validator = jsonschema.Draft202012Validator(schemas()["frtop-diagnose-1"])
    validator.validate(json.loads(json.dumps(printed)))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**printed, "health": 3})
