"""Layouts in files."""

import pathlib

import pytest

from launchers import layout
from launchers.layout import GroupLayout, Layout
from nodes.contract import RestartBudget
from usage import UsageError


def read(directory: pathlib.Path, text: str) -> Layout:
    file = directory / "layout.toml"
    file.write_text(text)
    return layout.read(str(file))


def test_a_file_says_what_python_would(tmp_path: pathlib.Path) -> None:
    text = """
        [actor]
        restart = { count = 100, window_seconds = 3600 }

        [evaluator]
        on_failure = "ignore"
        stop_seconds = 2.5
        gpus = 1
    """
    assert read(tmp_path, text) == Layout(
        {
            "actor": GroupLayout(restart=RestartBudget(count=100, window_seconds=3600)),
            "evaluator": GroupLayout(gpus=1, on_failure="ignore", stop_seconds=2.5),
        }
    )


@pytest.mark.parametrize(
    "text, said",
    [
        ("[actor", "is no TOML"),
        ("actor = 3", "[actor]: a table is wanted, got 3"),
        ("[actor]\ngpu = 1", "[actor]: Unknown field 'gpu': did you mean gpus or cpus?"),
        ("[actor]\ngpus = 'all'", "[actor]: gpus wants a number, got 'all'"),
        ("[actor]\ngpus = 1.5", "[actor]: gpus must be a whole number, or a part of one, got 1.5"),
        ("[actor]\ngpus = 1e-5", "[actor]: gpus must be 0, or at least 0.0001, got 1e-05"),
        ("[actor]\ncpus = true", "[actor]: cpus wants a number, got True"),
        ("[actor]\nmemory = inf", "[actor]: memory must be at least 0, got inf"),
        ("[actor]\nhost = 3", "[actor]: host wants a string, got 3"),
        ("[actor]\nplace = 'far'", "place wants one of pack, spread, one_per_host, got 'far'"),
        ("[actor]\nenv = { A = 1 }", "[actor]: env wants a table of strings, got {'A': 1}"),
        ("[actor]\nenv = { 'B=C' = 'x' }", "[actor]: env cannot have 'B=C' with the value 'x'"),
        ("[actor]\ngpus = -1", "[actor]: gpus must be at least 0, got -1"),
        (
            "[actor]\non_failure = 'cry'",
            "[actor]: on_failure wants one of stop, restart, ignore, got 'cry'",
        ),
        ("[actor]\nrestart = { counts = 1 }", "[actor.restart]: Unknown field 'counts'"),
        ("[actor]\nrestart = { count = -1 }", "[actor.restart]: count must be at least 0"),
        ("[actor]\nrestart = 5", "[actor]: restart wants a table, got 5"),
    ],
)
def test_mistakes_are_told_in_one_sentence(text: str, said: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        layout.read(str(tmp_path / "layout.toml"))
