"""How fast a large capture is read, beside the other readers of the same file: `python -m benchmarks.xplane`.

A real capture of a small loop on this machine is enlarged to 100 MB by repeating its events, later each time and with new run
numbers, so that names, stats and nesting stay those of a real one. Every reader gets a process of its own, whose peak
memory the system reports. Aim: 10 s and 2 GB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUM_STEPS = 200
READERS = {
    "read_space": "columns of every plane, line and event",
    "extract": "the whole of `perf extract`",
    "ProfileData": "jax.profiler.ProfileData, every event's name, start and length",
    "with stats": "the same, and every event's stats, which say its program and run",
    "xprof": "XProf's own converter, `overview_page`",
}


def main() -> None:
    """Make the file, let every reader have it, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", type=Path, help="a capture to enlarge, instead of one made now")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(measure(options.read[0], Path(options.read[1]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        source = options.capture or record(Path(folder) / "small")
        large = Path(folder) / "large" / "host.xplane.pb"
        large.parent.mkdir()
        num_events = enlarge(source, large, options.megabytes * 1e6)
        size_bytes = large.stat().st_size
        found = {reader: in_own_process(reader, large) for reader in READERS}
    if options.json:
        print(json.dumps({"size_bytes": size_bytes, "num_events": num_events, "readers": found}))
        return
    print(f"{size_bytes / 1e6:.1f} MB, {num_events:,} events")
    for reader, one in found.items():
        wall, core = f"{one['seconds']:.2f} s", f"{one['cpu_seconds']:.2f} s"
        print(f"{reader:12} {wall:>8} wall {core:>8} cpu {one['peak_bytes'] / 1e9:6.2f} GB   {READERS[reader]}")


def record(folder: Path) -> Path:
    """A real capture: a loop of three phases with a few dozen operations a step."""
    import jax
    import jax.numpy as jnp

    from perfmodel.phases import STEP_ANNOTATION, STEP_PHASES
    from profiling.capture import capture

    def chain(values: jax.Array) -> jax.Array:
        for _ in range(12):
            values = jnp.tanh(values @ values)
        return values

    programs = {}
    for phase in STEP_PHASES:
        chain.__name__ = phase
        programs[phase] = jax.jit(chain).lower(jnp.ones((32, 32))).compile()
    values = jnp.ones((32, 32))
    with capture(folder, "small", max_steps=NUM_STEPS) as recording:
        for step in range(NUM_STEPS):
            with recording.span(STEP_ANNOTATION, step_num=step):
                for phase, program in programs.items():
                    with recording.span(phase):
                        values = jax.block_until_ready(program(values))
    return recording.xplane


def enlarge(source: Path, target: Path, size_bytes: float) -> int:
    """Write the capture with its events repeated until the file has the size; returns the number of events."""
    from profiling.xplane_schema import message_types

    types = message_types()
    space = types["Space"].FromString(source.read_bytes())
    num_repeats = max(1, round(size_bytes / source.stat().st_size))
    planes = [types["Plane"].FromString(plane) for plane in space.planes]
    lines = [[types["Line"].FromString(line) for line in plane.lines] for plane in planes]
    events = [[[types["Event"].FromString(event) for event in line.events] for line in plane] for plane in lines]
    period_ps = max((one.offset_ps + one.duration_ps for plane in events for line in plane for one in line), default=0)
    num_events = 0
    for plane, plane_lines, plane_events in zip(planes, lines, events, strict=True):
        runs = {entry.key for entry in plane.stat_metadata if entry.value.name == b"run_id"}
        encoded = []
        for line, line_events in zip(plane_lines, plane_events, strict=True):
            del line.events[:]
            for _ in range(num_repeats):
                line.events.extend([event.SerializeToString() for event in line_events])
                for event in line_events:
                    event.offset_ps += period_ps
                    for stat in event.stats:
                        if stat.metadata_id in runs:
                            stat.int64_value += 1_000_000
            num_events += len(line.events)
            encoded.append(line.SerializeToString())
        del plane.lines[:]
        plane.lines.extend(encoded)
    del space.planes[:]
    space.planes.extend(plane.SerializeToString() for plane in planes)
    target.write_bytes(space.SerializeToString())
    return num_events


def in_own_process(reader: str, file: Path) -> dict[str, float]:
    """Seconds and peak bytes of one reader."""
    command = [sys.executable, "-m", "benchmarks.xplane", "--read", reader, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(reader: str, file: Path) -> dict[str, float]:
    """Seconds of reading, by the wall and of processor time (which a busy machine does not stretch), and this process's peak memory."""
    prepared = prepare(reader)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    prepared(file)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> float:
    """The most memory this process has held; `ru_maxrss` would start from what its parent had."""
    return 1024.0 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def prepare(reader: str):
    """The reader, imported."""
    if reader == "read_space":
        from profiling.xplane import read_space

        return read_space
    if reader == "extract":
        from profiling.extract import extract

        return extract
    if reader in ("ProfileData", "with stats"):
        from jax.profiler import ProfileData

        def look(event):
            times = event.name, event.start_ns, event.duration_ns
            return times if reader == "ProfileData" else (*times, *event.stats)

        return lambda file: [
            look(event) for plane in ProfileData.from_file(str(file)).planes for line in plane.lines for event in line.events
        ]
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data

    return lambda file: xspace_to_tool_data([str(file)], "overview_page", {"use_saved_result": False})


if __name__ == "__main__":
    main()
