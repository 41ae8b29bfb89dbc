"""A batch on its way to a device stays until it has arrived. Events stand for a GPU's here."""

from __future__ import annotations

import pickle
import weakref
from typing import Any

import torch

import feedline
from feedline._postprocess import Copies, Postprocess

META = torch.device("meta")


class Device:
    """A device that has done its copies up to `reached`; a wait for one of them moves it there."""

    def __init__(self) -> None:
        self.told = 0
        self.reached = 0

    def record(self) -> Event:
        self.told += 1
        return Event(self, self.told)


class Event:
    def __init__(self, device: Device, at: int) -> None:
        self._device = device
        self._at = at

    def query(self) -> bool:
        return self._device.reached >= self._at

    def synchronize(self) -> None:
        self._device.reached = max(self._device.reached, self._at)


def postprocess_on(device: Device) -> Postprocess:
    return Postprocess(None, False, META, Copies(device.record))


def test_the_source_is_held_until_the_copy_is_done() -> None:
    device = Device()
    finish = postprocess_on(device)
    sources = []
    for _ in range(3):
        batch: dict[str, Any] = {"x": torch.ones(4), "more": [torch.ones(4)]}
        sources.append(weakref.ref(batch["more"][0]))
        assert finish(batch)["more"][0].device == META
        del batch
    assert [source() is not None for source in sources] == [True, True, True]
    device.reached = 2
    finish({})
    assert [source() is not None for source in sources] == [False, False, True]


def test_a_loop_that_is_far_ahead_waits_for_the_device() -> None:
    """Or it would hold all of the ring."""
    device = Device()
    finish = postprocess_on(device)
    for _ in range(10):
        finish(torch.ones(4))
    assert (device.told, device.reached) == (10, 10 - Copies.MOST)


def test_a_batch_in_the_ring_is_not_overwritten_under_the_copy() -> None:
    """As many leases are alive as copies are under way, though the loop has let go of all."""
    device = Device()
    batches = [torch.full((4,), number) for number in range(20)]
    with (
        feedline.Server(batches, "train", ring=400, epochs=1),
        feedline.attach("train", device="meta") as feed,
    ):
        feed._attachment.postprocess = postprocess_on(device)
        for number, _ in enumerate(feed, 1):
            assert feed.stats()["leases"] == min(number, Copies.MOST)


def test_what_is_copied_at_once_is_not_held() -> None:
    """Without a GPU that the device could be, there is nothing to wait for."""
    postprocess = Postprocess(None, False, META)
    batch = torch.ones(4)
    source = weakref.ref(batch)
    postprocess([batch])
    del batch
    assert source() is None


def test_a_copy_of_it_has_copies_of_its_own() -> None:
    device = Device()
    finish = postprocess_on(device)
    finish(torch.ones(4))
    again = pickle.loads(pickle.dumps(finish))
    assert (again.device, again(torch.ones(4)).device) == (META, META)
    assert device.told == 1
