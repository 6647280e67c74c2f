"""A run goes on and grows; what makes the tokens that it has must be what it was. Workers are alike
in all."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.options import checked
from harness.records.schema import Method, RunConfig, Setting
from harness.runs import describe
from harness.runs.alike import check_workers_alike, device_name
from harness.runs.describe import made_with, resolved_options
from harness.runs.folder import begin_meta, continued_options, unlike_settings
from harness.runs.loading import recorded
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve
from model_wrappers import load_backbone
from model_wrappers.decoders import Decoder
from model_wrappers.options import Options
from model_wrappers.request import Request

DATA = {
    "folder": "generated",
    "files": {"gsm8k": {"name": "test.jsonl", "sha256": "5" * 64, "items": 3, "prompts": "7" * 16}},
}


class Begun:
    """A run that was begun; `again` goes on with it, with what the machine, the code and the model
    are then."""

    def __init__(self, folder: Path, model: Path, timed: bool) -> None:
        self.folder, self.model = folder, model
        method = Method(label="FeF", method="fef", suites={"gsm8k": Setting()})
        self.config = RunConfig(methods={"fef-2": method}, device="cpu", timed=timed)
        folder.mkdir()
        self.backbone = load_backbone(model)
        self.plugins: dict[str, Any] = {}
        self.recorded: list[tuple[str, str, int]] = []
        self.again()

    def use_plugin(self, sha256: str) -> None:
        """Have the decoder from a plugin whose code has this hash."""
        plugin = {"plugin": "mine.py", "path": "mine.py", "sha256": sha256}
        self.plugins = {"plugins": [plugin | {"registered": {"decoders": ["fef"]}}]}

    def again(self, data: dict[str, Any] = DATA) -> list[str]:
        """Begin, or go on; what is noted."""
        backbones = {"mine": load_backbone(self.model)}
        made = made_with(recorded(self.config, DATA), backbones, data)
        return begin_meta(self.folder, self.config, made | self.plugins, recorded=self.recorded)


@pytest.fixture(params=[True])
def begun(tmp_path: Path, official_folder: Path, request: pytest.FixtureRequest) -> Begun:
    """A run with a model of its own."""
    shutil.copytree(official_folder, tmp_path / "model")
    return Begun(tmp_path / "run", tmp_path / "model", timed=request.param)


def environment_with(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    """From now on the environment is another one."""
    environment = describe.describe
    monkeypatch.setattr(describe, "describe", lambda *given: environment(*given) | change)


def test_the_same_run_goes_on_and_keeps_its_record(begun: Begun) -> None:
    before = (begun.folder / "run.json").read_bytes()
    begun.again()
    assert (begun.folder / "run.json").read_bytes() == before


def test_weights_that_changed_are_refused_by_file(begun: Begun) -> None:
    weights = next(begun.model.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(
        UserError, match=rf"weights.mine.sha256.{weights.name} \(.* there, .* now\).*--out"
    ):
        begun.again()


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "tokenizer.json"])
def test_a_file_beside_the_weights_that_changed_is_refused_by_name(begun: Begun, name: str) -> None:
    file = begun.model / name
    file.write_text(file.read_text() + "\n" if file.exists() else "{}")
    backbone = begun.backbone
    data = made_with(recorded(begun.config, DATA), {"mine": backbone}, DATA)
    with pytest.raises(UserError, match=rf"weights.mine.files.{name} \(.* now\)"):
        begin_meta(begun.folder, begun.config, data)


def test_a_file_of_problems_that_changed_is_noted(begun: Begun) -> None:
    data = deepcopy(DATA)
    data["files"]["gsm8k"]["sha256"] = "6" * 64  # type: ignore[index]
    (note,) = begun.again(data)
    assert note.startswith("data.gsm8k.sha256 (5555") and "now)" in note


def test_sets_among_options_are_recorded_in_one_order() -> None:
    class Named(Options):
        names: frozenset[str] = frozenset("edcbahgf")

    def decode_named(request: Request, options: Named) -> None: ...

    decode_named.__annotations__["options"] = Named
    decoder = Decoder(decode_named, "named")
    config = RunConfig(
        methods={"named": Method(method="named", role="base", suites={"gsm8k": Setting()})}
    )
    assert resolved_options(config, {"named": decoder}) == {
        "named": {"gsm8k": {"names": sorted("abcdefgh")}}
    }


def test_another_default_of_an_option_is_refused(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        describe, "resolved_options", lambda *_: {"fef-2": {"gsm8k": {"window": 8}}}
    )
    with pytest.raises(UserError, match=r"options.fef-2.gsm8k.*window \(16 there, 8 now\)"):
        begun.again()


def test_an_option_that_came_later_does_not_end_a_run(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its default changed no token when it came."""
    monkeypatch.setattr(
        describe, "resolved_options", lambda *_: {"fef-2": {"gsm8k": {"window": 16, "later": 0}}}
    )
    assert begun.again() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"packages": {"torch": "0.1"}}, r"packages.torch \(.* there, 0.1 now\)"),
        (
            {"cpu": "another"},
            r"machine.cpu \(.* there, another now\)",
        ),  # where seconds are compared
    ],
    ids=["package", "machine"],
)
def test_what_makes_tokens_or_seconds_is_refused_and_named(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], says: str
) -> None:
    environment_with(monkeypatch, change)
    with pytest.raises(UserError, match=says):
        begun.again()


def test_a_plugin_may_change_until_its_decoders_have_responses(begun: Begun) -> None:
    for sha256 in ("a" * 64, "b" * 64):
        begun.use_plugin(sha256)
        begun.again()
    begun.recorded = [("fef-2", "gsm8k", 0)]
    begun.use_plugin("c" * 64)
    with pytest.raises(UserError, match=r"take its methods' lines out of items\.jsonl and windows"):
        begun.again()


def test_a_commit_and_a_patch_release_of_python_are_noted(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment_with(monkeypatch, {"commit": "0123abcd", "python": "3.11.99"})
    notes = begun.again()
    assert len(notes) == 2 and "0123abcd now" in notes[0] and "3.11.99 now" in notes[1]


@pytest.mark.parametrize("begun", [False], indirect=True)
def test_another_machine_may_go_on_with_an_untimed_run(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment_with(monkeypatch, {"cpu": "another"})
    begun.again()


def config_of(methods: str, suites: str, **options: Any) -> RunConfig:
    given = {"methods": methods, "suite": suites, **options}
    return resolve(checked(RunOptions, given)).config


def test_a_run_may_have_more_items_methods_and_suites_and_a_trace() -> None:
    before = config_of("llada", "gsm8k", limit=2, threads=1)
    after = config_of("llada,fef-2", "math,gsm8k", limit=3, threads=1, trace=True)
    assert unlike_settings(before, after) == []
    untimed = config_of("llada", "gsm8k", untimed=True)
    for more in ({"threads": 2}, {"batch": 4}):
        assert unlike_settings(untimed, config_of("llada", "gsm8k", untimed=True, **more)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gen_length": 16}, "llada.suites.gsm8k.gen_length (48 there, 16 now)"),
        ({"seed": 1}, "seed (0 there, 1 now)"),
        ({"temperature": 0.5}, "temperature (0.0 there, 0.5 now)"),
        ({"threads": 2}, "threads (1 there, 2 now)"),  # of a timed run
        ({"dtype": "bfloat16"}, "dtype (float32 there, bfloat16 now)"),
        ({"model": "nano-long"}, "models.base.gsm8k (nano there, nano-long now)"),
        ({"data": "generated:7"}, "data (generated there, generated:7 now)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_method_whose_settings_differ_is_refused_by_name(
    change: dict[str, Any], says: str
) -> None:
    before = config_of("llada", "gsm8k", threads=1)
    assert says in unlike_settings(before, config_of("llada", "gsm8k", **({"threads": 1} | change)))


def test_what_a_run_has_already_joins_what_is_given(tmp_path: Path) -> None:
    config = resolve(
        checked(RunOptions, {"methods": "llada,fef(window=4)", "suite": "gsm8k", "limit": 5})
    ).config
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "config": config.to_json()}))
    given = {"methods": "ssd", "suite": "math", "limit": 3, "resume": True, "out": tmp_path}
    options = checked(RunOptions, given)
    whole = resolve(continued_options(options)).config
    assert set(whole.methods) == {"llada", "fef(window=4)", "ssd"}
    assert set(whole.suites) == {"gsm8k", "math"} and whole.limit == 5
    assert unlike_settings(config, whole) == []


def test_what_is_not_given_is_the_runs(tmp_path: Path) -> None:
    line = {
        "methods": "ssd",
        "suite": "math",
        "limit": 4,
        "gen_length": 16,
        "untimed": True,
        "data": "generated:3",
    }
    run = resolve(checked(RunOptions, line))
    meta = {"schema": 1, "config": run.config.to_json(), "options": run.given}
    (tmp_path / "run.json").write_text(json.dumps(meta))
    alone = checked(RunOptions, {"resume": True, "out": tmp_path})
    assert resolve(continued_options(alone)).config == run.config
    more = resolve(
        continued_options(
            checked(RunOptions, {"resume": True, "out": tmp_path, "methods": "llada"})
        )
    ).config
    assert (
        set(more.methods) == {"ssd", "llada"} and set(more.suites) == {"math"} and more.limit == 4
    )


def test_a_usual_value_that_is_given_is_no_value_that_is_left_out(tmp_path: Path) -> None:
    """README's four suites are the default, and join a run of one; temperature 0 is not that of the
    run."""
    run = resolve(
        checked(RunOptions, {"methods": "llada", "suite": "gsm8k", "limit": 2, "temperature": 0.5})
    )
    (tmp_path / "run.json").write_text(
        json.dumps({"schema": 1, "config": run.config.to_json(), "options": run.given})
    )
    line = {
        "resume": True,
        "out": tmp_path,
        "suite": RunOptions().suite,
        "methods": RunOptions().methods,
    }
    more = resolve(continued_options(checked(RunOptions, line))).config
    assert len(more.suites) == 4 and len(more.methods) == 4 and more.temperature == 0.5
    other = resolve(continued_options(checked(RunOptions, {**line, "temperature": 0.0}))).config
    assert "temperature (0.5 there, 0.0 now)" in unlike_settings(run.config, other)


# Workers
def has(gpu: str | None = "H100", **environment: Any) -> dict[str, Any]:
    return {
        "environment": {
            "commit": "c",
            "packages": {"torch": "2"},
            "cpu": "Xeon",
            "gpu": gpu,
            **environment,
        },
        "weights": {"nano": {"sha256": "5"}},
        "data": {"files": {"gsm8k": {"sha256": "6"}}},
        "code": {"options": {"fef-2": {"gsm8k": {"window": 7}}}},
    }


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("environment", "commit"), "commit"),
        (("environment", "packages", "torch"), "packages.torch"),
        (("weights", "nano", "sha256"), "weights.nano.sha256"),
        (("data", "files", "gsm8k", "sha256"), "data.gsm8k.sha256"),
        (("code", "options", "fef-2", "gsm8k", "window"), "options.fef-2.gsm8k.window"),
    ],
)
def test_what_makes_tokens_must_be_the_same(path: tuple[str, ...], said: str) -> None:
    other = deepcopy(has())
    part: Any = other
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "x"
    with pytest.raises(
        UserError, match=rf"n2 has something else than the first one: {said} \(.* there, x now\)"
    ):
        check_workers_alike(has(), other, "n2", timed=True)


def test_unlike_devices_are_refused_where_seconds_count_and_else_named_together() -> None:
    with pytest.raises(UserError, match=r"unlike devices, A100 and H100, .* add --untimed$"):
        check_workers_alike(has(), has("A100"), "n2", timed=True)
    first = has()
    check_workers_alike(first, has(), "n2", timed=True)
    assert first == has()  # of what is alike
    for gpu in ("A100", "H100", "A100", "L4"):
        check_workers_alike(first, has(gpu), "n2", timed=False)
    assert device_name(first) == "A100 and H100 and L4"
