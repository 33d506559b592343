"""Frozen, validated records that the stages exchange; `perfmodel.codec` reads and writes them as versioned JSON."""

from .acceptance import AcceptanceProfile, AcceptanceSet
from .base import Finding, Record, Severity
from .fitted import FittedModel, FittedPoint, FittedRange, Flatness, Parameter
from .hardware import Hardware, Peak
from .model import ModelSpec, StepCost, StepShape
from .prediction import KPrediction, KRow, PredictionSet
from .run import CheckedK, DecodeRun, Environment, Run, RunSpec
from .timing import Audit, AuditedPoint, PhaseTimes, StepTimes, TimingPoint, TraceSet, TraceTimings, Verdict

__all__ = [
    "AcceptanceProfile",
    "AcceptanceSet",
    "Audit",
    "AuditedPoint",
    "CheckedK",
    "DecodeRun",
    "Environment",
    "Finding",
    "FittedModel",
    "FittedPoint",
    "FittedRange",
    "Flatness",
    "Hardware",
    "KPrediction",
    "KRow",
    "ModelSpec",
    "Parameter",
    "Peak",
    "PhaseTimes",
    "PredictionSet",
    "Record",
    "Run",
    "RunSpec",
    "Severity",
    "StepCost",
    "StepShape",
    "StepTimes",
    "TimingPoint",
    "TraceSet",
    "TraceTimings",
    "Verdict",
]
