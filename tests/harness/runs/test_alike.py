"""Workers must have the same weights, problems, code and packages; unlike devices must be allowed by name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from harness.errors import UserError
from harness.runs.folder import check_alike, device_name


def has(gpu: str | None = "H100", **environment: Any) -> dict[str, Any]:
    return {
        "environment": {"commit": "c", "packages": {"torch": "2"}, "cpu": "Xeon", "gpu": gpu, **environment},
        "weights": {"nano": {"sha256": "5"}},
        "data": {"files": {"gsm8k": {"sha256": "6"}}},
        "code": {"shared": "7"},
    }


def test_workers_that_are_alike_pass_and_nothing_changes() -> None:
    first = has()
    check_alike(first, has(), "n2", [])
    assert first == has()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("environment", "commit"), "environment.commit"),
        (("environment", "packages", "torch"), "environment.packages.torch"),
        (("weights", "nano", "sha256"), "weights.nano.sha256"),
        (("data", "files", "gsm8k", "sha256"), "data.gsm8k.sha256"),
        (("code", "shared"), "code.shared"),
    ],
)
def test_what_makes_tokens_must_be_the_same(path: tuple[str, ...], said: str) -> None:
    other = deepcopy(has())
    part: Any = other
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "x"
    with pytest.raises(
        UserError, match=rf"worker n2 has something else than the first one: {said} \(.* there, x now\)"
    ):
        check_alike(has(), other, "n2", ["H100"])


def test_unlike_devices_are_refused_with_the_option_that_allows_them() -> None:
    with pytest.raises(UserError, match=r'unlike devices, A100 and H100, .* --allow-devices "A100; H100"$'):
        check_alike(has(), has("A100"), "n2", ["H100"])


def test_devices_that_are_allowed_are_named_together_whatever_comes_later() -> None:
    first = has()
    for gpu in ("A100", "H100", "A100", "L4"):
        check_alike(first, has(gpu), "n2", ["A100", "H100", "L4"])
    assert device_name(first) == "A100 and H100 and L4"


def test_processors_are_devices_where_there_is_no_gpu() -> None:
    with pytest.raises(UserError, match=r'--allow-devices "EPYC; Xeon"'):
        check_alike(has(None), has(None, cpu="EPYC"), "n2", [])
