"""MATH with all 5,000 test problems, and MATH-500, a selection. Generated problems are linear
equations with a whole solution."""

import json
from random import Random

from harness.suites.spec import BOXED, Generator, Problem, Row, Suite, Training, human


def draw(rng: Random) -> Problem:
    r"""Draw a linear equation in x whose solution is 1 to 9; the answer is in \boxed{}."""
    kind = rng.choice(("plain", "bracket", "both"))
    a = rng.randint(2, 5)
    b = rng.randint(1, 12)
    x = rng.randint(1, 9)
    if kind == "plain":
        c = a * x + b
        equation = f"{a}x + {b} = {c}"
        work = rng.choice(
            (
                f"Subtract {b} to get {a}x = {a * x}. Divide by {a}:",
                f"We have {a}x = {c} - {b} = {a * x}, so",
                f"Take away {b} on both sides. Now {a}x = {a * x} and",
                f"Since {a}x = {a * x},",
            )
        )
    elif kind == "bracket":
        c = a * (x + b)
        equation = f"{a}(x + {b}) = {c}"
        work = rng.choice(
            (
                f"Divide by {a}: x + {b} = {x + b}. Subtract {b}:",
                f"We have x + {b} = {c} / {a} = {x + b}, so",
                f"Expand: {a}x + {a * b} = {c}. Thus {a}x = {a * x} and",
                f"Since x + {b} = {x + b},",
            )
        )
    else:
        d = rng.randint(1, a - 1)
        c = (a - d) * x + b
        equation = f"{a}x + {b} = {d}x + {c}"
        work = rng.choice(
            (
                f"Subtract {d}x and {b} to get {a - d}x = {(a - d) * x}. Hence",
                f"Collect x: {a - d}x + {b} = {c}. Thus {a - d}x = {(a - d) * x} and",
                f"Subtract {b}: {a}x = {d}x + {c - b}. Now {a - d}x = {(a - d) * x}, so",
            )
        )
        kind = f"both {d}"
    end = rng.choice(
        (rf"x = \boxed{{{x}}}.", rf"the answer is \boxed{{{x}}}.", rf"we find \boxed{{{x}}}.")
    )
    question = rng.choice((f"Solve {equation} for x.", f"Find x if {equation}."))
    response = f"{work} {end}"
    return Problem(
        f"math {kind} {a} {b} {x}", question, response, {"problem": question, "solution": response}
    )


def numbered(rows: list[Row]) -> str:
    """Rows in the format of MATH's file: an object with problems by number."""
    return json.dumps({str(number): row for number, row in enumerate(rows)}, indent=0)


LENGTHS = {"gen_length": 512, "block_length": 64}
CONFIGURATION = "math_0shot_gen_11c4b5"
SUITE = Suite(
    name="math",
    title="MATH",
    configuration=CONFIGURATION,
    file="math/math.json",
    lengths=LENGTHS,
    generator=Generator(
        draw=draw,
        file="math/test_prm800k_500.json",
        content=numbered,
        dataset="opencompass.datasets.MATHDataset",
        by_folder=True,
        load={"file_name": "test_prm800k_500.json"},
        columns=("problem",),
        output="solution",
        rounds=human("{problem}"),
        evaluation={
            "evaluator": {"type": "opencompass.datasets.MATHEvaluator", "version": "v2"},
            "pred_postprocessor": {"type": "opencompass.datasets.math_postprocess_v2"},
        },
        length=48,
    ),
    training=Training("problem", "solution", "{problem}" + BOXED),
)
MATH_500 = Suite(
    name="math500",
    title="MATH-500",
    configuration=CONFIGURATION,
    changes={"file_name": "test_prm800k_500.json"},
    file="math/test_prm800k_500.json",
    lengths=LENGTHS,
)
