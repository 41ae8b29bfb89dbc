"""What a dataset says of a sample that it does not have, in words that name the sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedline._dataloader import DataLoader


def beyond_the_dataset(
    error: BaseException, keys: list[Any], loader: DataLoader[Any]
) -> IndexError | None:
    """Return an error that says which sample of a sampler is not in the dataset.

    None if the dataset raised for another reason. Whatever it takes is its own affair, as with
    torch: many take -1 for their last sample.
    """
    if loader._orders_itself or not isinstance(error, IndexError):
        return None
    try:
        samples = len(loader.dataset)  # type: ignore[arg-type]
    except Exception:  # whatever it raises, nothing is known
        return None
    wrong = [key for key in keys if isinstance(key, int) and not 0 <= key < samples]
    if not wrong:
        return None
    sampler = type(loader.sampler if loader._batches_itself else loader.batch_sampler).__name__
    there = f"samples 0 to {samples - 1}" if samples else "no samples"
    return IndexError(
        f"{sampler} yielded sample {wrong[0]}, and {type(loader.dataset).__name__} has {there}"
    )
