"""Names that stand for several methods: the rows of the paper's tables, and every decoder.

Light, because the tables read it too. The methods themselves are in harness/methods/presets.py.
"""

GROUPS = {
    "main": ["llada", "llada/2", "ssd", "ddosp", "dcd", "fef-2", "fef-4"],
    "training": [
        *("llada", "llada-trained", "llada-control"),
        *("fef-2-untrained", "fef-4-untrained", "fef-2", "fef-4"),
    ],
    "speculation": ["llada", "fef-2-nosd", "fef-4-nosd", "fef-2", "fef-4"],
    "draft": ["llada", "fef-4", "fef-4-untrained-draft"],
    "window-size": ["llada", "fef-4-w2", "fef-4-w4", "fef-4-w8", "fef-4", "fef-4-w24", "fef-4-w32"],
    "savings": ["llada", "fef-2", "fef-2-skip", "fef-2-reuse", "fef-2-adaptive", "fef-fast", "fef-two-stream"],
    "checkpoints": [
        *("llada", "llada-trained", "llada-control", "threshold-trained", "factor-trained", "entropy-trained"),
        *("fef-fast-untrained", "fef-fast-control", "fef-fast", "fef-two-stream-untrained", "fef-two-stream"),
    ],
    "anchor": [
        *("llada", "fef-two-stream", *(f"fef-two-stream-a{n}" for n in (32, 24, 16, 8))),
        *("fef-two-stream-untrained", *(f"fef-two-stream-a{n}-untrained" for n in (32, 24, 16, 8))),
    ],
    "window": [
        *("llada", *(f"fef-2-w{n}" for n in (2, 4, 8)), "fef-2", "fef-2-w32", "fef-2-w64"),
        *(f"fef-two-stream-w{n}" for n in (2, 4, 8)),
        *("fef-two-stream", "fef-two-stream-w32", "fef-two-stream-w64"),
    ],
    "front": [
        *("llada", "llada/2", "llada/4", "llada/8"),
        *("threshold-0.5", "threshold-0.7", "threshold-0.8", "threshold", "threshold-0.95"),
        *("factor-4.0", "factor-2.0", "factor", "factor-0.5", "factor-0.25"),
        *("entropy-3.0", "entropy-1.0", "entropy-0.3", "entropy", "entropy-0.01"),
        *("fef-two-stream-1", "fef-two-stream-r0.5", "fef-two-stream", "fef-two-stream-r0.99", "fef-two-stream-all"),
        *("fef-two-stream-4", "fef-two-stream-a16", "fef-fast"),
        *("fef-two-stream-1-c0.5", "fef-two-stream-1-c0.7", "fef-two-stream-1-c0.9", "fef-two-stream-c0.7"),
        *("klass-0.6", "klass", "wino-0.3", "wino", "wino-0.8", "freedave", "freedave-8"),
        *("prophet-4", "prophet", "pc-sampler", "ssd", "ddosp", "dcd", "llada+prefix", "llada+dual"),
        *("threshold+prefix", "threshold+dual", "factor+dual", "entropy+dual", "klass+dual", "wino+dual"),
    ],
    "one-checkpoint": [
        *("llada", "threshold", "factor", "entropy", "llada+prefix", "llada+dual"),
        *("threshold+prefix", "threshold+dual", "factor+dual", "entropy+dual", "fef-2", "fef-fast"),
        *("fef-two-stream-1", "fef-two-stream-1-c0.7", "fef-two-stream", "fef-two-stream-c0.7"),
        *("fef-two-stream-1-a32", "fef-two-stream-1-a16", "fef-two-stream-a32", "fef-two-stream-a16"),
        *("fef-two-stream-1-sure", "fef-two-stream-1-sure-c0.7", "fef-two-stream-sure"),
    ],
    "decoders": [
        *("llada", "llada/2", "llada/4", "llada/8", "ssd", "ddosp", "dcd"),
        *("threshold", "factor", "entropy", "klass", "wino", "freedave", "pc-sampler", "prophet"),
        *("fef-1", "fef-2", "fef-4"),
    ],
    "caches": [
        *("llada", "llada+prefix", "llada+dual", "threshold", "threshold+prefix", "threshold+dual"),
        *("factor", "factor+prefix", "factor+dual", "entropy", "entropy+prefix", "entropy+dual"),
        *("klass", "klass+prefix", "klass+dual", "wino", "wino+prefix", "wino+dual"),
    ],
}
