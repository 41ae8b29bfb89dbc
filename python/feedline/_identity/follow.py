"""Following the user's code to what it really reaches.

The code of ``make_loader`` isn't run but read, with the objects at hand that it refers to. A path
such as ``args.size`` is followed for as long as it is clear where it leads: through locals, into
the user's own functions, into the fields of the user's own objects. Where a value decides something
or is handed to a library, it is *used*: from there on all of it counts, and for sure once the
loader is made of it. What is computed from it is ``Derived``, and uses it once it is used itself;
so does a ``Choice``, which stands beside the things that a condition decides between.

=====================  =====================================================================
``values``             what an expression may stand for
``statements``         what code assigns, and which of several blocks runs
``expressions``        what an expression may stand for, by its kind
``conditions``         what decides whether something is true
``changes``            which fields calls have read, and which were changed since
``effects``            whether code did anything that others may notice
``calls``              what happens when something is called; then, by what it is:
``functions``          ... the user's functions
``classes``            ... the user's classes
``builtin_functions``  ... Python's own functions
``library_methods``    ... methods that aren't the user's
``standard_objects``   ... methods that look something up: of ini files, of context variables
``inert``              ... library code that only makes something of what it is given
``telling``            ... what only prints, logs or writes
``files``              which files are read and written; ``folders``, which are listed
``command_line``       what a parser gives that the loader calls itself
``additions``          what is added to lists and dicts that exist
``attributes``         what is found by a name
``containers``         what is found by a key or an iteration
``modules``            what is imported
``module_state``       what is read of modules that another process would import anew
``uses``               what counts, and what its code reaches
``objects``            which methods of an object others call
``certainty``          whether the loader surely depends on what is used
``recorder``           what has counted, by its label; ``entries`` is what comes of it
=====================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline._identity.additions import Additions
from feedline._identity.attributes import Attributes
from feedline._identity.builtin_functions import BuiltinFunctions
from feedline._identity.calls import Calls
from feedline._identity.changes import Changes
from feedline._identity.classes import Classes
from feedline._identity.conditions import Conditions
from feedline._identity.containers import Containers
from feedline._identity.effects import Effects
from feedline._identity.entries import Entry
from feedline._identity.expressions import Expressions
from feedline._identity.files import Files
from feedline._identity.functions import Functions
from feedline._identity.library_methods import LibraryMethods
from feedline._identity.module_state import ModuleState
from feedline._identity.modules import Modules
from feedline._identity.objects import Objects
from feedline._identity.recorder import Recorder
from feedline._identity.standard_objects import StandardObjects
from feedline._identity.statements import Statements
from feedline._identity.uses import Uses


class Follower:
    """Follows a function through all of its parts, each of which does one thing."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Nothing was followed yet; names of ``root_globals`` need no module before them."""
        self.effects = Effects()
        self.changes = Changes()
        self.module_state = ModuleState()
        self.recorder = Recorder(
            root_globals,
            meet=lambda value, label: self.uses.meet(value, label),
            meet_container=lambda value: self.additions.meet(value),
            use_target=lambda path: self.modules.use_target(path),
        )
        self.uses = Uses(self)
        self.objects = Objects(self)
        self.modules = Modules(self)
        self.additions = Additions(self)
        self.attributes = Attributes(self)
        self.containers = Containers(self)
        self.conditions = Conditions(self)
        self.expressions = Expressions(self)
        self.statements = Statements(self)
        self.calls = Calls(self)
        self.functions = Functions(self)
        self.classes = Classes(self)
        self.files = Files(self)
        self.builtins = BuiltinFunctions(self)
        self.methods = LibraryMethods(self)
        self.standard_objects = StandardObjects(self)

    def follow(self, make_loader: Callable[[], Any]) -> tuple[list[Entry], dict[str, str]]:
        """Everything that a function reaches, and what of it can't be compared."""
        self.recorder.root = make_loader
        function = self.recorder.known(make_loader, "make_loader")
        self.uses.use(self.calls.call((function,), [], {}))
        return self._finish()

    def follow_values(self, values: dict[str, Any]) -> tuple[list[Entry], dict[str, str]]:
        """The same for values, by their labels."""
        for label, value in values.items():
            self.uses.use((self.recorder.known(value, label),))
        return self._finish()

    def _finish(self) -> tuple[list[Entry], dict[str, str]]:
        self.uses.follow_all()
        self.additions.count_all = True  # for digests go through what stands there now
        self.recorder.digest_all(self.uses.follow_all)
        self.files.finish()
        return self.recorder.entries(), dict(self.recorder.opaque)
