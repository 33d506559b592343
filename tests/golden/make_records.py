"""Write one small document of every schema's current version into tests/golden/records/.

    python tests/golden/make_records.py

Run it when a schema gets a new version, and never to change an older file: those are what the upgrade steps are held to.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record_examples import example

from perfmodel import codec

if __name__ == "__main__":
    folder = Path(__file__).parent / "records"
    for record_type, (schema, version) in codec.SCHEMAS.items():
        path = folder / f"{schema}-{version}.json"
        if path.exists():
            print(f"kept {path.name}")
            continue
        codec.save(path, example(record_type))
        print(f"made {path.name}")
