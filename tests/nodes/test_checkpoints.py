"""Checkpoints are whole or not there, bounded in number, and checked before they are used."""

import os
import pathlib
from collections.abc import Callable

import pytest

from nodes.checkpoints import Checkpoints, Schedule
from tests.nodes.runtimes import FakeLauncher
from usage import UsageError


def write(text: str) -> Callable[[str], float]:
    def write_to(path: str) -> float:
        pathlib.Path(path, "text").write_text(text)
        return 0.25

    return write_to


def read(path: str) -> str:
    return pathlib.Path(path, "text").read_text()


def newest(launcher: FakeLauncher) -> pathlib.Path:
    return max(pathlib.Path(launcher.checkpoint_directory or "").glob("0*"))


@pytest.fixture
def launcher(tmp_path: pathlib.Path) -> FakeLauncher:
    return FakeLauncher(tmp_path)


@pytest.fixture
def checkpoints(launcher: FakeLauncher) -> Checkpoints:
    return Checkpoints(launcher, Schedule(period_seconds=1000.0, keep=2))


def test_the_newest_comes_back_and_no_more_than_wanted_are_kept(
    checkpoints: Checkpoints, launcher: FakeLauncher
) -> None:
    assert checkpoints.restore(read) is None
    for text in ("one", "two", "three"):
        checkpoints.save(write(text))
    assert checkpoints.restore(read) == "three"
    names = sorted(os.listdir(launcher.checkpoint_directory or ""))
    assert names == ["00000002", "00000003"]
    assert launcher.pauses == [0.25] * 3 and not launcher.warnings


@pytest.mark.parametrize("damage", ["shorter", "changed", "file gone", "manifest", "no manifest"])
def test_a_damaged_one_falls_back_to_the_one_before_with_a_warning(
    damage: str, checkpoints: Checkpoints, launcher: FakeLauncher
) -> None:
    checkpoints.save(write("one"))
    checkpoints.save(write("two"))
    file = newest(launcher) / ("manifest.json" if "manifest" in damage else "text")
    if damage in ("file gone", "no manifest"):
        file.unlink()
    else:
        file.write_text({"shorter": "tw", "changed": "owt", "manifest": "{"}[damage])
    assert checkpoints.restore(read) == "one"
    warning = launcher.warnings[0]
    assert warning.startswith("Checkpoint 2 is left out, as it cannot be read: ")
    checkpoints.save(write("three"))  # What is damaged is not one of those that are kept.
    names = sorted(os.listdir(launcher.checkpoint_directory or ""))
    assert names == ["00000001", "00000002", "damaged"]
    (newest(launcher) / "text").unlink()
    assert checkpoints.restore(read) == "one"
    assert sorted(os.listdir(launcher.checkpoint_directory or "")) == ["00000001", "damaged"]


def test_one_that_its_reader_refuses_falls_back_too(
    checkpoints: Checkpoints, launcher: FakeLauncher
) -> None:
    checkpoints.save(write("1"))
    checkpoints.save(write("two"))
    assert checkpoints.restore(lambda path: int(read(path))) == 1
    assert len(launcher.warnings) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("full")])
def test_one_that_cannot_be_saved_leaves_the_last_good_one(
    error: Exception, checkpoints: Checkpoints, launcher: FakeLauncher
) -> None:
    checkpoints.save(write("one"))

    def fail(path: str) -> float:
        pathlib.Path(path, "text").write_text("tw")
        raise error

    checkpoints.save(fail)
    assert checkpoints.restore(read) == "one"
    assert launcher.warnings == [f"A checkpoint was not saved: {error}"]
    assert os.listdir(launcher.checkpoint_directory or "") == ["00000001"]


def test_what_a_killed_save_left_behind_is_no_checkpoint(
    checkpoints: Checkpoints, launcher: FakeLauncher
) -> None:
    checkpoints.save(write("one"))

    def be_killed(path: str) -> float:
        pathlib.Path(path, "text").write_text("tw")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(be_killed)
    later = Checkpoints(launcher, Schedule())
    assert later.restore(read) == "one"
    later.save(write("two"))
    assert later.restore(read) == "two"


def test_they_are_due_by_their_schedule(launcher: FakeLauncher) -> None:
    assert not Checkpoints(launcher, Schedule(period_seconds=1000.0), phase=0.5).due
    checkpoints = Checkpoints(launcher, Schedule(period_seconds=1000.0), phase=0.0)
    assert checkpoints.due
    checkpoints.save(write("one"))
    assert not checkpoints.due


def test_without_a_directory_nothing_is_saved() -> None:
    launcher = FakeLauncher(None)
    checkpoints = Checkpoints(launcher, Schedule(), phase=0.0)
    assert not checkpoints.due
    checkpoints.save(write("one"))
    assert checkpoints.restore(read) is None and not launcher.pauses


@pytest.mark.parametrize("schedule", [{"period_seconds": 0.0}, {"keep": 0}])
def test_a_schedule_is_checked(schedule: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="got 0"):
        Schedule(**schedule)  # type: ignore[arg-type]
