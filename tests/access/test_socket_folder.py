"""Where feeds are found: the socket folder, and what a server leaves in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import feedline
from support.loaders import Numbered
from support.reading import expected, read


def test_a_folder_that_cannot_be_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a regular file: not even root can write there."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEEDLINE_DIR", str(tmp_path / "file" / "feeds"))
    with pytest.raises(feedline.FeedlineError) as error:
        feedline.Server(Numbered(10, 5), "train").start()
    assert str(tmp_path / "file" / "feeds") in str(error.value)
    assert "FEEDLINE_DIR" in str(error.value)


def test_a_folder_that_is_a_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEEDLINE_DIR", str(tmp_path / "file"))
    with pytest.raises(feedline.FeedlineError, match="FEEDLINE_DIR"):
        feedline.Server(Numbered(10, 5), "train").start()
    assert (tmp_path / "file").read_text() == ""


def test_a_folder_that_does_not_exist_yet_is_made_for_this_user_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder / "new" / "feeds"
    monkeypatch.setenv("FEEDLINE_DIR", str(made))
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        with feedline.attach("train", batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)
    assert not list(made.iterdir())
    made.rmdir()
    made.parent.rmdir()


def test_a_consumer_looks_without_making_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEEDLINE_DIR", str(folder / "nowhere"))
    assert feedline.feeds() == []
    with pytest.raises(feedline.FeedNotFoundError):
        feedline.attach("train", timeout_secs=0)
    assert not (folder / "nowhere").exists()


def test_a_path_longer_than_an_address_is_refused_with_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("d" * 60) / ("e" * 60)
    long.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("FEEDLINE_DIR", str(long))
    with pytest.raises(feedline.FeedlineError, match="FEEDLINE_DIR") as error:
        feedline.Server(Numbered(10, 5), "train", epochs=1).start()
    assert str(long) in str(error.value)
    assert "107" in str(error.value)
    assert not list(long.iterdir())
    long.rmdir()
    long.parent.rmdir()


def test_feeds_lists_what_runs(folder: Path) -> None:
    assert feedline.feeds() == []
    with feedline.Server(Numbered(10, 5), "b"), feedline.Server(Numbered(10, 5), "a"):
        found = sorted(feedline.feeds(), key=lambda info: info.name)
        assert [info.name for info in found] == ["a", "b"]
        assert {info.pid for info in found} == {os.getpid()}
        assert all(Path(info.path).parent == folder for info in found)
    assert feedline.feeds() == []


def test_what_is_no_feed_in_the_folder_does_not_disturb(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / "sub").mkdir()
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        assert [info.name for info in feedline.feeds()] == ["train"]
        with pytest.raises(feedline.FeedNotFoundError):
            feedline.attach("notes.txt", timeout_secs=0)
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    (folder / "sub").rmdir()


def test_two_folders_may_have_the_same_name_in_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        monkeypatch.setenv("FEEDLINE_DIR", str(folder / "other"))
        with (
            feedline.Server(Numbered(20, 5), "train", epochs=1),
            feedline.attach("train", batch_size=5) as feed,
        ):
            assert read(feed) == expected(0, 20, 5)
        monkeypatch.setenv("FEEDLINE_DIR", str(folder))
        with feedline.attach("train", batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)
    (folder / "other").rmdir()


def test_a_relative_folder_outlives_a_change_of_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FEEDLINE_DIR", "feeds")
    with (
        feedline.Server(Numbered(20, 5), "train", epochs=1),
        feedline.attach("train", batch_size=5) as feed,
    ):
        monkeypatch.chdir("/")
        assert read(feed) == expected(0, 20, 5)
    assert not list((folder / "feeds").iterdir())
    (folder / "feeds").rmdir()


def test_a_link_to_a_folder_is_as_good_as_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link's own mode means nothing: the mode of the folder that it leads to counts."""
    real, link = folder / "real", folder / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    monkeypatch.setenv("FEEDLINE_DIR", str(link))
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        assert [info.name for info in feedline.feeds()] == ["train"]
        with feedline.attach("train", batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)
    assert not list(real.iterdir())
    real.chmod(0o777)
    with pytest.raises(feedline.FeedlineError, match="777"):
        feedline.Server(Numbered(10, 5), "train").start()
    link.unlink()
    real.rmdir()
