"""Names that stand for several methods: the rows of the paper's tables, and every decoder.

Light, for the tables read it too; what the methods are stands in harness/presets.py.
"""

GROUPS = {
    "main": ["llada", "llada/2", "ssd", "ddosp", "dcd", "fef-2", "fef-4"],
    "training": ["llada", "llada-trained", "fef-2-untrained", "fef-4-untrained", "fef-2", "fef-4"],
    "speculation": ["llada", "fef-2-nosd", "fef-4-nosd", "fef-2", "fef-4"],
    "draft": ["llada", "fef-4", "fef-4-untrained-draft"],
    "window-size": ["llada", "fef-4-w2", "fef-4-w4", "fef-4-w8", "fef-4", "fef-4-w24", "fef-4-w32"],
    "decoders": [
        *("llada", "llada/2", "llada/4", "llada/8", "ssd", "ddosp", "dcd"),
        *("threshold", "factor", "entropy", "fef-1", "fef-2", "fef-4"),
    ],
}
PAPER_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
