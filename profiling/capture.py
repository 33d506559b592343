"""Recording a decode loop with JAX's profiler, so that the trace can be believed.

What is recorded decides what it costs. The Python tracer writes an event per function call and slows the host several-fold, so
it is off. The host tracer runs at its lowest level, which keeps our annotations and XLA's own CPU operations. The number of
steps is bounded: profilers drop events silently once a buffer is full, and a few dozen steps already give a steady median.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import jax

from perfmodel.errors import InputError, PerfError, UntrustedError
from perfmodel.phases import STEP_ANNOTATION

MAX_STEPS = 50
PROFILE_FOLDER = Path("plugins", "profile")
"""Where TensorBoard's profile plugin looks for runs, below its log folder."""
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ANNOTATIONS_AND_OPS = 1


class Span:
    """Opens regions of the trace: `span(name)` around a phase, `span(STEP_ANNOTATION, step_num=n)` around a step.

    `blocking` tells the loop to wait for each phase's result inside its region. It is true on CPU, where only the host's clock
    says how long a phase took; on an accelerator the device's own clock says it, and waiting would remove the overlap of host
    and device that the trace is there to show. When step `max_steps` + 1 begins, `on_full` is called once, and from then on
    regions record nothing.
    """

    def __init__(self, blocking: bool, max_steps: int, on_full: Callable[[], None]) -> None:
        self.blocking = blocking
        self.max_steps = max_steps
        self.num_steps = 0
        self._on_full = on_full
        self._full = False

    def __call__(self, name: str, step_num: int | None = None) -> AbstractContextManager[object]:
        """A region to enter; a step when `step_num` is given."""
        is_step = name == STEP_ANNOTATION
        if is_step and self.num_steps == self.max_steps and not self._full:
            self._full = True
            self._on_full()
        if self._full:
            return nullcontext()
        self.num_steps += is_step
        if step_num is None:
            return jax.profiler.TraceAnnotation(name)
        return jax.profiler.StepTraceAnnotation(name, step_num=step_num)


class Capture:
    """A recording under way, and after its end the file it left.

    Attributes: `span` for the loop; `xplane`, the one file recorded; `num_steps`, the decode steps inside it; `start_s` and
    `stop_s`, the seconds the profiler took to begin and to write.
    """

    def __init__(self, folder: Path, name: str, max_steps: int) -> None:
        self.run_folder = folder / PROFILE_FOLDER / name
        self.span = Span(jax.default_backend() == "cpu", max_steps, self.stop)
        self.start_s = 0.0
        self.stop_s = 0.0
        self._folder = folder
        self._name = name
        self._running = False

    @property
    def num_steps(self) -> int:
        """Decode steps recorded."""
        return self.span.num_steps

    @property
    def xplane(self) -> Path:
        """The file recorded. Raises `UntrustedError` unless there is exactly one."""
        files = sorted(self.run_folder.glob("*.xplane.pb"))
        if len(files) != 1:
            raise UntrustedError(
                f"the capture left {len(files)} .xplane.pb files in {self.run_folder}, not 1", "record into a new folder"
            )
        return files[0]

    def start(self) -> None:
        """Begin recording. The device must be idle."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = _ANNOTATIONS_AND_OPS
        options.session_id = self._name
        begin = time.perf_counter()
        jax.profiler.start_trace(self._folder, profiler_options=options)
        self._running = True
        self.start_s = time.perf_counter() - begin

    def stop(self) -> None:
        """End recording and write the file; a second call does nothing."""
        if not self._running:
            return
        self._running = False
        begin = time.perf_counter()
        try:
            jax.profiler.stop_trace()
        except jax.errors.JaxRuntimeError as error:
            for path in self.run_folder.glob("*.xplane.pb"):
                path.unlink()  # what there is of it: it would be taken for a capture
            raise PerfError(
                f"the capture could not be written: {str(error).partition(chr(10))[0]}",
                "check the folder and the free space, then repeat",
            ) from error
        self.stop_s = time.perf_counter() - begin


@contextmanager
def capture(folder: Path, name: str, max_steps: int = MAX_STEPS) -> Iterator[Capture]:
    """A running capture; after the block its file is `folder/plugins/profile/<name>/<host>.xplane.pb`.

    Recording ends early, before step `max_steps` + 1, however long the block goes on. Raises `InputError` when a run of this name
    is already there or the name cannot be a folder, `UntrustedError` unless exactly one file was left.
    """
    if not _RUN_NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a capture", "use letters, digits, dots, dashes and underscores")
    if max_steps < 1:
        raise InputError(f"a capture of {max_steps} steps records nothing", "ask for at least one step")
    recording = Capture(folder, name, max_steps)
    if any(recording.run_folder.glob("*.xplane.pb")):
        raise InputError(f"{recording.run_folder} already holds a capture", "choose another name or folder")
    recording.start()
    try:
        yield recording
    finally:
        recording.stop()
    recording.xplane  # noqa: B018 - raises when the profiler left no file, or several
