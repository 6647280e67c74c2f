"""What a Python file from outside consists of."""

from __future__ import annotations

from pathlib import Path

from harness.outside import with_helpers


def test_a_file_comes_with_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    files = {
        "mine.py": "import json, rules\n\ndef f():\n    from parts.inner import part\n",
        "rules.py": "import mine, more.rules\n",
        "more/__init__.py": "",
        "more/rules.py": "",
        "parts/__init__.py": "",
        "parts/inner.py": "import nothing",
        "other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [path.relative_to(tmp_path).as_posix() for path in with_helpers(tmp_path / "mine.py")]
    assert found[0] == "mine.py" and sorted(found) == sorted(files.keys() - {"other.py"})


def test_a_folder_that_only_has_the_name_of_an_import_is_not_gone_through(tmp_path: Path) -> None:
    for name in ("harness/__init__.py", "stuff/deep/one.py", "mine.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import harness, stuff, nowhere")
    assert with_helpers(tmp_path / "mine.py") == [tmp_path / "mine.py"]  # harness lies elsewhere, stuff is no package


def test_a_file_that_cannot_be_read_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def (")
    assert with_helpers(tmp_path / "mine.py") == [tmp_path / "mine.py"]


def test_an_installed_file_stands_for_itself(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name, text in {"mine.py": "import other", "other.py": ""}.items():
        (installed / name).write_text(text)
    assert with_helpers(installed / "mine.py") == [installed / "mine.py"]
