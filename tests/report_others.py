"""Records of the compiler and of other tools for the report's tests: made up, small, and obeying their own arithmetic."""

from perfmodel.records import AcceptanceProfile, CompiledSet, CompiledStep, CostPoint, Imported, ImportedRun, KPrediction, KRow


def compiled() -> CompiledSet:
    """Verify and step on one chip at three K, flat by construction up to K = 16, and one that failed."""
    rows = [
        CompiledStep(
            hardware="tpu-v5p",
            topology="v5p:1x1x1",
            device_kind="TPU v5",
            num_devices=1,
            chip_share=1.0,
            target="qwen3-4b",
            draft="qwen3-4b-dflash-b16",
            dtype="bfloat16",
            phase=phase,
            block_size=size,
            batch=1,
            context=1024,
            estimated_s=base * (1.0 if size <= 16 else 1.4),
            floor_s=0.6 * base,
            hbm_bytes=8e9,
            flops=8e9 * size,
            argument_bytes=8e9,
            temporary_bytes=1e8,
            fits=True,
            needed_bytes=8.1e9,
            memory_bytes=95e9,
        )
        for phase, base in (("verify", 5e-3), ("step", 6e-3))
        for size in (2, 16, 128)
    ]
    failed = {"estimated_s": None, "floor_s": None, "fits": False, "failure": "does not fit: 120 GB", "block_size": 1024}
    return CompiledSet(rows=(*rows, CompiledStep(**{**{n: getattr(rows[0], n) for n in rows[0].__struct_fields__}, **failed})))


def imported() -> Imported:
    """One server log with rates by position, one run with a mean alone, and a latency table."""
    by_position = ImportedRun(
        name="server.log",
        source="vllm-log",
        definition="accepted drafts, bonus excluded",
        num_steps=1000,
        num_draft_tokens=3000,
        num_accepted=1400,
        block_size=4,
        tau=2.4,
        survival=(0.7, 0.45, 0.25),
        draft="an eagle3 head",
        task="chat",
    )
    mean_only = ImportedRun(name="mean", source="vllm-log", definition="mean length", block_size=8, tau=3.5, task="code")
    points = tuple(CostPoint(tokens=tokens, batch=1, context=0, seconds=5e-3 * (1 + tokens / 256)) for tokens in (1, 16, 256))
    return Imported(
        source="vllm-log",
        definition=None,
        num_steps=None,
        num_draft_tokens=None,
        num_accepted=None,
        block_size=None,
        tau=None,
        survival=None,
        records=(by_position, mean_only),
        cost_points=points,
        files=("server.log",),
    )


def drafter(draft: str, survival: tuple[float, ...], task: str = "math") -> AcceptanceProfile:
    """The acceptance of a named drafter with 900 steps."""
    at_risk = tuple(900.0 * share for share in (1.0, *survival[:-1]))
    return AcceptanceProfile(
        name=f"{draft}/{task}",
        task=task,
        target="qwen3-4b",
        draft=draft,
        block_size=len(survival) + 1,
        survival=survival,
        at_risk=at_risk,
        num_steps=900,
        num_prompts=20,
        source="this test",
    )


def cycle(profile: AcceptanceProfile, chip: str = "tpu-v5p", step_s: float = 8e-3, task: str = "math") -> KPrediction:
    """A prediction with a plain step of 6 ms and speculative steps of `step_s`, whatever K: speedup = τ · 6 ms / step."""
    rows, tau = [], 1.0
    for size in range(1, len(profile.survival) + 2):
        tau = 1.0 + sum(profile.survival[: size - 1])
        seconds = 6e-3 if size == 1 else step_s
        gain = tau * 6e-3 / seconds
        rows.append(
            KRow(
                block_size=size, batch=1, context=1024, draft_s=0.0 if size == 1 else 1e-3, verify_s=seconds - 1e-3,
                host_s=1e-3 if size == 1 else 0.0, tau=tau, tpot_s=seconds / tau,
                speedup=gain, speedup_low=0.9 * gain, speedup_high=1.1 * gain,
            )
        )  # fmt: skip
    best = max(rows, key=lambda row: row.speedup or 0.0)
    return KPrediction(
        hardware=chip, target=profile.target, draft=profile.draft, task=task, source="datasheet", batch=1, context=1024,
        rows=tuple(rows), best=best, plateau=(best.block_size, best.block_size), worth_it=best.block_size > 1,
        break_even_tau=step_s / 6e-3, trained_block_size=profile.block_size,
    )  # fmt: skip
