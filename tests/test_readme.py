"""The README names every option that there is, and no option that there is not."""

import re
from pathlib import Path

import pytest

from minitf.config import config_dir, config_groups, group_options

TEXT = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
ELSEWHERE = {"bench", "bug", "cache", "callbacks", "demo", "experiment", "model/ffn/expert", "model/head/pool"}


@pytest.mark.parametrize("group", sorted(set(config_groups()) - ELSEWHERE))
def test_every_option_is_named(group):
    missing = [option for option in group_options(group) if f"`{option}`" not in TEXT]
    assert not missing, f"{group}: {missing}"


def test_every_override_that_chooses_an_option_exists():
    groups = {group: group_options(group) for group in config_groups()}
    groups["study"].append("all")  # every file of the group
    typed = re.findall(r"(?:^|\s|`|\+)([a-z_/]+)(?:@[\w.]+)?=([a-z_0-9,]+)", TEXT, flags=re.M)
    unknown = [
        f"{group}={option}"
        for group, options in typed
        if group in groups
        for option in options.split(",")
        if option and option not in groups[group]
    ]
    assert not unknown
    assert (config_dir() / "train.yaml").is_file()
