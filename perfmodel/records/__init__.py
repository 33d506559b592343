"""Frozen, validated records that the stages exchange; `perfmodel.codec` reads and writes them as versioned JSON."""

from .acceptance import AcceptanceProfile, AcceptanceSet
from .base import Finding, Record, Severity
from .compiled import CompiledSet, CompiledStep
from .diagnosis import Diagnosed, Diagnosis
from .fitted import FittedModel, FittedPoint, FittedRange, Flatness, Parameter
from .hardware import Hardware, Peak
from .imported import CostPoint, CyclePoint, Imported, ImportedRun
from .model import ModelSpec, StepCost, StepShape
from .prediction import KPrediction, KRow, PredictionSet
from .run import CheckedK, DecodeRun, Environment, Run, RunSpec
from .served import Served, ServedPoint, ServedRequest
from .timing import (
    Audit,
    AuditedPoint,
    OperationStatistics,
    PhaseTimes,
    StepTimes,
    TimingPoint,
    TraceSet,
    TraceTimings,
    Verdict,
)

__all__ = [
    "AcceptanceProfile",
    "AcceptanceSet",
    "Audit",
    "AuditedPoint",
    "CheckedK",
    "CompiledSet",
    "CompiledStep",
    "CostPoint",
    "CyclePoint",
    "DecodeRun",
    "Diagnosed",
    "Diagnosis",
    "Environment",
    "Finding",
    "FittedModel",
    "FittedPoint",
    "FittedRange",
    "Flatness",
    "Hardware",
    "Imported",
    "ImportedRun",
    "KPrediction",
    "KRow",
    "ModelSpec",
    "OperationStatistics",
    "Parameter",
    "Peak",
    "PhaseTimes",
    "PredictionSet",
    "Record",
    "Run",
    "RunSpec",
    "Served",
    "ServedPoint",
    "ServedRequest",
    "Severity",
    "StepCost",
    "StepShape",
    "StepTimes",
    "TimingPoint",
    "TraceSet",
    "TraceTimings",
    "Verdict",
]
