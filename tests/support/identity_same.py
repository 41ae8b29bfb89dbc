"""Scripts that share a loader: many ways to write one that loads the same with other options."""

from __future__ import annotations

from support.identity_same_configs import SAME_CONFIGS
from support.identity_same_datasets import SAME_DATASETS
from support.identity_same_functions import SAME_FUNCTIONS
from support.identity_same_idioms import SAME_IDIOMS
from support.identity_same_messages import SAME_MESSAGES
from support.identity_same_options import SAME_OPTIONS
from support.identity_same_scripts import SAME_SCRIPTS
from support.identity_same_whole_configs import SAME_WHOLE_CONFIGS
from support.identity_scripts import collected

SAME = collected(
    SAME_FUNCTIONS,
    SAME_DATASETS,
    SAME_CONFIGS,
    SAME_WHOLE_CONFIGS,
    SAME_MESSAGES,
    SAME_SCRIPTS,
    SAME_IDIOMS,
    SAME_OPTIONS,
)
