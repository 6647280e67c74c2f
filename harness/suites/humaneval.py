"""HumanEval: a signature and a docstring to complete. Generated problems are a few arithmetic steps
on two numbers."""

from random import Random

from harness.suites.mbpp import CHANGES, NOUNS, RESULTS, VERBS, function_of
from harness.suites.spec import Generator, Problem, Row, Suite, human, json_lines


def draw(rng: Random) -> Problem:
    """Draw a function of two to four arithmetic steps on two numbers, described by a docstring."""
    a, b = rng.choice((("a", "b"), ("x", "y"), ("n", "m"), ("p", "q")))
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    base = rng.choice(("sum", "product", "difference", "maximum", "minimum"))
    later = [(rng.choice(tuple(CHANGES)), rng.randint(2, 9)) for _ in range(rng.randint(1, 3))]
    later_words = "".join(f", {word} {k}" for word, k in later)
    signature = f"def {name}({a}, {b}):\n"
    prompt = f'{signature}    """Return the {base} of {a} and {b}{later_words}."""\n'
    response = signature + _arithmetic_body(rng, base, a, b, later)
    # The reference response is run, so that the checks are right by construction.
    function = function_of(response, name)
    checks = "".join(
        f"    assert candidate({u}, {v}) == {function(u, v)}\n"
        for u, v in ((3, 5), (7, 2), (4, 4), (0, 9), (12, 8))
    )
    row = {
        "prompt": prompt,
        "entry_point": name,
        "canonical_solution": response.removeprefix(signature),
        "test": f"def check(candidate):\n{checks}",
    }
    return Problem(f"humaneval {base}{later_words}", prompt, response, row)


def _arithmetic_body(rng: Random, base: str, a: str, b: str, later: list[tuple[str, int]]) -> str:
    """The body of the function in one of several styles. later: the steps after the first one."""
    # Only a difference depends on the order.
    left, right = (a, b) if base == "difference" or rng.random() < 0.5 else (b, a)
    infix = {"sum": "+", "product": "*", "difference": "-"}
    first = f"{left} {infix[base]} {right}" if base in infix else f"{base[:3]}({left}, {right})"
    style = rng.choice(("expression", "update", "rebind", "two names"))
    if style == "expression":
        whole = first
        for word, k in later:
            whole = f"({whole}) {CHANGES[word]} {k}"
        return f"    return {whole}\n"
    name, second = rng.sample(RESULTS, 2)
    lines = [f"{name} = {first}"]
    for word, k in later[:-1] if style == "two names" else later:
        lines.append(
            f"{name} {CHANGES[word]}= {k}"
            if style == "update"
            else f"{name} = {name} {CHANGES[word]} {k}"
        )
    if style == "two names":
        word, k = later[-1]
        lines.append(f"{second} = {name} {CHANGES[word]} {k}")
        name = second
    lines.append(f"return {name}")
    return "".join(f"    {line}\n" for line in lines)


def numbered(rows: list[Row]) -> str:
    """Rows in the format of HumanEval's file: every problem has a task_id."""
    return json_lines(
        [{"task_id": f"HumanEval/{number}", **row} for number, row in enumerate(rows)]
    )


SUITE = Suite(
    name="humaneval",
    title="HumanEval",
    configuration="humaneval_gen_8e312c",
    base_fault=(
        "judges chat models, and calls every response of a base model wrong that is the body of a"
        " function alone; opencompass:internal_humaneval_v2_new_gen is for base models"
    ),
    file="humaneval/human-eval-v2-20210705.jsonl",
    lengths={"gen_length": 512, "block_length": 512, "options": {"logits_eos_inf": True}},
    generator=Generator(
        draw=draw,
        file="humaneval/human-eval-v2-20210705.jsonl",
        content=numbered,
        dataset="opencompass.datasets.HumanevalDataset",
        columns=("prompt",),
        output="task_id",
        reader={"train_split": "test"},
        rounds=human("{prompt}"),
        evaluation={
            "evaluator": {"type": "opencompass.datasets.HumanEvalEvaluator", "k": [1]},
            "pred_postprocessor": {"type": "opencompass.datasets.humaneval_postprocess_v2"},
        },
        length=48,
    ),
    executes=True,
)
