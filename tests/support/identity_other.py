"""Scripts that share a loader: many ways to change what it loads."""

from __future__ import annotations

from support.identity_other_branches import OTHER_BRANCHES
from support.identity_other_chosen import OTHER_CHOSEN
from support.identity_other_code import OTHER_CODE
from support.identity_other_computed import OTHER_COMPUTED
from support.identity_other_conditions import OTHER_CONDITIONS
from support.identity_other_configs import OTHER_CONFIGS
from support.identity_other_dicts import OTHER_DICTS
from support.identity_other_idioms import OTHER_IDIOMS
from support.identity_other_loops import OTHER_LOOPS
from support.identity_other_options import OTHER_OPTIONS
from support.identity_other_scripts import OTHER_SCRIPTS
from support.identity_other_values import OTHER_VALUES
from support.identity_scripts import collected

OTHER = collected(
    OTHER_VALUES,
    OTHER_COMPUTED,
    OTHER_CODE,
    OTHER_CONDITIONS,
    OTHER_BRANCHES,
    OTHER_CONFIGS,
    OTHER_SCRIPTS,
    OTHER_CHOSEN,
    OTHER_DICTS,
    OTHER_IDIOMS,
    OTHER_OPTIONS,
    OTHER_LOOPS,
)
