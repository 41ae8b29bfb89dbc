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

_THEMES = (
    SAME_FUNCTIONS,
    SAME_DATASETS,
    SAME_CONFIGS,
    SAME_WHOLE_CONFIGS,
    SAME_MESSAGES,
    SAME_SCRIPTS,
    SAME_IDIOMS,
    SAME_OPTIONS,
)

SAME = {how: text for theme in _THEMES for how, text in theme.items()}

assert len(SAME) == sum(map(len, _THEMES)), "two variants of one name"
