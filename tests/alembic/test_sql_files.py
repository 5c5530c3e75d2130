"""Rules that the loader relies on, checked over every SQL file that is shipped."""

import re
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

from sqlalchemy_fairqueue import sql
from sqlalchemy_fairqueue.sql import files as sql_files
from sqlalchemy_fairqueue.sql import grants
from sqlalchemy_fairqueue.sql.__main__ import script
from sqlalchemy_fairqueue.sql.schema import in_schema, quoted
from sqlalchemy_fairqueue.sql.statements import in_order
from tests.alembic.conftest import LADDER, LATEST

pytestmark = pytest.mark.installed

ROOT = Path(str(files(sql)))
SHIPPED = tuple(sql_files.FOLDERS)
FILES = sorted((*ROOT.glob("v*/**/*.sql"), *LADDER.rglob("*.sql")))
TOKENS = re.compile(r"(?P<comment>--[^\n]*)|(?P<literal>'(?:[^']|'')*')|(?P<name>\"(?:[^\"]|\"\")*\")")


@pytest.fixture(params=sorted({path.parent for path in FILES}), ids=lambda folder: folder.name)
def texts(request: pytest.FixtureRequest) -> dict[str, str]:
    """The texts of a folder's files."""
    return {path.name: path.read_text(encoding="utf-8") for path in FILES if path.parent == request.param}


def test_qualifier_stands_only_where_an_identifier_does(texts: dict[str, str]) -> None:
    """``fairqueue`` is written as a qualifier of ours, and never in a comment, a string or a longer word."""
    for name, text in texts.items():
        for kind in TOKENS.finditer(text):
            assert "fairqueue" not in kind[0], name
        assert len(re.findall("fairqueue", text)) == len(re.findall(r"(?<![\w.\"$])fairqueue\.fq_\w+", text)), name


def test_functions_are_short(texts: dict[str, str]) -> None:
    """A function is a step that fits a page: at most 150 lines, its header included."""
    assert {name for name, text in texts.items() if text.count("\n") > 150} == set()


def test_nothing_of_ours_is_named_without_the_qualifier(texts: dict[str, str]) -> None:
    """Functions and tables are never found by the search_path: it is pinned to PostgreSQL's own schema."""
    ours = {*sql_files.functions(LATEST), *sql_files.tables(LATEST)}
    for file, text in texts.items():
        code = TOKENS.sub("", text)
        assert [name for name in re.findall(r"(?<![\w.])(fq_\w+)(?!\w)", code) if name in ours] == [], file


def test_quotes_of_a_body_are_plain(texts: dict[str, str]) -> None:
    """Bodies are between ``$$``, and there is no other dollar sign: the loader gives the quotes a name."""
    for name, text in texts.items():
        assert text.count("$$") % 2 == 0, name
        assert text.count("$") == 2 * text.count("$$"), name


def test_stem_is_the_name() -> None:
    """Each file makes what it is called, once, and table files make nothing but tables and what belongs to them."""
    for version in sql_files.versions():
        for name, text in sql_files.functions(version).items():
            assert re.findall(r"^create function fairqueue\.(\w+)\(", text, re.MULTILINE) == [name]
            assert not text.endswith(";")
        for name, statements in sql_files.tables(version).items():
            first, *others = [TOKENS.sub("", statement).strip() for statement in statements]
            assert re.match(rf"create (unlogged )?table fairqueue\.{name} \(", first)
            for other in others:
                assert re.match(
                    rf"create (unique )?index {name}_\w+ on fairqueue\.{name} |alter table fairqueue\.{name}(_\w+)? "
                    rf"|create table fairqueue\.{name}_\w+ partition of fairqueue\.{name} ",
                    other,
                )


def test_every_function_has_its_roles() -> None:
    """roles.toml says of each function which kinds of work may execute it; [] for those that others of ours call."""
    listed, known = grants.function_roles(LATEST), sql_files.functions(LATEST)
    missing, gone = sorted(known.keys() - listed.keys()), sorted(listed.keys() - known.keys())
    assert (missing, gone) == ([], []), "change sql/v1/roles.toml, then run: python -m tests.roles.page"


def test_each_folder_is_a_version() -> None:
    """The versions that the library says it knows are the folders that it ships, and it needs one of them."""
    known = range(1, len(SHIPPED) + 1)
    assert sorted(path.name for path in ROOT.glob("v*")) == [f"v{version}" for version in known]
    assert [folder.name for folder in SHIPPED] == [f"v{version}" for version in known]
    assert sql_files.NEEDED_VERSION in known


def test_relations_are_every_name_that_the_tables_take() -> None:
    """Tables, indexes and the indexes of constraints are listed, and check constraints, which take no name, are not."""
    names = sql_files.relations(1)
    assert {"fq_message", "fq_message_pkey", "fq_message_ready_ix", "fq_channel_queue_name_key"} < set(names)
    assert not [name for name in names if name.endswith("_check")]


def test_every_statement_beside_the_versions_is_sent() -> None:
    """What asks the catalog, and each part of a block, is named by a module: a file that nothing sends is none."""
    code = "".join(file.read_text() for file in ROOT.glob("*.py"))
    beside = [*ROOT.glob("queries/*.sql"), *ROOT.glob("blocks/*.sql")]
    assert [file.stem for file in beside if f'"{file.stem}"' not in code] == []


def test_works_from_a_zip(tmp_path: Path) -> None:
    """The statements are the same when the package is imported from an archive."""
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in ROOT.parent.rglob("*"):
            if path.suffix in {".py", ".sql", ".json"}:
                made.write(path, path.relative_to(ROOT.parent.parent))
    program = (
        "import sqlalchemy_fairqueue.sql as s; print(s.__file__, *s.install_statements(1, 'x'), sep=chr(0), end='')"
    )
    command, environment = [sys.executable, "-c", program], {"PYTHONPATH": str(archive)}
    # The working directory comes before PYTHONPATH.
    told = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    place, *statements = told.split("\0")
    assert place.startswith(str(archive))
    assert statements == list(sql.install_statements(1, "x"))


@pytest.mark.parametrize("schema", ["plain", 'My "odd" %:schema', "a$$b", "it's", "fairqueue", "fq_"])
def test_only_the_qualifier_is_replaced(schema: str) -> None:
    """Putting the qualifier back where the schema stands gives the file again."""
    for text in sql_files.functions(1).values():
        made = in_schema(text, schema)
        back = made.replace(f"{quoted(schema)}.fq_", "fairqueue.fq_").replace("$fairqueue$", "$$")
        assert back == text


def test_functions_in_sql_come_after_those_that_they_call() -> None:
    """PostgreSQL looks for what a function in SQL calls when it is made: what is called is made before."""
    for version in sql_files.versions():
        made: set[str] = set()
        for name, text in in_order(sql_files.functions(version)).items():
            if "language sql" in text:
                called = set(re.findall(r"fairqueue\.(\w+)\(", text)) & sql_files.functions(version).keys()
                assert called <= {*made, name}
            made.add(name)
        assert made == sql_files.functions(version).keys()


@pytest.mark.parametrize("way", ["install 1", "install 2", "upgrade 1 2", "downgrade 2 1", "drop 1"])
def test_script(way: str) -> None:
    """A version can be had as a script of one transaction, for those who have no Alembic."""
    first, *_, last = script([*way.split(), "--schema", "apps"]).splitlines()
    assert (first, last) == ("begin;", "commit;")


@pytest.mark.parametrize("way", ["install", "install x", "upgrade 1", "climb 1 2"])
def test_script_needs_to_be_told(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that make no sense are told apart from the script, on the other stream."""
    with pytest.raises(SystemExit, match="2"):
        script(way.split())
    assert capsys.readouterr().out == ""
