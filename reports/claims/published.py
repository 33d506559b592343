"""Figures as others published them, each with its source. Facts only; nothing is computed here."""

from typing import NamedTuple

PORT = "aaronzhfeng/tpu-spec-decode (commit 18da7e0)"
POST = "Google Developers post of 4 May 2026"
PAPER = "DFlash paper (arXiv 2602.06036)"
NVIDIA = "NVIDIA developer post of June 2026"


class TpuTask(NamedTuple):
    """TPU v5p, Qwen3-4B + DFlash b16, batch 1: three published runs of one task; times in ms."""

    headline_speedup: float
    headline_plain_ms: float
    headline_tpot_ms: float
    raw_speedup: float
    raw_plain_ms: float
    raw_tpot_ms: float
    branch_speedup: float


V5P = {
    "math500": TpuTask(5.72, 8.02, 1.40, 4.93, 6.37, 1.29, 4.90),
    "aime24": TpuTask(3.98, 7.69, 1.93, 3.57, 6.31, 1.77, 3.49),
    "aime25": TpuTask(3.35, 6.85, 2.05, 3.39, 6.38, 1.88, 3.32),
    "gsm8k": TpuTask(3.17, 7.32, 2.31, 3.00, 6.35, 2.12, 2.95),
    "humaneval": TpuTask(3.53, 7.70, 2.18, 3.17, 6.31, 1.99, 3.09),
    "mbpp": TpuTask(2.77, 7.31, 2.64, 3.27, 6.40, 1.96, 3.41),
    "mt-bench": TpuTask(2.36, 7.20, 3.05, 2.29, 6.27, 2.74, 2.38),
    "alpaca": TpuTask(1.65, 6.72, 4.08, 1.63, 6.29, 3.86, 1.65),
    "swe-bench": TpuTask(1.60, 6.85, 4.27, 1.86, 6.32, 3.40, 1.97),
}
"""Headline table (read-me), raw result files, run of the pull-request branch."""

V5P_VERIFY_MS = {16: 1.314, 128: 1.311, 256: 1.309, 384: 1.328, 512: 1.319, 768: 1.288, 1024: 1.309}
"""TPU v5p, Qwen3-4B, context 256: block size → published time of a verify pass."""

EXACT_MATCHES = (25, 72)
"""bfloat16 runs on v5p whose speculative text equals the plain one."""

SEQUENCE_FIX = {"before": (2.49, 1.30), "after": (4.48, 2.31)}
"""TPU v4 pipeline before and after the sequence-length fix: τ, speedup."""

LLAMA_DFLASH_TAUS = {"alpaca": 3.73, "gsm8k": 4.32, "humaneval": 4.91}
"""Llama-3.1-8B with a DFlash drafter of block 10 on B200: τ."""

LLAMA_EAGLE3_TAU = (4, 2.18)
"""Llama-3.1-8B with EAGLE-3 and 3 drafts on TPU v4: block size, τ."""

EAGLE3_STEPS = {
    3: (2.91, (0.73, 0.52, 0.36)),
    4: (3.02, (0.72, 0.51, 0.35, 0.23)),
    5: (3.20, (0.72, 0.50, 0.34, 0.22, 0.15)),
    6: (3.41, (0.72, 0.50, 0.33, 0.22, 0.14, 0.09)),
    7: (3.63, (0.72, 0.50, 0.33, 0.21, 0.14, 0.09, 0.06)),
    8: (3.86, (0.71, 0.49, 0.32, 0.21, 0.14, 0.09, 0.05, 0.03)),
}
"""vLLM with EAGLE-3 on one GPU, HumanEval (vllm-project/vllm 32628): drafts → ms a token, acceptance by position."""

DFLASH_PASS_MS = {16: 2.82, 32: 2.79, 64: 2.87, 128: 2.88}
"""DFlash drafter on H100: block size → ms a pass."""

EAGER_MS = (20.4, 2.8)
"""Qwen3-4B in eager PyTorch on H100, bound by the host: ms to verify, ms of a DFlash pass, whatever K."""

CONCURRENCY = (1, 4, 8, 16, 32)


class Served(NamedTuple):
    """SGLang on one B200: tokens per second plain and with DFlash b16, by concurrency."""

    target: str
    draft: str
    task: str
    tau: float
    plain: tuple[float, ...]
    dflash: tuple[float, ...]
    is_mixture: bool


B200 = (
    Served(
        "qwen3-4b", "qwen3-4b-dflash-b16", "math500", 8.01,
        (316, 1145, 2201, 4100, 7136), (1531, 4943, 9066, 14477, 20417), False,
    ),
    Served(
        "qwen3-4b", "qwen3-4b-dflash-b16", "humaneval", 6.63,
        (312, 1162, 2217, 4184, 7143), (1247, 4147, 6997, 11234, 15703), False,
    ),
    Served(
        "qwen3-8b", "qwen3-8b-dflash-b16", "math500", 8.01,
        (230, 861, 1666, 3133, 5694), (1175, 3884, 7485, 12268, 16076), False,
    ),
    Served(
        "qwen3-8b", "qwen3-8b-dflash-b16", "humaneval", 6.50,
        (229, 868, 1649, 3253, 5462), (955, 3092, 6010, 9919, 13116), False,
    ),
    Served(
        "qwen3-30b-a3b", "qwen3-30b-a3b-dflash", "humaneval", 8.09,
        (229, 686, 1068, 1681, 2713), (802, 2078, 3442, 5429, 8314), True,
    ),
    Served(
        "qwen3-30b-a3b", "qwen3-30b-a3b-dflash", "lcb", 6.42,
        (220, 681, 1112, 1733, 2823), (569, 1621, 2554, 4160, 6401), True,
    ),
    Served(
        "qwen3-30b-a3b", "qwen3-30b-a3b-dflash", "mbpp", 7.23,
        (228, 682, 1057, 1697, 2735), (720, 2052, 3360, 5522, 8538), True,
    ),
)  # fmt: skip

SERVED_CONTEXT = 700
"""Tokens in the cache half-way through such an answer: a prompt of about 100 and up to 2,048 new ones."""

ABLATION = {
    "math500": {(16, 16): (4.64, 6.33), (16, 8): (3.87, 5.09), (8, 16): (3.78, 5.02), (8, 8): (3.97, 5.21)},
    "humaneval": {(16, 16): (3.96, 5.29), (16, 8): (3.39, 4.44), (8, 16): (3.24, 4.28), (8, 8): (3.53, 4.61)},
    "mt-bench": {(16, 16): (2.23, 3.50), (16, 8): (2.12, 3.18), (8, 16): (2.09, 3.09), (8, 8): (2.22, 3.29)},
}
"""Paper, 8 layers: (block trained, block used) → speedup, τ."""

PAPER_8B = {"best": (6.08, 7.87), "average": (4.86, 6.49)}
"""Qwen3-8B, DFlash b16, temperature 0, Transformers on H200: speedup, τ; MATH-500 and the mean of seven sets."""
