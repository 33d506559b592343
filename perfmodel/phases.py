"""The four phases of a speculative step: one vocabulary for the loop, its trace and the model.

`prefill` runs once per answer. A step is `draft` (one drafter pass), `verify` (one target pass over K tokens) and `commit`
(the accept rule, and the drafter's context growing by the features of what was verified).
Plain decoding is the same loop at block size 1: `verify` and `commit` only.
"""

from typing import Literal, get_args

Phase = Literal["prefill", "draft", "verify", "commit"]

PREFILL: Phase = "prefill"
DRAFT: Phase = "draft"
VERIFY: Phase = "verify"
COMMIT: Phase = "commit"

PHASES: tuple[Phase, ...] = get_args(Phase)
STEP_PHASES: tuple[Phase, ...] = (DRAFT, VERIFY, COMMIT)

STEP_ANNOTATION = "decode_step"
"""Name of the profiler's step annotation around one decode step; its `step_num` counts from 0."""
