"""Whether code that was followed did anything that others may notice."""

from __future__ import annotations

from feedline._identity.values import Maybe


class Effects:
    """Counts what code did: whoever looks before and after knows whether it did anything.

    =============  ==================================================================
    ``count``      something that others may read: a global was set
    ``outside``    something that can't be followed: a library was called
    ``raises``     an error that ends the program, unless the user's code catches it
    ``mutations``  a change of what is followed anyway: of a list or an object that is made
    =============  ==================================================================
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self.count = 0
        self.outside = 0
        self.raises = 0
        self.mutations = 0
        # The conditions that we are in, within the function that is being followed: they decide
        # whether a list or an object is changed.
        self.tests: Maybe = ()

    def noticed(self) -> tuple[int, int, int, int]:
        """Another one after code that did something, or raised."""
        return self.count, self.raises, self.mutations, self.outside

    def own(self) -> tuple[int, int, int]:
        """Another one after code that did something which is followed."""
        return self.count, self.raises, self.mutations
